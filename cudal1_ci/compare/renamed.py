"""Pair targets that a change renamed or moved with what they were, by signature and body.

    renamed(fresh, head_root, removed, base_root)   # {("pkg/new.py", "Norm"): old target}

Both must have the same kind and the same parameters, of the constructor too, so that the head's
workloads call the base. Their bodies must be mostly the same statements; of several that would do,
the most similar is taken, and each once.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudal1_ci.discover.syntax import PARSE_ERRORS, Definition, definitions, parse
from cudal1_ci.records import Target

LEAST_SIMILAR = 0.6
"""Share of the statements that must be the same: a rewrite that keeps less is another target."""
CALLED = ("__init__", "forward", "__call__")


@dataclass(frozen=True)
class Shape:
    """What is compared of a definition."""

    target: Target
    parameters: tuple[tuple[str, ...], ...]
    statements: tuple[str, ...]


def renamed(
    fresh: Sequence[Target], head: Path, removed: Sequence[Target], base: Path
) -> dict[tuple[str, str], Target]:
    """Return what new targets were, by their path and qualname."""
    if not fresh or not removed:
        return {}
    news, olds = list(shapes(fresh, head)), list(shapes(removed, base))
    ranked = sorted(
        (
            (similarity(new, old), -i, -j)
            for i, new in enumerate(news)
            for j, old in enumerate(olds)
            if (new.target.kind, new.parameters) == (old.target.kind, old.parameters)
        ),
        reverse=True,
    )
    found: dict[tuple[str, str], Target] = {}
    taken: set[int] = set()
    for score, i, j in ranked:
        target = news[-i].target
        key = (target.path, target.qualname)
        if score >= LEAST_SIMILAR and key not in found and -j not in taken:
            found[key] = olds[-j].target
            taken.add(-j)
    return found


def similarity(new: Shape, old: Shape) -> float:
    """Return the share of statements that two definitions have in common, in their order."""
    matcher = difflib.SequenceMatcher(None, old.statements, new.statements, autojunk=False)
    return matcher.ratio()


def shapes(targets: Sequence[Target], root: Path) -> Iterator[Shape]:
    """Yield the shapes of targets in Python; others are found by name alone."""
    known: dict[str, dict[str, Definition]] = {}
    for target in targets:
        if not target.path.endswith(".py"):
            continue
        if target.path not in known:
            try:
                tree = parse((root / target.path).read_bytes())
                known[target.path] = dict(definitions(tree.body))
            except (OSError, *PARSE_ERRORS):
                known[target.path] = {}
        node = known[target.path].get(target.qualname)
        if node is not None:
            yield Shape(target, tuple(parameters_of(node)), tuple(statements_of(node)))


def parameters_of(node: Definition) -> Iterator[tuple[str, ...]]:
    """Yield the names of the parameters of what is called."""
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name in CALLED:
                yield (one.name, *parameters(one.args))
    else:
        yield tuple(parameters(node.args))


def parameters(arguments: ast.arguments) -> Iterator[str]:
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield one.arg
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield f"*{rest.arg}"


def statements_of(node: Definition) -> Iterator[str]:
    """Yield the simple statements of a definition, and the heads of its blocks, without its own
    name and docstrings."""
    for one in ast.walk(node):
        match one:
            case ast.Expr(value=ast.Constant(value=str())):
                continue
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield f"def {'' if one is node else name}"
            case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head):
                yield f"{type(one).__name__} {ast.unparse(head)}"
            case ast.ClassDef() | ast.With() | ast.Try():
                continue
            case ast.stmt():
                yield ast.unparse(one)
