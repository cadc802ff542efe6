"""Parse the bytes of one reply into an answer, or a failure.

    completion = Completion(max_tokens=2048)
    for data in reply:
        if completion.feed(data):
            break
    completion.answer()

The parser reads a stream of events or a plain document, since some servers send a document instead
of a stream. It reads bytes itself, unlike the SDK: only so is the size of one event limited, and a
page of HTML recognized. It knows no network.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from cudal1_ci.propose.llm.servers import Answer, Failure

MAX_CHARS_PER_TOKEN = 16
"""Code has three to four characters a token. A server with more than this ignores `max_tokens`."""
MAX_BYTES_PER_TOKEN = 4096
"""An event of one token is some 300 bytes; ten times as much with ids and fingerprints."""
MIN_MAX_BYTES = 64 * 1024

LOOP_WORDS = 256
LOOP_PERIOD = 8
"""The longest repeated group of words. An answer fails if its last 256 words repeat one group of
at most 8, 32 times or more. Longer groups are left to `max_tokens`: an unrolled loop of code
looks like them."""
WORD = re.compile(r"\w{1,8}|[^\w\s]|\s{8}")
"""A word about as long as a token; servers count in tokens."""
LOOP_CHARS = 16 * LOOP_WORDS
CHECK_CHARS = 512
"""Characters between two checks for a loop."""

EVENT_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
MAX_SHOWN_CHARS = 300

Count = Annotated[int, msgspec.Meta(ge=0)]


class Usage(msgspec.Struct):
    """The server's count of tokens."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class Content(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    """A choice: `delta` of an event, `message` of a document."""

    delta: Content | None = None
    message: Content | None = None
    finish_reason: str | None = None
    index: int = 0


class Piece(msgspec.Struct):
    """An event or a document, with only the fields that are read."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class Completion:
    """Read one reply piece by piece."""

    def __init__(self, max_tokens: int):
        self.text = ""
        self._max_chars = MAX_CHARS_PER_TOKEN * max_tokens
        self._max_bytes = max(MIN_MAX_BYTES, MAX_BYTES_PER_TOKEN * max_tokens)
        self._num_bytes = 0
        self._num_pieces = 0
        self._checked_chars = 0
        self._rest = bytearray()
        self._is_stream: bool | None = None
        self._has_choices = False
        self._is_done = False
        self._finish_reason: str | None = None
        self._usage = Usage()
        self._failure: tuple[Failure, str] | None = None

    @property
    def num_tokens(self) -> int:
        """Return the completion tokens: the server's count, else an estimate on the high side."""
        if self._usage.completion_tokens is not None:
            return self._usage.completion_tokens
        return max(self._num_pieces, len(self.text) // 3)

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; return True if the answer is complete."""
        self._num_bytes += len(data)
        self._rest += data
        if self._is_stream is None and len(self._rest.lstrip()) >= max(map(len, EVENT_STARTS)):
            self._is_stream = self._rest.lstrip().startswith(EVENT_STARTS)
        if self._is_stream:
            *lines, rest = self._rest.split(b"\n")
            self._rest = rest
            for line in lines:
                self._read_line(bytes(line))
        if self._num_bytes > self._max_bytes:
            self._fail("too_long", f"more than {self._max_bytes} bytes for one answer")
        return self._is_done or self._failure is not None

    def answer(self) -> Answer:
        """Return the result when the reply has ended or is long enough."""
        if self._failure is None:
            self._end()
        if self._failure is not None:
            kind, message = self._failure
            return Answer(
                failure=kind,
                message=message,
                prompt_tokens=self._usage.prompt_tokens,
                completion_tokens=self._usage.completion_tokens,
            )
        return Answer(
            text=self.text,
            finish_reason=self._finish_reason,
            prompt_tokens=self._usage.prompt_tokens,
            completion_tokens=self._usage.completion_tokens,
        )

    def _end(self) -> None:
        """Handle the end of the reply: decide whether it is an answer."""
        if not self._is_stream:
            self._read(bytes(self._rest))
        elif self._rest:
            self._read_line(bytes(self._rest))
        if self._failure is not None:
            return
        if not self._has_choices:
            self._fail("garbage", "the reply has no choices")
        elif self._is_stream and not self._is_done and self._finish_reason is None:
            self._fail("server", "the reply broke off in the middle")
        elif not self.text.strip():
            self._fail("empty", f"no text (finish_reason {self._finish_reason})")
        else:
            self._check_text(at_once=True)

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"data:") and not self._is_done:
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                self._is_done = True
            elif data:
                self._read(data)

    def _read(self, data: bytes) -> None:
        if self._failure is not None:
            return
        try:
            piece = msgspec.json.decode(data, type=Piece)
        except (ValueError, RecursionError):
            self._fail("garbage", f"not the protocol: {shown(data.decode(errors='replace'))}")
            return
        if bytes(piece.error) != b"null":
            said = bytes(piece.error).decode(errors="replace")
            self._fail("server", f"the server answered: {shown(said)}")
            return
        self._usage = piece.usage or self._usage
        for choice in piece.choices or ():
            self._has_choices = True
            content = choice.delta or choice.message
            if choice.index == 0:
                self._finish_reason = choice.finish_reason or self._finish_reason
                self.text += (content.content if content else None) or ""
                self._num_pieces += 1
        self._check_text(at_once=False)

    def _check_text(self, *, at_once: bool) -> None:
        if len(self.text) > self._max_chars:
            self._fail("too_long", f"more than {self._max_chars} characters")
        elif at_once or len(self.text) - self._checked_chars >= CHECK_CHARS:
            self._checked_chars = len(self.text)
            loop = repeated(self.text)
            if loop is not None:
                self._fail("degenerate", f"the same words again and again: {shown(loop)}")

    def _fail(self, kind: Failure, message: str) -> None:
        """Record a failure; the first one counts."""
        self._failure = self._failure or (kind, message)


def repeated(text: str) -> str | None:
    """Return the few words that the end of a text repeats; None if it does not repeat."""
    words = WORD.findall(text[-LOOP_CHARS:])[-LOOP_WORDS:]
    if len(words) < LOOP_WORDS:
        return None
    for period in range(1, LOOP_PERIOD + 1):
        if words[period:] == words[:-period]:
            return " ".join(words[:period])
    return None


def shown(text: str) -> str:
    """Return a server's words on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN_CHARS else line[:MAX_SHOWN_CHARS] + "…"
