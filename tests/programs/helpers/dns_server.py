"""A DNS server for a fixed zone, over UDP and TCP: ADDRESS PORT FIRST [MANNER]; names lead to FIRST.

The zone is world.test. Names within have addresses (`both`, `four`, `six`, `many`), lead on (`alias` over `link` to `both`), have
neither (`empty`), or fail (`broken`). All others do not exist. The name of an address is `reverse.world.test`.

MANNER: `closing`, the connection ends with each answer; `silent`, no answer; `garbage`, bytes that are none; `tcp`, no UDP.
"""

import ipaddress
import os
import socket
import struct
import sys
import threading

A, CNAME, PTR, TXT, AAAA = 1, 5, 12, 16, 28
SERVFAIL, NXDOMAIN = 2, 3
ADDRESS, PORT, FIRST = sys.argv[1], int(sys.argv[2]), sys.argv[3]
MANNER = sys.argv[4] if len(sys.argv) > 4 else ""
ZONE = {
    "both": [(A, FIRST), (AAAA, "2001:db8:7::2")],
    "four": [(A, FIRST)],
    "six": [(AAAA, "2001:db8:7::2"), (AAAA, "fd00:7::2")],
    "many": [(A, f"10.7.{n >> 8}.{n & 255}") for n in range(300)],
    "alias": [(CNAME, "link.world.test")],
    "link": [(CNAME, "both.world.test")],
    "away": [(CNAME, "missing.world.test")],
    "text": [(TXT, "words"), (TXT, "more words")],
    "empty": [],
}


def wire(name):
    labels = [label.encode() for label in name.split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def record(owner, kind, value):
    if kind in (CNAME, PTR):
        data = wire(value)
    elif kind == TXT:
        data = bytes([len(value)]) + value.encode()
    else:
        data = ipaddress.ip_address(value).packed
    return wire(owner) + struct.pack("!HHIH", kind, 1, 60, len(data)) + data


def read_name(message, at):
    labels = []
    while message[at]:
        labels.append(message[at + 1 : at + 1 + message[at]].decode())
        at += 1 + message[at]
    return ".".join(labels), at + 1


def records_of(name, kind):
    """The code of an answer, and its records."""
    name = name.lower()
    if name.endswith(".arpa"):
        wanted = ipaddress.ip_address(FIRST).reverse_pointer
        return (0, [record(name, PTR, "reverse.world.test")]) if name == wanted else (NXDOMAIN, [])
    host, _, zone = name.partition(".")
    if zone == "world.test" and host == "broken":
        return SERVFAIL, []
    if zone != "world.test" or host not in ZONE:
        return NXDOMAIN, []
    records = []
    for known, value in ZONE[host]:
        if known == CNAME:
            code, behind = records_of(value, kind)
            return code, [record(name, CNAME, value), *behind]
        if known == kind:
            records.append(record(name, kind, value))
    return 0, records


def answer(message, most):
    number, flags = struct.unpack_from("!HH", message)
    name, end = read_name(message, 12)
    kind = struct.unpack_from("!H", message, end)[0]
    code, records = records_of(name, kind)
    body = b"".join(records)
    if 12 + end + 4 + len(body) > most:
        # Truncated: to be asked over TCP.
        code, records, body = 0x200, [], b""
    head = struct.pack("!HHHHHH", number, 0x8080 | (flags & 0x100) | code, 1, len(records), 0, 0)
    return head + message[12 : end + 4] + body


def serve_udp(server):
    while True:
        message, peer = server.recvfrom(4096)
        server.sendto(answer(message, 512), peer)


def serve_stream(stream):
    with stream, stream.makefile("rb") as file:
        while len(length := file.read(2)) == 2:
            message = file.read(struct.unpack("!H", length)[0])
            if MANNER == "silent":
                continue
            reply = os.urandom(400) if MANNER == "garbage" else answer(message, 65535)
            stream.sendall(struct.pack("!H", len(reply)) + reply)
            if MANNER == "closing":
                return


family = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET
if not MANNER:
    udp = socket.socket(family, socket.SOCK_DGRAM)
    udp.bind((ADDRESS, PORT))
    threading.Thread(target=serve_udp, args=(udp,), daemon=True).start()
tcp = socket.socket(family, socket.SOCK_STREAM)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
tcp.bind((ADDRESS, PORT))
tcp.listen(64)
while True:
    threading.Thread(target=serve_stream, args=(tcp.accept()[0],), daemon=True).start()
