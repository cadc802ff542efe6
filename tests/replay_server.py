"""A real server that answers as it is told: OpenAI's protocol, spoken well or badly.

    with replay_server(answers=["first", Status(429, retry_after="1"), "second"]) as server:
        client = OpenAI(base_url=server.url, api_key="none")

Answers are given in their order, the last of them again and again; with `by_seed` the answer is the
one at the request's seed. A text is a good answer; the classes below are bad ones, one for each way
in which servers fail. `server.requests` holds what was asked, with the headers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Good:
    """A text, with what else a reply says of it."""

    text: str
    finish_reason: str = "stop"
    has_usage: bool = True
    as_document: bool = False
    """Whatever is asked for, not a stream."""
    pause_s: float = 0.0
    """Before it begins."""


@dataclass(frozen=True)
class Status:
    """An error of HTTP."""

    code: int
    message: str = "no"
    retry_after: str | None = None
    html: bool = False


@dataclass(frozen=True)
class Body:
    """Anything at all, with 200."""

    data: bytes
    content_type: str = "application/json"


@dataclass(frozen=True)
class Rejects:
    """400 for requests with that parameter; without it, the answer."""

    parameter: str
    answer: Good
    message: str = "Unrecognized request argument supplied: {}"


@dataclass(frozen=True)
class Hangs:
    """Nothing, or nothing after the headers."""

    after_headers: bool = False


@dataclass(frozen=True)
class Trickles:
    """A token, every tenth of a second, without end."""


@dataclass(frozen=True)
class Dies:
    """The connection breaks in the middle of the stream; or the stream just ends there."""

    politely: bool = False


Reply = str | Good | Status | Body | Rejects | Hangs | Trickles | Dies


@dataclass
class Replay:
    """The server while it runs."""

    url: str
    answers: Sequence[Reply]
    by_seed: bool
    models: Sequence[str]
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the requests for completions, with their headers (in small letters) under
    `headers`."""
    num_under_way: int = 0
    most_under_way: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, request: dict[str, Any]) -> Reply:
        """The answer to a request, which is noted."""
        with self.lock:
            place = request["seed"] if self.by_seed else len(self.requests)
            self.requests.append(request)
            return self.answers[min(place, len(self.answers) - 1)]

    @contextmanager
    def under_way(self) -> Iterator[None]:
        with self.lock:
            self.num_under_way += 1
            self.most_under_way = max(self.most_under_way, self.num_under_way)
        try:
            yield
        finally:
            with self.lock:
                self.num_under_way -= 1


@contextmanager
def replay_server(
    answers: Sequence[Reply] = ("ok",),
    *,
    by_seed: bool = False,
    models: Sequence[str] = ("replay",),
    port: int = 0,
) -> Iterator[Replay]:
    """The server, inside of a `with`."""

    class Bound(Handler):
        pass

    server = Server(("127.0.0.1", port), Bound)
    Bound.replay = Replay(
        f"http://127.0.0.1:{server.server_address[1]}/v1", answers, by_seed, models
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield Bound.replay
    finally:
        Bound.replay.is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address) -> None:
        """A client that went away is what the tests are about."""


class Handler(BaseHTTPRequestHandler):
    replay: Replay
    protocol_version = "HTTP/1.1"
    wbufsize = 0
    disable_nagle_algorithm = True

    def log_message(self, *_) -> None:
        """Tests are quiet."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self.document({})
        elif self.path == "/v1/models":
            listed = [
                {"id": name, "object": "model", "created": 0, "owned_by": "tests"}
                for name in self.replay.models
            ]
            self.document({"object": "list", "data": listed})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request["headers"] = {name.lower(): value for name, value in self.headers.items()}
        reply = self.replay.next(request)
        with self.replay.under_way():
            self.reply(reply, request)

    def reply(self, reply: Reply, request: dict[str, Any]) -> None:
        match reply:
            case str():
                self.good(Good(reply), request)
            case Good():
                self.good(reply, request)
            case Rejects(parameter=name) if name in request:
                self.failed(Status(400, reply.message.format(name)))
            case Rejects():
                self.good(reply.answer, request)
            case Status():
                self.failed(reply)
            case Body():
                self.whole(200, reply.data, reply.content_type)
            case Hangs():
                if reply.after_headers:
                    self.begin_stream()
                self.replay.is_over.wait(30)
                self.close_connection = True
            case Trickles():
                self.begin_stream()
                while not self.replay.is_over.wait(0.1):
                    self.event(chunk("x "))
            case Dies():
                self.begin_stream()
                self.event(chunk("the first half "))
                if reply.politely:
                    self.end_stream()
                else:
                    self.wfile.write(b"10\r\nhalf of a ch")
                self.close_connection = True

    def good(self, reply: Good, request: dict[str, Any]) -> None:
        time.sleep(reply.pause_s)
        size = CHARS_PER_TOKEN
        tokens = [reply.text[i : i + size] for i in range(0, len(reply.text), size)]
        usage = {"prompt_tokens": 7, "completion_tokens": len(tokens), "total_tokens": 7}
        if not request.get("stream") or reply.as_document:
            message = {"role": "assistant", "content": reply.text}
            choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
            found = {"id": "1", "object": "chat.completion", "choices": [choice]}
            self.document({**found, "usage": usage} if reply.has_usage else found)
            return
        self.begin_stream()
        for token in tokens:
            self.event(chunk(token))
        self.event(chunk(None, reply.finish_reason))
        if reply.has_usage and request.get("stream_options", {}).get("include_usage"):
            self.event({"choices": [], "usage": usage})
        self.part(b"data: [DONE]\n\n")
        self.end_stream()

    def failed(self, reply: Status) -> None:
        if reply.html:
            page = f"<html><body><h1>{reply.message}</h1></body></html>".encode()
            self.whole(reply.code, page, "text/html")
            return
        error = {"error": {"message": reply.message, "type": "t", "param": None, "code": None}}
        headers = {"Retry-After": reply.retry_after} if reply.retry_after else {}
        self.whole(reply.code, json.dumps(error).encode(), "application/json", headers)

    def document(self, value: Any) -> None:
        self.whole(200, json.dumps(value).encode(), "application/json")

    def whole(
        self, code: int, data: bytes, content_type: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, value: Any) -> None:
        self.part(b"data: " + json.dumps(value).encode() + b"\n\n")

    def part(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")


def chunk(text: str | None, finish_reason: str | None = None) -> dict[str, Any]:
    """An event of a stream."""
    delta = {} if text is None else {"content": text}
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
