"""Forward requests to the servers of models, with the keys that only this process has.

    POST http://127.0.0.1:PORT/ROUTE/chat/completions   Authorization: Bearer SECRET@127.0.0.1:PORT

A reply is passed on line by line, without the key: a server may repeat it. A reply that breaks off
breaks off here too.
"""

from __future__ import annotations

import hmac
import json
import os
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cudal1_ci.propose.llm.servers.client import sdk, transport_error
from cudal1_ci.propose.llm.servers.secrecy import Secrets

MAX_LINE_BYTES = 2**16
"""A longer line is passed on in parts. Each event of a stream is a line of its own."""
MAX_REQUEST_BYTES = 2**26
PASSED_ON = ("content-type", "retry-after", "retry-after-ms")
"""Headers of a reply that the client of this tool reads."""


class RelayServer(ThreadingHTTPServer):
    """Listen on the loopback. `routes` holds URL and key by the first part of a path."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, routes: dict[str, tuple[str, str]], secret: str):
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes = routes
        self.expected = f"Bearer {secret}@127.0.0.1:{self.server_address[1]}"

    def serve_until_closed(self, descriptor: int) -> None:
        """Serve until the other end of the pipe is closed."""
        openai = sdk()
        self.client, self.broken = openai.DefaultHttpxClient(), transport_error(openai)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        os.read(descriptor, 1)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing: a client may go away at any time."""


class Handler(BaseHTTPRequestHandler):
    """Forward one request."""

    server: RelayServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.forward()

    def do_POST(self) -> None:
        self.forward()

    def log_message(self, *_: Any) -> None:
        """Write nothing."""

    def forward(self) -> None:
        """Send the request on with the key, if it has this run's secret and a known route."""
        given = self.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), self.server.expected.encode()):
            return self.fail(401, "this relay answers only the program that started it")
        name, _, rest = self.path.removeprefix("/").partition("/")
        length = int(self.headers.get("content-length") or 0)
        if name not in self.server.routes or length > MAX_REQUEST_BYTES:
            return self.fail(404, "this relay knows no such server")
        url, key = self.server.routes[name]
        headers = {
            "authorization": f"Bearer {key}",
            "accept-encoding": "identity",
            "content-type": self.headers.get("content-type", "application/json"),
        }
        request = self.server.client.build_request(
            self.command, f"{url}/{rest}", content=self.rfile.read(length), headers=headers
        )
        try:
            response = self.server.client.send(request, stream=True)
        except self.server.broken as error:
            text = f"the connection failed: {type(error).__name__} {error}"
            return self.fail(502, Secrets([key]).hidden(text))
        try:
            self.pass_on(response, Secrets([key]))
        except self.server.broken:
            self.close_connection = True  # the last chunk is missing, as it was for this process
        finally:
            response.close()

    def pass_on(self, response: Any, secrets: Secrets) -> None:
        """Write the reply, line by line."""
        self.send_response(response.status_code)
        for name in PASSED_ON:
            if name in response.headers:
                self.send_header(name, secrets.hidden(response.headers[name]))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines(response.iter_raw()):
            # Each byte is a character here, so that any text comes out as it went in.
            part = secrets.hidden(line.decode("latin-1")).encode("latin-1")
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def fail(self, code: int, message: str) -> None:
        """Answer as servers do that speak OpenAI's protocol."""
        body = json.dumps({"error": {"message": message}}).encode()
        self.close_connection = True
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a reply, each with its end, when they are complete."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        if whole:
            yield b"\n".join(whole) + b"\n"
        if len(rest) > MAX_LINE_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest
