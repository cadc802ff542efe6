"""Splice a CUDA answer into a kernel that is a string of a Python file.

A string is replaced only if its text is its value, without escapes; others are refused.
"""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.splice.cuda import functions, with_kernel
from cudal1_ci.propose.target_file import parsed


def with_kernel_in_string(text: str, qualname: str, answer: str) -> str | Unusable:
    """Return a Python text with the answer's kernel in the string that holds it."""
    module = parsed(text)
    name = qualname.rpartition("::")[2]
    found = Strings(name)
    if module is not None:
        module.visit(found)
    if module is None or len(found.holding) != 1:
        return refused(name, f"{len(found.holding)} strings of the file define it")
    (string,) = found.holding
    value = string.raw_value
    if len(string.quote) != 3 or value != string.evaluated_value:
        return refused(name, "its string has escapes or is not in triple quotes")
    new = with_kernel(value, qualname, answer)
    if isinstance(new, Unusable):
        return new
    is_raw = "r" in string.prefix.lower()
    if string.quote in new or new.endswith(string.quote[0]) or ("\\" in new and not is_raw):
        return refused(name, "the code has backslashes or quotes that its string cannot hold")
    changed = string.with_changes(value=f"{string.prefix}{string.quote}{new}{string.quote}")
    replaced = module.deep_replace(string, changed)
    assert isinstance(replaced, cst.Module)
    return replaced.code


def refused(name: str, why: str) -> Unusable:
    return Unusable(
        kind="unsupported",
        message=f"`{name}` cannot be replaced in its string: {why}. Write the Python function that "
        "builds it instead.",
    )


class Strings(cst.CSTVisitor):
    """Find the strings that define a kernel."""

    def __init__(self, name: str):
        self.name = name
        self.holding: list[cst.SimpleString] = []

    def visit_SimpleString(self, node: cst.SimpleString) -> None:  # noqa: N802
        value = node.evaluated_value
        if not isinstance(value, str) or "__global__" not in value or self.name not in value:
            return
        if any(piece.name == self.name for piece in functions(value)):
            self.holding.append(node)
