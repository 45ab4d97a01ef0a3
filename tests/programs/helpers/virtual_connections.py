"""Asks the daemon at a socket how many connections the programs attached now accepted through memory."""

import json
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(5)
    connection.connect(sys.argv[1] + ".control")
    connection.sendall(b'"status"\n')
    with connection.makefile() as answer:
        status = json.loads(answer.readline())["status"]
print(sum(program["accepts"] for program in status["programs"]))
