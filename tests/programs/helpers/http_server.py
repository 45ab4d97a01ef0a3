"""python3's http.server with threads, HTTP/1.1, PUT and POST: http_server.py PORT FOLDER."""

import os
import shutil
import socket
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.refuse()
            return
        left = int(self.headers["Content-Length"])
        with open(self.translate_path(self.path), "wb") as file:
            while left:
                block = self.rfile.read(min(left, 1 << 16))
                if not block:
                    raise ConnectionError("the body ended early")
                file.write(block)
                left -= len(block)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def refuse(self):
        """Answers a body without a length, and closes when the client has. To close over what is unread resets the
        connection, and whether a client that still sends reads the answer before it is then a matter of time."""
        self.close_connection = True
        self.send_error(411)
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        while self.connection.recv(1 << 16):
            pass

    do_POST = do_PUT

    def copyfile(self, source, outputfile):
        shutil.copyfileobj(source, outputfile, 1 << 18)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, address):
        """A client that gave up is part of the test."""


port, folder = int(sys.argv[1]), sys.argv[2]
os.chdir(folder)
Server((os.environ.get("TEST_ADDRESS", "127.0.0.1"), port), Handler).serve_forever()
