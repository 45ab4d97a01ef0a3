"""Clients of memcached in threads: each sets and gets values of many sizes, several requests at once, and checks every byte."""

import hashlib
import socket
import sys
import threading

PORT = int(sys.argv[1])
SIZES = [0, 1, 100, 1400, 8192, 70_000, 1_000_000, 5_000_000]
total = hashlib.sha256()
digests = {}


def value(key, size):
    return (hashlib.sha256(key.encode()).digest() * (size // 32 + 1))[:size]


def client(number):
    digest = hashlib.sha256()
    with socket.create_connection(("127.0.0.1", PORT)) as stream, stream.makefile("rwb") as file:
        for turn in range(20):
            keys = [f"{number}-{turn}-{size}" for size in SIZES if size <= 100_000 or turn == 0]
            for key in keys:
                data = value(key, int(key.split("-")[2]))
                file.write(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(data), data))
            file.flush()
            for key in keys:
                assert file.readline() == b"STORED\r\n", key
            file.write(b"get %s\r\n" % " ".join(keys).encode())
            file.flush()
            for key in keys:
                words = file.readline().split()
                assert words[1].decode() == key, words
                data = file.read(int(words[3]))
                assert data == value(key, len(data)) and file.read(2) == b"\r\n", key
                digest.update(data)
            assert file.readline() == b"END\r\n"
        file.write(b"quit\r\n")
        file.flush()
        assert file.read() == b""
    digests[number] = digest.hexdigest()


threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for number in sorted(digests):
    total.update(digests[number].encode())
print(len(digests), "clients,", total.hexdigest())
