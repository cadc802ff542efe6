"""Whether a program is the reference as a CUDA graph, and nothing else.

    is_recording(problem, candidate.program)

A recording makes launches cheaper and leaves the work as it is. The product's playbook writes it
without a model (playbook/graphs.py), and a policy that had learned from recordings came to write
nothing else (docs/training.md): reports count them apart.

Knows syntax: who records otherwise than by torch's own names is not seen.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.records import Problem, Program, TextProgram

_RECORDS = re.compile(r"\bCUDAGraph\b|\bcuda\.graph\b|\bmake_graphed_callables\b")


def is_recording(problem: Problem, program: Program) -> bool:
    """Whether a graph is recorded in a program, a method of it does what the reference's `forward`
    does, but for names of variables and layout, and all else is the reference's too. No program of
    a checkout is seen as one."""
    reference = problem.reference
    if not isinstance(reference, TextProgram) or not isinstance(program, TextProgram):
        return False
    return bool(_RECORDS.search(program.source)) and records(reference, program)


@lru_cache(maxsize=1024)
def records(reference: TextProgram, program: TextProgram) -> bool:
    """The same of a text in which something is recorded."""
    try:
        before, after = ast.parse(reference.source), ast.parse(program.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    original, answer = class_in(before, reference.entry), class_in(after, program.entry)
    if original is None or answer is None:
        return False
    return (
        definitions(after) - {form(answer)} <= definitions(before)
        and keeps_methods(original, answer)
        and makes_the_same(original, answer)
    )


def class_in(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next(
        (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name), None
    )


def definitions(tree: ast.Module) -> set[str]:
    """Forms of a file's classes and functions."""
    return {form(one) for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)}


def methods(definition: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {one.name: one for one in definition.body if isinstance(one, ast.FunctionDef)}


def keeps_methods(original: ast.ClassDef, answer: ast.ClassDef) -> bool:
    """Whether the answer has every method of the reference but `__init__`, `forward` by any name
    and the others by theirs."""
    before, after = methods(original), methods(answer)
    forward = before.pop("forward", None)
    before.pop("__init__", None)
    return (
        forward is not None
        and form(forward) in {form(one) for one in after.values()}
        and all(name in after and form(after[name]) == form(one) for name, one in before.items())
    )


def makes_the_same(original: ast.ClassDef, answer: ast.ClassDef) -> bool:
    """Whether `__init__` holds the reference's statements, and beside them constants alone, such as
    the place of the graph."""
    before, after = (methods(one).get("__init__") for one in (original, answer))
    known = {ast.dump(one) for one in before.body} if before else set()
    known.add(ast.dump(ast.parse("super().__init__()").body[0]))
    said = after.body if after else []
    others = [one for one in said if ast.dump(one) not in known]
    return all(
        isinstance(one, ast.Assign | ast.AnnAssign) and is_empty(one.value) for one in others
    )


def is_empty(value: ast.expr | None) -> bool:
    """A constant, or a container of nothing."""
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return not value.elts
    return isinstance(value, ast.Constant | None)


def form(definition: ast.ClassDef | ast.FunctionDef) -> str:
    return fingerprint(ast.unparse(definition))
