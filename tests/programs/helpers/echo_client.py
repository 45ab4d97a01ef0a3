"""Echo clients: twelve connections at once, seeded sizes, every byte checked: echo_client.py KIND PORT FOLDER."""

import asyncio
import hashlib
import os
import random
import socket
import ssl
import sys
import threading

kind, port = sys.argv[1], int(sys.argv[2])
ADDRESS = (os.environ.get("TEST_ADDRESS", "127.0.0.1"), port)
CONNECTIONS = 12


def blocks(number):
    """About two megabytes in blocks of very different sizes, the same for the same number."""
    source = random.Random(number)
    left = 2_000_000 + number
    while left:
        size = min(left, source.choice((1, 7, 64, 500, 4096, 65536, 300_000)))
        yield source.randbytes(size)
        left -= size


def expected(number):
    digest = hashlib.sha256()
    for block in blocks(number):
        digest.update(block)
    return digest.hexdigest()


def by_thread(number, results):
    digest = hashlib.sha256()
    with socket.create_connection(ADDRESS) as connection:

        def send():
            for block in blocks(number):
                connection.sendall(block)
            connection.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        while block := connection.recv(random.choice((100, 5000, 1 << 17))):
            digest.update(block)
        sender.join()
    results[number] = digest.hexdigest()


def threads():
    results = {}
    running = [threading.Thread(target=by_thread, args=(number, results)) for number in range(CONNECTIONS)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return results


async def by_asyncio(number, context, results):
    reader, writer = await asyncio.open_connection(*ADDRESS, ssl=context)
    digest = hashlib.sha256()
    length = sum(map(len, blocks(number)))

    async def send():
        for block in blocks(number):
            writer.write(block)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    sending = asyncio.create_task(send())
    while length:
        block = await reader.read(1 << 16)
        if not block:
            break
        digest.update(block)
        length -= len(block)
    await sending
    writer.close()
    await writer.wait_closed()
    results[number] = digest.hexdigest()


async def asyncio_all(context):
    results = {}
    await asyncio.gather(*(by_asyncio(number, context, results) for number in range(CONNECTIONS)))
    return results


def tls_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


if kind == "threads":
    results = threads()
else:
    results = asyncio.run(asyncio_all(tls_context() if kind == "asyncio-tls" else None))
right = sum(results.get(number) == expected(number) for number in range(CONNECTIONS))
print(right, "of", CONNECTIONS, "connections came back as sent")
sys.exit(right != CONNECTIONS)
