"""Detect replacements that would compute the same work a second time.

A match may span statements: it reads through a local to the assigned value. If the local is also
read elsewhere, its line remains, and the replacement does the same work again. Examples are a
product without a bias for one branch, a copy that another branch needs, and returned attention
weights. Such a replacement gains nothing. Arithmetic and views are too cheap to matter: the
replaced code has other passes too.
"""

from __future__ import annotations

from collections import Counter

import libcst as cst

from cudal1_ci.propose.rewrites.patterns import Bindings
from cudal1_ci.propose.rewrites.steps import assigned, descendants
from cudal1_ci.propose.rewrites.terms import ARITHMETIC, Term, code, names_in
from cudal1_ci.propose.rewrites.walk import assigned_name

CHEAP = {
    *ARITHMETIC, "neg", "const", "name", "opaque", "symbol", "attr", "tuple", "msqrt", "mlog",
    "mexp", "mfloat", "size", "dim", "transpose", "t", "mT", "permute", "unsqueeze", "squeeze",
    "view", "reshape", "expand", "detach",
}  # fmt: skip

Line = tuple[str, str]
"""A name and the text of what it is assigned."""


def read_through(term: Term, bindings: Bindings, new: cst.BaseExpression) -> set[Line]:
    """Return lines whose work a match duplicates: those of locals that it reads through and the
    replacement does not read.
    """
    kept = set(bindings.values())
    read = names_in(new)
    found: set[Line] = set()
    pending = [term]
    while pending:
        one = pending.pop()
        if one in kept:
            continue
        if isinstance(one.node, cst.Name):
            if one.node.value in read:
                continue
            local = (one.env or {}).get(one.node.value)
            if local and local.term and local.term.node is not None and one.op not in CHEAP:
                found.add((one.node.value, code(local.term.node)))
        pending += (*one.args, *(value for _, value in one.named))
    return found


def lines_of(method: cst.FunctionDef) -> Counter[Line]:
    """Return how often each `x = ...` is in a function."""
    found: Counter[Line] = Counter()
    for node in descendants(method):
        name = assigned_name(node)
        if name is not None:
            found[name, code(assigned(node).value)] += 1
    return found
