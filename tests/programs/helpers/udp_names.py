"""A resolver of its own over UDP: SERVER PORT. Each way to send and receive that resolvers use, and what they check of it."""

import errno
import os
import select
import socket
import struct
import sys
import time

SERVER, PORT = sys.argv[1], int(sys.argv[2])
A = 1


def question(number, name, kind=A):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!6H", number, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def shown(message):
    number, flags, _, answers = struct.unpack_from("!4H", message)
    end = socket.inet_ntoa(message[-4:]) if answers else ""
    return f"{number} code {flags & 15} cut {flags >> 9 & 1} answers {answers} {end}"


def made(flags=0):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | flags)
    one.settimeout(10 if not flags & socket.SOCK_NONBLOCK else 0)
    return one


def name_of(error):
    return errno.errorcode.get(error.errno, str(error))


# Connected, as c-ares and dig.
one = made()
one.connect((SERVER, PORT))
print("peer", one.getpeername(), "family", one.family.name, "type", one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))
print("domain", one.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN), "protocol", one.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL))
print("own port", one.getsockname()[1] > 0)
one.send(question(1, "four.world.test"))
print("connected", shown(one.recv(4096)))
one.send(question(2, "missing.world.test"))
message, _, flags, origin = one.recvmsg(4096)
print("message", shown(message), flags, origin)
one.send(question(3, "four.world.test"))
print("peeked", shown(one.recv(4096, socket.MSG_PEEK)), shown(one.recv(4096)))
one.send(question(4, "four.world.test"))
print("cut", len(one.recv(10)))
one.send(question(5, "many.world.test"))
print("large", shown(one.recv(65536)))
# Read and written as a file.
one.setblocking(True)
os.write(one.fileno(), question(6, "four.world.test"))
print("file", shown(os.read(one.fileno(), 4096)))
os.writev(one.fileno(), [question(7, "four.world.test")[:12], question(7, "four.world.test")[12:]])
parts = [bytearray(12), bytearray(4096)]
count = os.readv(one.fileno(), parts)
print("parts", shown((parts[0] + parts[1])[:count]))
# A duplicate, and a child.
one.settimeout(10)
other = socket.socket(fileno=os.dup(one.fileno()))
other.settimeout(10)
other.send(question(8, "four.world.test"))
print("duplicate", shown(other.recv(4096)), other.getpeername())
sys.stdout.flush()
child = os.fork()
if child == 0:
    one.send(question(9, "four.world.test"))
    print("child", shown(one.recv(4096)), flush=True)
    os._exit(0)
print("ended", os.waitpid(child, 0)[1])
one.send(question(10, "four.world.test"))
print("after the child", shown(one.recv(4096)))
one.close()
other.close()

# Not connected, as dnspython, and many questions at a time.
one = made()
one.bind(("0.0.0.0", 0))
wanted = {}
for number in range(200, 240):
    one.sendto(question(number, "four.world.test"), (SERVER, PORT))
while len(wanted) < 40:
    message, origin = one.recvfrom(4096)
    wanted[struct.unpack_from("!H", message)[0]] = origin
print("many", len(wanted), set(wanted.values()))
one.sendmsg([question(11, "four.world.test")], [], 0, (SERVER, PORT))
print("sendmsg", shown(one.recv(4096)))
try:
    one.getpeername()
except OSError as error:
    print("no peer", name_of(error))
try:
    one.send(question(12, "four.world.test"))
except OSError as error:
    print("no destination", name_of(error))

# In an event loop that had the socket before it was connected.
for kind in "level", "edge":
    one = made(socket.SOCK_NONBLOCK)
    loop = select.epoll()
    loop.register(one, select.EPOLLIN | (select.EPOLLET if kind == "edge" else 0))
    one.connect((SERVER, PORT))
    print(kind, "quiet", loop.poll(0.05))
    for number in 13, 14, 15:
        one.send(question(number, "four.world.test"))
    got = 0
    while got < 3:
        assert loop.poll(10), "no event"
        while True:
            try:
                one.recv(4096)
                got += 1
            except BlockingIOError:
                break
    print(kind, "got", got, "then", loop.poll(0.05))
    loop.unregister(one)
    one.close()
    loop.close()
one = made(socket.SOCK_NONBLOCK)
one.connect((SERVER, PORT))
ready = select.poll()
ready.register(one, select.POLLIN | select.POLLOUT)
print("poll", [event for _, event in ready.poll(0)])
one.send(question(16, "four.world.test"))
print("select", [len(part) for part in select.select([one], [], [], 10)], shown(one.recv(4096)))

# Time.
one = made()
one.settimeout(None)
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100000))
one.connect((SERVER, PORT))
before = time.monotonic()
try:
    one.recv(10)
except OSError as error:
    print("time", name_of(error), time.monotonic() - before < 5)

# Another server.
one = made()
one.connect((SERVER, PORT))
one.connect((SERVER, PORT))
one.send(question(17, "four.world.test"))
print("again", shown(one.recv(4096)))
