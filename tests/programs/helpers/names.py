"""What a program is told about names: one line for each question."""

import ctypes
import os
import socket
import threading

ZONE = "world.test"


def ask(what, function, *arguments, **named):
    try:
        print(f"{what}: {function(*arguments, **named)}")
    except socket.gaierror as error:
        print(f"{what}: gaierror {error.errno}")
    except socket.herror as error:
        print(f"{what}: herror {error.errno}")


CANONICAL, CONFIGURED, MAPPED, ALL = (
    socket.AI_CANONNAME,
    socket.AI_ADDRCONFIG,
    socket.AI_V4MAPPED,
    socket.AI_ALL,
)
families = {"any": socket.AF_UNSPEC, "4": socket.AF_INET, "6": socket.AF_INET6}
flags = {
    "": 0,
    "canonical": CANONICAL,
    "configured": CONFIGURED,
    "mapped": MAPPED,
    "all": MAPPED | ALL | CONFIGURED,
    "numeric": socket.AI_NUMERICHOST,
}
hosts = [
    *(f"{name}.{ZONE}" for name in ["both", "four", "six", "alias", "away", "empty", "broken", "missing"]),
    f"both.{ZONE}.",
    f"ALIAS.{ZONE}",
    "four",
    "missing",
    "missing.elsewhere",
    "not a name",
    "a..b",
    "x" * 64,
    "10.7.0.2",
    "2001:db8::1",
    "localhost",
]
for host in hosts:
    for family, number in families.items():
        for flag, bits in flags.items():
            # Bytes go to the C library as they are.
            ask(f"{host} {family} {flag}", socket.getaddrinfo, host.encode(), 80, number, socket.SOCK_STREAM, 0, bits)
ask("services", socket.getaddrinfo, f"four.{ZONE}", "https")
ask("no such service", socket.getaddrinfo, f"four.{ZONE}", "no-such-service")
ask("datagrams", socket.getaddrinfo, f"four.{ZONE}", "domain", type=socket.SOCK_DGRAM)
many = socket.getaddrinfo(f"many.{ZONE}", 80, type=socket.SOCK_STREAM)
print("many:", len(many), sorted(many)[:2], sorted(many)[-1])
for host in [f"alias.{ZONE}", f"six.{ZONE}", f"empty.{ZONE}", f"missing.{ZONE}", f"broken.{ZONE}", f"many.{ZONE}", "four"]:
    ask(f"gethostbyname {host}", socket.gethostbyname, host)
    ask(f"gethostbyname_ex {host}", socket.gethostbyname_ex, host)
for address in ["10.7.0.2", "10.7.0.3"]:
    ask(f"gethostbyaddr {address}", socket.gethostbyaddr, address)
    for flag in [0, socket.NI_NAMEREQD, socket.NI_NUMERICSERV, socket.NI_NUMERICHOST]:
        ask(f"getnameinfo {address} {flag}", socket.getnameinfo, (address, 443), flag)


class Entry(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("aliases", ctypes.POINTER(ctypes.c_char_p)),
        ("family", ctypes.c_int),
        ("length", ctypes.c_int),
        ("addresses", ctypes.POINTER(ctypes.POINTER(ctypes.c_ubyte))),
    ]


library = ctypes.CDLL(None)
library.gethostbyname2.restype = ctypes.POINTER(Entry)
library.gethostbyname.restype = ctypes.POINTER(Entry)
library.__h_errno_location.restype = ctypes.POINTER(ctypes.c_int)


def shown(found):
    if not found:
        return f"h_errno {library.__h_errno_location()[0]}"
    entry = found.contents
    aliases, addresses = [], []
    while entry.aliases[len(aliases)]:
        aliases.append(entry.aliases[len(aliases)])
    while entry.addresses[len(addresses)]:
        addresses.append(bytes(entry.addresses[len(addresses)][: entry.length]).hex())
    return entry.name, aliases, entry.family, addresses


for host in [f"alias.{ZONE}", f"six.{ZONE}", f"empty.{ZONE}", f"missing.{ZONE}", f"broken.{ZONE}", "10.7.0.2"]:
    name = host.encode()
    print("static", host, shown(library.gethostbyname(name)))
    for family in (socket.AF_INET, socket.AF_INET6):
        print("static", host, family, shown(library.gethostbyname2(name, family)))


def reentrant(host, room):
    entry, result, error = Entry(), ctypes.POINTER(Entry)(), ctypes.c_int(0)
    buffer = ctypes.create_string_buffer(room)
    code = library.gethostbyname_r(
        host.encode(), ctypes.byref(entry), buffer, ctypes.c_size_t(room), ctypes.byref(result), ctypes.byref(error)
    )
    return code, shown(result) if result else error.value


for host, room in [("both", 8192), ("both", 20), ("missing", 8192), ("empty", 8192)]:
    print("reentrant", host, room, reentrant(f"{host}.{ZONE}", room))


def raw(function, host, kind, room):
    answer = ctypes.create_string_buffer(room)
    length = getattr(library, function)(host.encode(), 1, kind, answer, room)
    if length < 0:
        return f"h_errno {library.__h_errno_location()[0]}"
    # Without its number.
    return length, answer.raw[2 : min(length, room)].hex()


for function, host in [("res_query", f"text.{ZONE}"), ("res_query", "text"), ("res_search", "text")]:
    for kind in (16, 15):
        print(function, host, kind, raw(function, host, kind, 4096))
print("res_search", raw("res_search", f"alias.{ZONE}", 1, 4096), raw("res_search", f"away.{ZONE}", 28, 4096))

# Many at once, and no number is left open.

before = os.listdir("/proc/self/fd")
results = []


def repeatedly():
    for _ in range(20):
        results.append(sorted(socket.getaddrinfo(f"alias.{ZONE}", 80, type=socket.SOCK_STREAM)))


threads = [threading.Thread(target=repeatedly) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads:", len(results), all(result == results[0] for result in results))
left = [number for number in os.listdir("/proc/self/fd") if number not in before and int(number) < 1000]
print("left open:", left)
