"""A Python text without the bodies that nobody asks for: parsed several times faster, same lines.

What is importable from a file is decided outside of methods, and most lines are inside of them. A
method (its first parameter is `self` or `cls`) keeps its head, as does a function that mentions no
computation; the body becomes `return` and empty lines. Only the text is looked at, so odd layouts
(a string or a bracket that continues left of the definition) can break the result: it does not
parse then, and the caller parses the whole file. What a skimmed tree cannot tell is whether the
bodies parse.

    skimmed(b"class A:\\n  def f(self):\\n    return 1\\n").text
    b"class A:\\n  def f(self): return\\n\\n"
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cudal1_ci.discover.tensor_functions import may_compute

# Possessive where it repeats single characters: a head that does not match is left alone at once.
# Not where it repeats groups, which Python before 3.11.5 gets wrong; their alternatives begin with
# different characters, so that there is little to go back to.
_DEFINITION = re.compile(
    rb"""
    ^(?P<indent>[ \t]*+)(?:async[ \t]++)?def[ \t]++(?P<name>\w++)[ \t]*+
    \(\s*+(?P<method>(?:self|cls)\b)?
    (?:[^()\#"'\n]|\n|\#[^\n]*+|"[^"\\\n]*+"|'[^'\\\n]*+'
      |\((?:[^()\#"'\\]|"[^"\\\n]*+"|'[^'\\\n]*+'|\([^()\#"']*+\))*\))*
    \)[ \t]*+(?:->[^\n\#]*?)?:[ \t]*+(?P<comment>\#[^\n]*+)?\n
    (?P<body>(?:(?P=indent)[ \t]++[^\n]*+\n|[ \t]*+(?:\#[^\n]*+)?\n)+)
    """,
    re.MULTILINE | re.VERBOSE,
)


@dataclass
class Skimmed:
    """The shortened text, and where the definitions really end."""

    text: bytes = b""
    ends: dict[int, int] = field(default_factory=dict)
    """The line of a `return` to the last line of its body."""


def skimmed(source: bytes, imported: frozenset[bytes] = frozenset()) -> Skimmed:
    """Shorten a text whose line ends are newlines. `imported`: see `may_compute`."""
    result = Skimmed()
    pieces: list[bytes] = []
    position, line = 0, 1
    for match in _DEFINITION.finditer(source):
        body = match["body"]
        if not can_be_dropped(match, imported):
            continue
        start, end = match.span("body")
        line += source.count(b"\n", position, start)
        pieces += source[position : start - 1], b" return\n" if match["comment"] is None else b"\n"
        num_lines = body.count(b"\n")
        if match["comment"] is not None:
            # The comment would swallow the statement: it goes to the first line of the body.
            pieces.append(match["indent"] + b" return\n" + b"\n" * (num_lines - 1))
            result.ends[line] = line + num_code_lines(body) - 1
        else:
            pieces.append(b"\n" * num_lines)
            result.ends[line - 1] = line + num_code_lines(body) - 1
        position = end
        line += num_lines
    pieces.append(source[position:])
    result.text = b"".join(pieces)
    return result


def can_be_dropped(definition: re.Match[bytes], imported: frozenset[bytes]) -> bool:
    """Whether a body is whole (no string runs out of it) and says nothing that is asked for."""
    body = definition["body"]
    if body.count(b'"""') % 2 or body.count(b"'''") % 2:
        return False
    if definition["name"] == b"forward":
        # Whether it is abstract is read from its tree.
        return b"return" in body and b"NotImplementedError" not in body
    is_method = definition["method"] is not None and definition["indent"] != b""
    return is_method or not may_compute(definition[0], imported)


def num_code_lines(body: bytes) -> int:
    """Lines up to the last one that is neither empty nor a comment."""
    lines = body.split(b"\n")[:-1]
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith(b"#")):
        lines.pop()
    return len(lines)
