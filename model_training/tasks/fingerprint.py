"""Find tasks for training that are too like one for evaluation, by three answers, the strict one
first.

    form         the same program under other names (normalized syntax tree, without numbers)
    operators    the same operators in the same order, whatever the layout of the text
    shingles     MinHash of runs of 13 tokens: a Jaccard index of 0.7 or more

Sizes do not count: the same task with other numbers is the same task. Sources: 13-grams as in
GPT-3 (arXiv 2005.14165, appendix C); MinHash, Broder 1997, doi:10.1109/SEQUEN.1997.666900.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeGuard

from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.records import Record, content_hash

NUM_TOKENS = 13
NUM_HASHES = 128
LIKE = 0.7
"""Jaccard index from which two texts are the same task."""
_SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_SEEDS = tuple(
    int.from_bytes(hashlib.blake2b(bytes([number]), digest_size=8).digest(), "big")
    for number in range(NUM_HASHES)
)


class Fingerprints(Record, frozen=True, kw_only=True):
    """Hold the fingerprints of one text."""

    form: str
    operators: str
    shingles: tuple[int, ...]
    """The least of each of 128 hashes; empty for a text of fewer than 13 tokens."""


def fingerprints(text: str) -> Fingerprints:
    """Return the fingerprints of a program's text.

    Raises: SyntaxError for what is no Python.
    """
    return Fingerprints(
        form=form(text),
        operators=content_hash(operators_in_order(text)),
        shingles=min_hash(shingles(text)),
    )


@lru_cache(maxsize=10_000)
def form(text: str) -> str:
    """Return what is equal for the same program under other names and with other numbers."""
    tree = ast.parse(text)
    return fingerprint(ast.unparse(Plain(assigned(tree)).visit(tree)))


def assigned(tree: ast.AST) -> dict[str, str]:
    """Return what is assigned to attributes of `self`, in their order: `{"fc": "Linear"}`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if is_own(target):
                    made = node.value
                    found.setdefault(
                        target.attr, called(made) if isinstance(made, ast.Call) else ""
                    )
    return found


def is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Return whether it is `self.something`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)


class Plain(ast.NodeTransformer):
    """Make all sizes equal, at the top of the file and anywhere else, and name attributes by their
    order."""

    def __init__(self, own: Iterable[str]) -> None:
        self.numbers = {name: f"own{number}" for number, name in enumerate(own)}

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, int | float | complex) and not isinstance(node.value, bool):
            return ast.copy_location(ast.Constant(value=0), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if is_own(node):
            node.attr = self.numbers.get(node.attr, node.attr)
        return node


def operators_in_order(text: str) -> list[str]:
    """List the last names of what `Model` calls, and arithmetic operators, as they stand in the
    text; a call of a submodule is one of its class. What makes the inputs is not the task."""
    tree = ast.parse(text)
    own = assigned(tree)
    models = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found: list[tuple[int, int, str]] = []
    for node in (inner for model in models for inner in ast.walk(model)):
        if isinstance(node, ast.Call):
            name = own.get(called(node), "") if is_own(node.func) else called(node)
            found.append((node.end_lineno or 0, node.end_col_offset or 0, name))
        elif isinstance(node, ast.BinOp):
            found.append((node.end_lineno or 0, node.end_col_offset or 0, type(node.op).__name__))
    return [name for *_, name in sorted(found) if name not in ("super", "__init__")]


def shingles(text: str) -> set[tuple[str, ...]]:
    """Return runs of 13 tokens; numbers are equal, comments and layout do not count."""
    try:
        read = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError) as error:
        raise SyntaxError(str(error)) from error
    tokens = [
        "0" if token.type == tokenize.NUMBER else token.string
        for token in read
        if token.type not in _SKIPPED
    ]
    return {tuple(tokens[i : i + NUM_TOKENS]) for i in range(len(tokens) - NUM_TOKENS + 1)}


def min_hash(of: Iterable[tuple[str, ...]]) -> tuple[int, ...]:
    """Hash a set: the share of equal places of two estimates the Jaccard index."""
    hashes = [
        int.from_bytes(hashlib.blake2b("\0".join(one).encode(), digest_size=8).digest(), "big")
        for one in of
    ]
    return tuple(min(value ^ seed for value in hashes) for seed in _SEEDS) if hashes else ()


def jaccard(one: Fingerprints, other: Fingerprints) -> float:
    """Estimate the index from the hashes, to within about 0.09 (1 / sqrt(128))."""
    if not one.shingles or not other.shingles:
        return 0.0
    same = sum(a == b for a, b in zip(one.shingles, other.shingles, strict=True))
    return same / NUM_HASHES
