"""Read workloads declared in source files: by convention, by decorator, by comment.

Reads text, and never imports it. Three forms:

- functions that make the arguments, as in KernelBench: `get_inputs` and `get_init_inputs` for the
  file's main module, `get_inputs_large` for another workload of that module, `get_inputs_Block` for
  a class or function by its name, `get_inputs_Block_large`. They are in the file itself or, better,
  in `<stem>_workloads.py` in the same folder, which is not shipped with the model;
- `@workload(init=[...], inputs=[...])` from `cudal1_ci`, under any imported name;
- the same as a comment above the definition: `# cudal1: workload(inputs=["float32[8, 128]"])`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from cudal1_ci.discover.declared import workload_of
from cudal1_ci.discover.syntax import (
    PARSE_ERRORS,
    Definition,
    definitions,
    dotted_name,
    first_line_of,
    parse,
    reachable,
)
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Call, Made, Target, Workload

MAIN_MODULE = "Model"
"""KernelBench's name for the class that its `get_inputs` is for."""
_MAKES_INPUTS = re.compile(r"get_inputs(?:_(\w+))?")
_MARKED_COMMENT = re.compile(r"^\s*#\s*cudal1:\s*(.*)$")
_COMMENT = re.compile(r"^\s*#\s?(.*)$")
_DECORATORS = frozenset({"cudal1_ci.workload", "cudal1_ci.declare.workload"})
_PARTS = ("init", "inputs", "mode", "autocast", "name")
_MIGHT_DECLARE = re.compile(r"get_inputs|cudal1")


def sidecar_path(path: str) -> str:
    """Return where a file's workloads may be: `src/model.py` has `src/model_workloads.py`."""
    file = PurePosixPath(path)
    return str(file.with_name(f"{file.stem}_workloads.py"))


def declared_in_source(target: Target, source: str, sidecar: str | None) -> tuple[Workload, ...]:
    """Return a target's workloads from the text of its file and of its sidecar, if any.

    Raises: ConfigError for a declaration that is malformed, with file and line.
    """
    if sidecar is None and not might_declare(source):
        return ()
    tree = _parse_file(source, target.path)
    if tree is None:
        return ()
    sidecar_file = sidecar_path(target.path)
    sidecar_tree = _parse_file(sidecar, sidecar_file) if sidecar is not None else None
    found = list(_mark_workloads(target, source, tree))
    if sidecar_tree is not None:
        found += _function_workloads(target, tree, sidecar_tree, sidecar_file)
    found += _function_workloads(target, tree, tree, target.path)
    return tuple(found)


@functools.lru_cache(maxsize=4)
def might_declare(source: str) -> bool:
    """Return whether a file's text could declare a workload, before it is parsed."""
    return _MIGHT_DECLARE.search(source) is not None


def _parse_file(source: str, path: str) -> ast.Module | None:
    try:
        return parse(source)
    except PARSE_ERRORS as error:
        if path.endswith("_workloads.py"):
            raise ConfigError(f"{path}: does not parse as Python: {error}") from error
        return None


# --- get_inputs ------------------------------------------------------------------------------


def _function_workloads(
    target: Target, tree: ast.Module, functions_in: ast.Module, path: str
) -> Iterator[Workload]:
    """Yield workloads whose arguments the functions of a file make."""
    functions = {
        statement.name: statement
        for statement in reachable(functions_in.body)
        if isinstance(statement, ast.FunctionDef)
    }
    names = _definition_names(tree)
    main = main_module(tree)
    for function, node in functions.items():
        match = _MAKES_INPUTS.fullmatch(function)
        if match is None:
            continue
        qualname, name = _split_suffix(match[1], names)
        if (qualname or main) != target.qualname:
            continue
        if required := _required_parameters(node):
            if functions_in is tree:
                continue  # the user's own function, which only shares the name
            raise ConfigError(
                f"{path}:{node.lineno}: {function}: expected a function without parameters, got "
                f"`{required[0]}`; give it a default"
            )
        makes_init = _init_function(functions, qualname, name)
        yield Workload(
            name=name or "get_inputs",
            provenance="declared",
            source=f"{path}:{function}",
            init=Made(function=makes_init, path=path) if makes_init else Call(),
            call=Made(function=function, path=path),
        )


def _split_suffix(suffix: str | None, names: list[str]) -> tuple[str | None, str | None]:
    """Split a suffix into the class or function that it begins with and the workload's name."""
    if suffix is None:
        return None, None
    for name in sorted(names, key=len, reverse=True):
        if suffix == name:
            return name, None
        if suffix.startswith(f"{name}_"):
            return name, suffix.removeprefix(f"{name}_")
    return None, suffix


def _init_function(
    functions: dict[str, ast.FunctionDef], qualname: str | None, name: str | None
) -> str | None:
    """Return the most specific function that makes the constructor's arguments."""
    prefix = f"get_init_inputs_{qualname}" if qualname else "get_init_inputs"
    candidates = [f"{prefix}_{name}"] if name else []
    return next((each for each in [*candidates, prefix] if each in functions), None)


