"""Parse a comment's command: the first of its lines that is one. Pure.

    /cudal1 run [SHA]                        measure the head again
    /cudal1 optimize [GLOB] [SHA]            look for faster code anywhere
    /cudal1 apply ID [SHA]                   make a proposal a draft pull request
    /cudal1 ack TARGET [SHA] REASON...       agree to a slowdown that was measured
    /cudal1 skip                             measure no further pushes
    /cudal1 help

A command begins its line. Quoted or indented text, and text in a block of code or in a hidden
comment, is no command: people paste text of others. `decision.py` decides whether to carry it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from cudal1_ci.github.sanitize import one_line
from cudal1_ci.records import Record

Verb = Literal["run", "optimize", "apply", "ack", "skip", "help"]

MAX_BODY = 65_536
MAX_REASON = 200
MAX_TARGET = 300

_COMMAND = re.compile(r"/cudal1(?P<rest>[ \t][^\n]*)?")
_FENCE = re.compile(r" {0,3}(?P<ticks>`{3,}|~{3,})")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ID = re.compile(r"[0-9a-f]{16}")
_GLOB = re.compile(r"[\w*?\[\]./!][\w*?\[\]./!+=-]{0,299}", re.ASCII)


class Command(Record, frozen=True, kw_only=True):
    """Hold a command. `verb` None is an unknown command, with only its `text`."""

    text: str
    """The line, as shown to a person."""
    verb: Verb | None = None
    sha: str | None = None
    """The head that was meant, where the command says so."""
    glob: str | None = None
    id: str | None = None
    target: str | None = None
    reason: str | None = None


def command_in(body: str) -> Command | None:
    """Return the command of a comment; None where there is none."""
    for line in _plain_lines(body[:MAX_BODY]):
        found = _COMMAND.fullmatch(line)
        if found:
            return _parse_command((found["rest"] or "").split(), one_line(line, 120))
    return None


def _parse_command(words: list[str], text: str) -> Command:
    """Return the command, without a verb where a word is extra, missing or of another form."""
    unknown = Command(text=text)
    verb, *others = words or [""]
    match verb:
        case "help" | "skip":
            return Command(text=text, verb=verb) if not others else unknown
        case "run":
            rest, sha = _split_sha(others)
            return Command(text=text, verb="run", sha=sha) if not rest else unknown
        case "optimize":
            rest, sha = _split_sha(others)
            if len(rest) > 1 or not all(_GLOB.fullmatch(word) for word in rest):
                return unknown
            glob = rest[0] if rest else None
            return Command(text=text, verb="optimize", sha=sha, glob=glob)
        case "apply":
            rest, sha = _split_sha(others)
            if len(rest) != 1 or not _ID.fullmatch(rest[0]):
                return unknown
            return Command(text=text, verb="apply", sha=sha, id=rest[0])
        case "ack":
            return _parse_acknowledgement(others, text) or unknown
    return unknown


def _split_sha(words: list[str]) -> tuple[list[str], str | None]:
    """Split the words into those before a final sha, and that sha."""
    if words and _SHA.fullmatch(words[-1]):
        return words[:-1], words[-1]
    return words, None


def _parse_acknowledgement(words: list[str], text: str) -> Command | None:
    """Parse a target and a reason; the sha comes before the reason, which has any words."""
    target, *others = words or [""]
    sha = others.pop(0) if others and _SHA.fullmatch(others[0]) else None
    reason = one_line(" ".join(others), MAX_REASON)
    if not target or len(target) > MAX_TARGET or not reason:
        return None
    return Command(text=text, verb="ack", sha=sha, target=target.strip("`"), reason=reason)


def _plain_lines(body: str) -> Iterator[str]:
    """Yield the lines that are shown as text of the comment's own."""
    fence: str | None = None
    is_hidden = False
    for line in body.replace("\r\n", "\n").split("\n"):
        ticks = _FENCE.match(line)
        if fence is not None:
            if ticks and line.strip() == line.strip()[0] * len(line.strip()):
                fence = None if ticks["ticks"].startswith(fence) else fence
        elif is_hidden:
            is_hidden = "-->" not in line
        elif ticks:
            fence = ticks["ticks"]
        else:
            is_hidden = "<!--" in line and "-->" not in line.rpartition("<!--")[2]
            yield line.rstrip(" \t")
