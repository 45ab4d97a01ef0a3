"""What TCP says of a connection, and what becomes of one whose other host says nothing any more.

  socket_options.py information ADDRESS PORT REQUEST   asks there, reads to the end, and tells what TCP says
  socket_options.py silence ADDRESS PORT               connects twice: with keep-alive, and with a user timeout
  socket_options.py listening PORT                     listens with keep-alive, and accepts one connection

The last two say `ready` and go on when a line comes from standard input: then the other host is to be out of reach.
"""

import errno
import socket
import struct
import sys

KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
]
USER_TIMEOUT = [(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1500)]
IP_MTU = 14


def set_options(one, options):
    for option in options:
        one.setsockopt(*option)


def tell(one):
    information = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (sent, path) = struct.unpack_from("I", information, 16)[0], struct.unpack_from("I", information, 60)[0]
    (rtt,) = struct.unpack_from("I", information, 68)
    acknowledged, received = struct.unpack_from("QQ", information, 120)
    name = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    print("state", information[0], "bytes", len(information))
    print("segments of", sent, one.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
    print("a path of", path, one.getsockopt(socket.IPPROTO_IP, IP_MTU))
    print("a round trip of", "some time" if 0 < rtt < 1_000_000 else rtt)
    print("acknowledged", acknowledged, "received", received)
    print("congestion control", name)
    # One that asks for less gets as much.
    print("short", len(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)))


def outcome(what, one):
    one.settimeout(20)
    try:
        print(what, one.recv(1))
    except TimeoutError as error:
        # Python has one exception for both.
        print(what, errno.errorcode.get(error.errno, "no answer of the kernel"))
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def wait():
    print("ready", flush=True)
    sys.stdin.readline()


def main():
    if sys.argv[1] == "information":
        one = socket.create_connection((sys.argv[2], int(sys.argv[3])))
        one.sendall(sys.argv[4].encode().decode("unicode_escape").encode())
        first = one.recv(1)
        assert first, "it answers"
        while one.recv(65536):
            pass
        tell(one)
    elif sys.argv[1] == "silence":
        probed, sender = (socket.create_connection((sys.argv[2], int(sys.argv[3]))) for _ in range(2))
        set_options(probed, KEEP_ALIVE)
        set_options(sender, USER_TIMEOUT)
        wait()
        sender.send(b"lost")
        outcome("a user timeout:", sender)
        outcome("keep-alive:", probed)
    else:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        set_options(listener, KEEP_ALIVE)
        listener.bind(("0.0.0.0", int(sys.argv[2])))
        listener.listen()
        print("listens", flush=True)
        one, _ = listener.accept()
        wait()
        outcome("keep-alive of a listener:", one)


main()
