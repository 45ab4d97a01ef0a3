"""Runs a program under the restrictions of a systemd unit that need no systemd: under_unit.py UNIT PROGRAM ARGUMENTS...

System calls (by libseccomp), address families, the bounding set of capabilities, no_new_privs, the mask of new files.
Exit code 77: it cannot be done here.
"""

import ctypes
import os
import subprocess
import sys

ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | 1  # EPERM


class Comparison(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


def settings(unit):
    found = {}
    with open(unit) as lines:
        for line in lines:
            name, equals, value = line.strip().partition("=")
            if equals and not name.startswith("#"):
                found.setdefault(name, []).append(value)
    return found


def calls_of(word):
    """The system calls of a set, as systemd knows it."""
    if not word.startswith("@"):
        return {word}
    shown = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True).stdout
    words = [line.strip() for line in shown.splitlines()[1:]]
    return set().union(*(calls_of(one) for one in words if one and not one.startswith("#")))


def allowed(filters):
    calls = set()
    for line in filters:
        named = set().union(*(calls_of(word) for word in line.lstrip("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def restrict(calls, families):
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(REFUSE))
    for name in sorted(calls | {"execve"}):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0 or name == "socket":
            continue
        if library.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), number, 0) != 0:
            sys.exit(f"{name} cannot be allowed")
    socket = library.seccomp_syscall_resolve_name(b"socket")
    equal = 4
    for family in families:
        rule = Comparison(0, equal, family, 0)
        if library.seccomp_rule_add_array(context, ctypes.c_uint32(ALLOW), socket, 1, ctypes.byref(rule)) != 0:
            sys.exit("a family cannot be allowed")
    if library.seccomp_load(context) != 0:
        sys.exit("the filter cannot be loaded")


def main():
    import socket

    unit, program = settings(sys.argv[1]), sys.argv[2:]
    assert unit["NoNewPrivileges"] == ["yes"] and unit["SystemCallErrorNumber"] == ["EPERM"]
    capabilities = ",".join("+" + name.removeprefix("CAP_").lower() for name in unit["CapabilityBoundingSet"][0].split())
    calls = allowed(unit["SystemCallFilter"])
    families = [getattr(socket, name) for name in unit["RestrictAddressFamilies"][0].split()]
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        print("libseccomp.so.2 is not installed")
        sys.exit(77)
    if os.environ.get("UNDER_UNIT") is None:
        # The capabilities go before the filter comes, which refuses what `setpriv` does.
        bound = ["--bounding-set", "-all," + capabilities, "--inh-caps", "-all", "--ambient-caps", "-all", "--no-new-privs"]
        os.environ["UNDER_UNIT"] = "1"
        os.execvp("setpriv", ["setpriv", *bound, "--", sys.executable, *sys.argv])
    del os.environ["UNDER_UNIT"]
    os.umask(int(unit["UMask"][0], 8))
    restrict(calls, families)
    os.execvp(program[0], program)


main()
