"""Find the command lines of scripts: a module that takes `args` gets their defaults."""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .arguments import CONFIGS, NUMBERS
from .configured import Recipe, shallower
from .reading import text_of

MOST_FILES = 500
TYPES = {"int": int, "float": float, "str": str}
FLAGS = {"store_true": False, "store_false": True}
"""Defaults of options without a value."""


def command_lines(cls: Any, root: Path) -> Iterator[Recipe]:
    """Yield ways to make an object of a class that takes what a script reads from its command
    line: those first that have most of what the class reads."""
    needed = [
        one.name
        for one in list(inspect.signature(cls.__init__).parameters.values())[1:]
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(needed) != 1 or needed[0] not in CONFIGS:
        return
    with contextlib.suppress(OSError, TypeError):
        read = set(re.findall(rf"\b{needed[0]}\.(\w+)", inspect.getsource(cls)))
        found = [(len(read & values.keys()), file, values) for file, values in defaults_in(root)]
        for count, file, values in sorted(found, key=lambda one: -one[0]):
            if not count:
                return
            notes: list[str] = []
            less = shallower(values, notes)
            source = f"{file}: defaults of its command line"
            ways = [(f"{source} (smaller: {', '.join(notes)})", less)] if notes else []
            for place, some in (*ways, (source, values)):
                yield Recipe(place, functools.partial(cls, argparse.Namespace(**some)), some)


def defaults_in(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the defaults of each file's command line, by names of attributes."""
    for file in itertools.islice(sorted(root.rglob("*.py")), MOST_FILES):
        text = text_of(file)
        if "add_argument(" not in text:
            continue
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
            options = [option_of(one) for one in calls if is_option(one)]
            values = {name: value for name, value in options if name.isidentifier()}
            if values:
                yield file.relative_to(root).as_posix(), values


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
