"""Find places of nodes in a Python text, in bytes."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Sequence

from cudal1_ci.propose.launch_config.number import Place


class PythonPlaces:
    """Map nodes of one text to places; lines end where `ast` ends them."""

    def __init__(self, text: str):
        self.lines = [line.encode() for line in io.StringIO(text, newline="")]
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def of(self, node: ast.expr, *, less: int = 0) -> Place:
        assert node.end_lineno is not None and node.end_col_offset is not None
        first = self.starts[node.lineno - 1] + node.col_offset
        return Place(first, self.starts[node.end_lineno - 1] + node.end_col_offset, less=less)

    def after(self, arguments: Sequence[ast.expr], name: str) -> Place:
        """Return the place for a new argument of that name. The new argument is on a line of its
        own if the last one is.
        """
        last = max(arguments, key=lambda one: (one.end_lineno, one.end_col_offset))
        end = self.of(last).end
        first_line = self.lines[last.lineno - 1]
        before = first_line[: last.col_offset].decode()
        named = f"{name} = " if before.endswith(" = ") else f"{name}="
        if not re.fullmatch(r"[ \t]*(\w+\s*=\s*)?", before):
            return Place(end, end, f", {named}")
        ending = first_line[len(first_line.rstrip(b"\r\n")) :].decode() or "\n"
        new_line = ending + before[: len(before) - len(before.lstrip())]
        following = self.lines[(last.end_lineno or 1) - 1][last.end_col_offset :]
        comma = re.match(rb"\s*,[ \t]*(#[^\r\n]*)?(?=[\r\n])", following)
        if comma is None:
            return Place(end, end, f",{new_line}{named}")
        return Place(end + comma.end(), end + comma.end(), f"{new_line}{named}", ",")
