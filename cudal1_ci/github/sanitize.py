"""Make text of a report safe outside of Markdown: titles, annotations, the log.

The report is hostile data. Control characters and those that turn text around are removed, mentions
are broken, lengths are capped. A path that needs any of this is not used at all, since a changed
path names another file.
"""

from __future__ import annotations

import re
import unicodedata

MAX_PATH = 1024
_PART = r"[^\s/\\:*?\"<>|](?:[^/\\:*?\"<>|]{0,253}[^\s/\\:*?\"<>|])?"
_ORDINARY_PATH = re.compile(rf"{_PART}(?:/{_PART})*")


def plain(text: str, max_chars: int) -> str:
    """Return text in lines, without hidden characters, at most `max_chars` long."""
    shown = "".join(c if c == "\n" or is_visible(c) else " " for c in text[: 2 * max_chars])
    # A zero-width space splits the word that would be taken for a mention.
    shown = shown.replace("@", "@\u200b").strip()
    return shown if len(shown) <= max_chars else f"{shown[: max_chars - 1]}…"


def one_line(text: str, max_chars: int) -> str:
    """Return the text as `plain` does, in one line."""
    return plain(" ".join(text[: 4 * max_chars].split()), max_chars)


def is_visible(character: str) -> bool:
    """Return whether a character is visible.

    A control, format, surrogate, private or unassigned character is not, nor is a line separator.
    """
    category = unicodedata.category(character)
    return not category.startswith("C") and category not in ("Zl", "Zp")


def ordinary_path(path: str) -> str | None:
    """Return a relative path of visible characters that every system takes, unchanged; None for any
    other. It may have spaces, `@` and brackets.
    """
    if len(path) > MAX_PATH or _ORDINARY_PATH.fullmatch(path) is None:
        return None
    if not all(c == " " or (is_visible(c) and not c.isspace()) for c in path):
        return None
    return None if {".", "..", ".git"} & set(path.split("/")) else path


def log_line(text: str) -> str:
    """Return a message as one line of a log, where its own second line could be a command."""
    return one_line(text, 2000).replace("::", ":\u200b:")
