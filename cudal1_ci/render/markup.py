"""Render text of others as GitHub-flavored Markdown that shows it and does nothing else.

    escaped("ask @octocat <img>")    code("a|b")    fenced(patch, "diff")

What a report says may come from a pull request or from a model. Shown as text it opens no element,
mentions no user, and links to nothing. GitHub makes some links only after Markdown was rendered
(mentions, `#12`, `GH-12`). A backslash does not stop these, so a zero-width space splits them.
Characters that are invisible or reverse the writing direction are removed; a code block names
them. Each function takes at most `max_chars` of a text, which limits its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import escape as html_escape

from cudal1_ci.render.prose import Piece, blocks_of, pieces_of

SPECIAL = re.compile(r"([\\`*_\[\]<>|~&#!{}$])")
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Control, format and other characters without a shape; not tabs and line breaks."""
LINKED = re.compile(r"@|#(?=\d)|gh-(?=\d)|:(?=//)|www(?=\.)", re.IGNORECASE)
"""After what GitHub looks for a name, a number or an address."""
SPLIT = "\u200b"
SPLIT_ENTITY = "&#8203;"


class Markdown(str):
    """Text that is Markdown already and must not be escaped again."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text unchanged, for an environment that escapes by itself."""
        return self


def cleaned(value: object, max_chars: int | None = None) -> str:
    """Remove invisible characters and cut the text to its maximum length."""
    text = str(value)
    is_cut = max_chars is not None and len(text) > max_chars
    if is_cut:
        text = text[:max_chars]
    text = UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return f"{text.rstrip()}…" if is_cut else text


def escaped(value: object, max_chars: int | None = None) -> Markdown:
    """Escape text onto one line, so that it is shown unchanged."""
    if isinstance(value, Markdown):
        return value
    return Markdown(_escaped(_one_line(value, max_chars)))


def prose(value: object, max_chars: int | None = None) -> Markdown:
    """Render our own sentences as paragraphs and lists."""
    text = ""
    for block in blocks_of(cleaned(value, max_chars)):
        line = _pieces(block.pieces).lstrip()
        # What would make a list, a rule or a heading of the line is text.
        line = re.sub(r"^([-+=])", r"\\\1", line)
        line = re.sub(r"^(\d+)([.)])", r"\1\\\2", line)
        text += f"\n- {line}" if block.is_item else f"\n\n{line}"
    return Markdown(text.strip("\n"))


def quoted(value: object, max_chars: int | None = None) -> Markdown:
    """Render sentences as a quotation."""
    lines = prose(value, max_chars).splitlines()
    return Markdown("\n".join(f"> {line}".rstrip() for line in lines))


def inline(value: object, max_chars: int | None = None) -> Markdown:
    """Render one of our own sentences on one line, with its code."""
    return Markdown(_pieces(pieces_of(_one_line(value, max_chars))))


def code(value: object, max_chars: int | None = None) -> Markdown:
    """Render text as a code span that is also valid in a table."""
    text = _one_line(value, max_chars)
    # Readers of tables differ in what a pipe behind two backslashes is.
    text = text.replace("\\|", f"\\{SPLIT}|").replace("|", "\\|")
    if not text:
        return Markdown()
    ticks = "`" * (1 + _longest_run(text))
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return Markdown(f"{ticks}{pad}{text}{pad}{ticks}")


def fenced(value: object, language: str = "") -> Markdown:
    """Render text as a block of code that names invisible characters."""
    text = str(value).replace("\r\n", "\n")
    text = UNSEEN.sub(lambda unseen: f"\\u{ord(unseen[0]):04x}", text)
    ticks = "`" * max(3, 1 + _longest_run(text))
    end = "" if text.endswith("\n") else "\n"
    return Markdown(f"{ticks}{language}\n{text}{end}{ticks}")


def html_text(value: object, max_chars: int | None = None) -> Markdown:
    """Render text inside an HTML element, such as a summary, on one line."""
    text = str(html_escape(_unlinked(_one_line(value, max_chars))))
    return Markdown(text.replace(SPLIT, SPLIT_ENTITY))


def _one_line(value: object, max_chars: int | None) -> str:
    return " ".join(cleaned(value, max_chars).split())


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", _unlinked(text)).replace(SPLIT, SPLIT_ENTITY)


def _unlinked(text: str) -> str:
    return LINKED.sub(rf"\g<0>{SPLIT}", text)


def _pieces(pieces: Iterable[Piece]) -> str:
    return "".join(code(p.text) if p.is_code else _escaped(p.text) for p in pieces)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