def _definition_names(tree: ast.Module) -> list[str]:
    return [
        statement.name
        for statement in reachable(tree.body)
        if isinstance(statement, Definition) and not _MAKES_INPUTS.fullmatch(statement.name)
    ]


def _required_parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    keyword = [
        one
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return [one.arg for one in (*required, *keyword)]


def main_module(tree: ast.Module) -> str | None:
    """Return the class that a bare `get_inputs` is for: `Model`, or the only one with a forward."""
    with_forward = [
        statement.name
        for statement in reachable(tree.body)
        if isinstance(statement, ast.ClassDef)
        and any(
            isinstance(inner, ast.FunctionDef) and inner.name == "forward"
            for inner in statement.body
        )
    ]
    if MAIN_MODULE in with_forward:
        return MAIN_MODULE
    return with_forward[0] if len(with_forward) == 1 else None


# --- @workload and its comment ---------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """Hold a `workload(...)` at a definition."""

    line: int
    call: ast.Call
    form: str


def _mark_workloads(target: Target, source: str, tree: ast.Module) -> Iterator[Workload]:
    if "cudal1" not in source:
        return
    lines = source.splitlines()
    names = _decorator_names(tree)
    for qualname, node in definitions(tree.body):
        if qualname != target.qualname:
            continue
        marks = [*_comments_above(node, lines, target.path), *_decorators(node, names)]
        for number, mark in enumerate(marks):
            yield _workload_of_mark(mark, target.path, number)


def _decorator_names(tree: ast.Module) -> set[str]:
    """Return the names of the decorator in a file, by its imports."""
    names = set()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name.partition(".")[0] == "cudal1_ci":
                    names |= {
                        each.replace(alias.name, alias.asname, 1) if alias.asname else each
                        for each in _DECORATORS
                        if each.startswith(alias.name) or not alias.asname
                    }
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                full = f"{statement.module}.{alias.name}"
                local = alias.asname or alias.name
                if full in _DECORATORS:
                    names.add(local)
                elif full == "cudal1_ci.declare":
                    names.add(f"{local}.workload")
    return names


def _decorators(node: Definition, names: set[str]) -> Iterator[Mark]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and dotted_name(decorator.func) in names:
            yield Mark(decorator.lineno, decorator, "@workload")


def _comments_above(node: Definition, lines: list[str], path: str) -> Iterator[Mark]:
    """Yield marks in the comment block right above a definition; a mark may take several lines."""
    end = first_line_of(node) - 1
    start = end
    while start > 0 and _COMMENT.match(lines[start - 1]):
        start -= 1
    at = start
    while at < end:
        match = _MARKED_COMMENT.match(lines[at])
        if match is None:
            at += 1
            continue
        text, last = match[1], at
        call = _parsed_call(text)
        while call is None and last + 1 < end and not _MARKED_COMMENT.match(lines[last + 1]):
            last += 1
            continued = _COMMENT.match(lines[last])
            text += "\n" + (continued[1] if continued else "")
            call = _parsed_call(text)
        if call is None:
            raise ConfigError(
                f'{path}:{at + 1}: expected `# cudal1: workload(inputs=["float32[8, 128]"])`, '
                f"got `{match[1]}`"
            )
        yield Mark(at + 1, call, "# cudal1: workload")
        at = last + 1


def _parsed_call(text: str) -> ast.Call | None:
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except PARSE_ERRORS:
        return None
    is_ours = isinstance(expression, ast.Call) and dotted_name(expression.func) == "workload"
    return expression if is_ours and isinstance(expression, ast.Call) else None


def _workload_of_mark(mark: Mark, path: str, number: int) -> Workload:
    where = f"{path}:{mark.line}: {mark.form}"
    if mark.call.args:
        raise ConfigError(
            f"{where}: expected only keyword arguments ({', '.join(_PARTS)}), got "
            f"`{ast.unparse(mark.call.args[0])}`"
        )
    parts: dict[str, object] = {}
    for keyword in mark.call.keywords:
        if keyword.arg not in _PARTS:
            raise ConfigError(
                f"{where}: unknown argument `{keyword.arg or '**'}`; known: {', '.join(_PARTS)}"
            )
        try:
            parts[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise ConfigError(
                f"{where} {keyword.arg}: expected a literal, for the file is read and not run, "
                f"got `{ast.unparse(keyword.value)}`"
            ) from None
    name = parts.get("name")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{where} name: expected text, got {name!r}")
    if name is None and number:
        name = f"workload-{number + 1}"
    return workload_of(
        init=parts.get("init"),
        inputs=parts.get("inputs", ()),
        mode=parts.get("mode", "infer"),
        autocast=parts.get("autocast"),
        name=name,
        where=f"{where} ",
        source=f"{path}:{mark.line}",
    )
