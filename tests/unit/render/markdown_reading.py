"""What a reader of Markdown makes of it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from markdown_it.token import Token


def all_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Blocks and what is inside of their lines."""
    found = []
    for token in tokens:
        found += [token, *(token.children or [])]
    return found


def text_of(tokens: Sequence[Token]) -> str:
    """What GitHub looks for mentions in: all text outside of code, a line for each block."""
    lines = []
    for token in tokens:
        if token.type == "html_block":
            without_code = re.sub(r"<code>.*?</code>", " ", token.content)
            lines.append(html.unescape(re.sub(r"<[^>]*>", "", without_code)))
        elif token.type == "inline":
            lines.append(
                "".join(
                    " " if child.type in ("code_inline", "html_inline") else child.content
                    for child in token.children
                )
            )
    return "\n".join(lines)
