"""Text of a report that is shown outside of Markdown: titles, annotations, the log.

The report is hostile data. Control characters and those that turn text around are removed, mentions
are broken, lengths are capped, and paths that need any of it are not used at all, since a path that
was changed names another file.
"""

from __future__ import annotations

import re
import unicodedata

MAX_PATH = 1024
_ORDINARY_PATH = re.compile(r"[\w.+=-]+(?:/[\w.+=-]+)*")


def plain(text: str, max_chars: int) -> str:
    """Text in lines, without what is not seen; at most so many characters."""
    shown = "".join(c if c == "\n" or is_visible(c) else " " for c in text[: 2 * max_chars])
    # A zero-width space splits the word that would be taken for a mention.
    shown = shown.replace("@", "@\u200b").strip()
    return shown if len(shown) <= max_chars else f"{shown[: max_chars - 1]}…"


def one_line(text: str, max_chars: int) -> str:
    """As `plain`, in one line."""
    return plain(" ".join(text[: 4 * max_chars].split()), max_chars)


def is_visible(character: str) -> bool:
    """Not a control, format, surrogate, private or unassigned character, and no line separator."""
    category = unicodedata.category(character)
    return not category.startswith("C") and category not in ("Zl", "Zp")


def ordinary_path(path: str) -> str | None:
    """A relative path of ordinary characters, as it is; None for any other."""
    if len(path) > MAX_PATH or _ORDINARY_PATH.fullmatch(path) is None:
        return None
    return None if {".", "..", ".git"} & set(path.split("/")) else path


def log_line(text: str) -> str:
    """A message as one line of a log in which a line of its own could be a command."""
    return one_line(text, 2000).replace("::", ":\u200b:")
