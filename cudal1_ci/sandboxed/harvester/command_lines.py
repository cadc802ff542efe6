"""Read the command lines of scripts: modules that take `args` are made of their defaults."""

from __future__ import annotations

import ast
import contextlib
import functools
from pathlib import Path
from typing import Any

from .arguments import NUMBERS
from .reading import text_of

MOST_FILES = 500
"""Files in which command lines are looked for."""
TYPES = {"int": int, "float": float, "str": str}
FLAGS = {"store_true": False, "store_false": True}
"""Defaults of options without a value."""


@functools.cache
def command_lines(root: Path) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return the files with a command line, and its defaults by names of attributes."""
    files = [one.relative_to(root) for one in sorted(root.rglob("*.py"))]
    own = [one for one in files if not any(map(is_foreign, one.parts))]
    found = {one.as_posix(): defaults_of(text_of(root / one)) for one in own[:MOST_FILES]}
    return tuple((path, values) for path, values in found.items() if values)


def is_foreign(folder: str) -> bool:
    """Return whether a folder holds an environment, or what tools keep."""
    return folder.startswith(".") or folder == "site-packages"


def defaults_of(text: str) -> dict[str, Any]:
    """Return the defaults of a script's command line, without running it."""
    if "add_argument(" not in text:
        return {}
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
        options = [option_of(one) for one in calls if is_option(one)]
        return {name: value for name, value in options if name.isidentifier()}
    return {}


def is_option(call: ast.Call) -> bool:
    """Return whether a call adds an option by its name."""
    names = [one for one in call.args if isinstance(one, ast.Constant)]
    is_added = isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    return is_added and any(isinstance(one.value, str) for one in names)


def option_of(call: ast.Call) -> tuple[str, Any]:
    """Return the attribute of an option, and its default."""
    given = {one.arg: one.value for one in call.keywords if one.arg}
    names = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
    long = next((name for name in names if name.startswith("--")), names[0])
    name = str(literal(given.get("dest")) or long.lstrip("-").replace("-", "_"))
    default = literal(given.get("default"))
    kind = TYPES.get(ast.unparse(given["type"])) if "type" in given else None
    if default is None:
        default = FLAGS.get(str(literal(given.get("action"))))
    if default is None and kind is int:
        default = NUMBERS.get(name)
    if isinstance(default, str) and kind is not None:
        with contextlib.suppress(ValueError):
            default = kind(default)
    return name, default


def literal(node: ast.expr | None) -> Any:
    """Return the value of a literal; None of others."""
    with contextlib.suppress(ValueError, TypeError):
        return None if node is None else ast.literal_eval(node)
    return None


__all__ = ["command_lines"]
