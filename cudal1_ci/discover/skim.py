"""Drop unneeded bodies from a Python text: it parses several times faster, with the same lines.

Importable names are defined outside of methods, and most lines are inside methods. A method (its
first parameter is `self` or `cls`) keeps its head, and so does a function that mentions no
computation. The body becomes `return` and empty lines. Only the text is read, so odd layouts can
break the result, such as a string or a bracket that continues left of the definition. A broken
result does not parse, and the caller parses the whole file. A skimmed tree does not show whether
the bodies parse.

    skimmed(b"class A:\\n  def f(self):\\n    return 1\\n").text
    b"class A:\\n  def f(self): return\\n\\n"
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cudal1_ci.discover.tensor_functions import may_compute

# Possessive for repeats of single characters: a head that does not match is left at once. Not
# for repeats of groups, which Python before 3.11.5 gets wrong. Their alternatives begin with
# different characters, so there is little backtracking.
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
    """Hold the shortened text and the real ends of its definitions."""

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
            # The comment would hide the statement, which goes to the first line of the body.
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
    """Return whether a body is complete (no string runs past it) and holds nothing needed."""
    body = definition["body"]
    if body.count(b'"""') % 2 or body.count(b"'''") % 2:
        return False
    if definition["name"] == b"forward":
        # Its tree shows whether it is abstract.
        return b"return" in body and b"NotImplementedError" not in body
    is_method = definition["method"] is not None and definition["indent"] != b""
    return is_method or not may_compute(definition[0], imported)


def num_code_lines(body: bytes) -> int:
    """Count lines up to the last one that is neither empty nor a comment."""
    lines = body.split(b"\n")[:-1]
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith(b"#")):
        lines.pop()
    return len(lines)
