"""older_libc.py LIBC COPY: a C library as one of 2.28 would be, for what the preloaded library asks of it: without the functions that came later,
and without dlsym, which lay in libdl.so.2. Prints where dlsym is, counted from printf."""

import struct
import sys

LATER = {
    "dlsym", "gettid", "fstat", "fstat64", "stat", "stat64", "fstatat", "fstatat64", "close_range", "closefrom", "epoll_pwait2",
    "res_query", "res_search", "res_nquery", "res_nsearch",
}
DYNSYM, SECTION, SYMBOL = 11, struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")

data = bytearray(open(sys.argv[1], "rb").read())
sections_at, = struct.unpack_from("<Q", data, 0x28)
size, count = struct.unpack_from("<HH", data, 0x3A)
sections = [SECTION.unpack_from(data, sections_at + size * index) for index in range(count)]
symbols = next(section for section in sections if section[1] == DYNSYM)
names_at = sections[symbols[6]][4]
values = {}
for at in range(symbols[4], symbols[4] + symbols[5], SYMBOL.size):
    name_at, _, _, _, value, _ = SYMBOL.unpack_from(data, at)
    name = data[names_at + name_at:data.index(0, names_at + name_at)].decode()
    values[name] = value
    if name in LATER:
        # Found by nobody, as the name is empty.
        struct.pack_into("<I", data, at, 0)
open(sys.argv[2], "wb").write(data)
print(values["dlsym"] - values["printf"])
