"""Find functions that return an object of a class and need no argument: the variants of a registry,
or the values of a table of them. They are in the module of the class, or in others of its package
that import it."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .configured import Recipe, variant
from .reading import text_of

MAX_FACTORIES = 3
"""Functions that are tried for a class, the smallest variants first."""
MOST_FILES = 500
"""Files of a package in which functions are looked for."""
NOT_MADE = frozenset({"main", "train", "run", "demo"})


def factories(cls: Any, root: Path, path: str) -> Iterator[Recipe]:
    """Yield ways to make an object of a class by functions of its module, whose file is `path`,
    then by those of other modules of its package."""
    own = makers(sys.modules[cls.__module__], cls)
    for name in sorted(own, key=variant)[:MAX_FACTORIES]:
        yield Recipe(f"{path}:{name}", functools.partial(returned, own[name], cls), {})
    for place, module in others(cls, root):
        found = makers(module, cls)
        for name in sorted(found, key=variant)[:MAX_FACTORIES]:
            yield Recipe(f"{place}:{name}", functools.partial(returned, found[name], cls), {})


def makers(module: types.ModuleType, cls: Any) -> dict[str, Callable[..., Any]]:
    """Return what makes a class without arguments, of the functions and tables of a module."""
    names = returning(source_of(module), cls.__name__) - NOT_MADE
    calls: dict[str, Callable[..., Any]] = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, types.FunctionType)
        and value.__module__ == module.__name__
        and name in names
        and not name.startswith(("_", "test_"))
    }
    for table, values in list(vars(module).items()):
        for key, value in values.items() if isinstance(values, dict) else ():
            if makes(value, cls) and value not in calls.values():
                calls[f"{table}[{key!r}]"] = value
    return {name: value for name, value in calls.items() if needs_nothing(value)}


def others(cls: Any, root: Path) -> Iterator[tuple[str, types.ModuleType]]:
    """Yield other modules of a class's package that import the class and may return it, with their
    paths. Only those are imported."""
    package, _, rest = cls.__module__.partition(".")
    folder = Path(getattr(sys.modules.get(package), "__file__", None) or root).parent
    if not rest or not folder.is_relative_to(root):
        return
    for file in itertools.islice(sorted(folder.rglob("*.py")), MOST_FILES):
        name = ".".join((package, *file.relative_to(folder).with_suffix("").parts))
        if name == cls.__module__ or file.name.startswith(("_", "test_")):
            continue
        text = text_of(file)
        if re.search(rf"\bimport\b[^#]*\b{cls.__name__}\b", text) and returning(text, cls.__name__):
            with contextlib.suppress(Exception):  # another one may do
                yield file.relative_to(root).as_posix(), importlib.import_module(name)


def returned(function: Callable[..., Any], cls: Any) -> Any:
    """Return what a function makes without pretrained weights. Raises: TypeError where it is no
    object of the class."""
    off = {
        one.name: False
        for one in inspect.signature(function).parameters.values()
        if one.name.startswith("pretrained") and (one.default is one.empty or one.default is True)
    }
    made = function(**off)
    if type(made) is not cls:
        raise TypeError(f"it returns `{type(made).__name__}`")
    return made


def needs_nothing(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called without arguments, but for `pretrained`."""
    with contextlib.suppress(ValueError, TypeError):
        return all(
            one.default is not one.empty
            or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
            or one.name == "pretrained"
            for one in inspect.signature(function).parameters.values()
        )
    return False


def makes(value: Any, cls: Any) -> bool:
    """Return whether a value of a table is a function that makes a class."""
    if isinstance(value, functools.partial):
        return value.func is cls
    is_lambda = isinstance(value, types.FunctionType) and value.__name__ == "<lambda>"
    return is_lambda and cls.__name__ in value.__code__.co_names


def source_of(module: types.ModuleType) -> str:
    with contextlib.suppress(OSError, TypeError):
        return inspect.getsource(module)
    return ""


def returning(source: str, name: str) -> set[str]:
    """Return the functions of a text whose result is made of a name: by a call of it, or by another
    one of these functions."""
    with contextlib.suppress(SyntaxError, ValueError):
        functions = [one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)]
        used = {one.name: names_in_result(one) for one in functions}
        found: set[str] = set()
        while more := {one for one in used if used[one] & {name, *found}} - found:
            found |= more
        return found
    return set()


def names_in_result(function: ast.FunctionDef) -> set[str]:
    """Return the names in the calls of which a function's result is made."""
    results = [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value]
    named = {one.id for one in results if isinstance(one, ast.Name)}
    bound = [one for one in ast.walk(function) if isinstance(one, ast.Assign)]
    results += [one.value for one in bound if named & names_in(one.targets)]
    inside = [one for result in results for one in ast.walk(result)]
    return names_in([one for one in inside if isinstance(one, ast.Call)])


def names_in(nodes: list[Any]) -> set[str]:
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


__all__ = ["factories"]
