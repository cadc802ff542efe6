"""Change the scores of all seen tokens at once, where loops change those of one token each."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.lifted import Swap, within
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.repeats import free_name
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule

SIGNS: dict[type[cst.BaseAugOp], str] = {
    cst.MultiplyAssign: "*",
    cst.DivideAssign: "/",
    cst.AddAssign: "+",
    cst.SubtractAssign: "-",
}
WRITES = ("mul_", "div_", "add_", "sub_")
SETS = (
    r"set\((?P<ids>[\w.]+)\[{index}\]\.tolist\(\)\)",
    r"torch\.unique\((?P<ids>[\w.]+)\[{index}\]\)(\.tolist\(\))?",
    r"(?P<ids>[\w.]+)\[{index}\]\.unique\(\)(\.tolist\(\))?",
)
"""What an inner loop draws different tokens of a row from."""


def find_token_sets(call: Call) -> Iterator[Change]:
    """Find `for token in set(ids[i].tolist()): scores[i, token] *= penalty` in a loop over i."""
    for loop in loops_in(call):
        code = changed_at_once(loop)
        if code is not None:
            found = " ".join(loop.code(loop.node).strip().split("\n")[0].split())
            yield Change(loop.name, {loop.node: code}, found, frozenset(("torch",)))


def changed_at_once(loop: Loop) -> str | None:
    """Return the lines that take the place of a loop over rows and their tokens."""
    body = loop.node.body.body if isinstance(loop.node, cst.For) else ()
    inner = body[0] if len(body) == 1 else None
    if not isinstance(inner, cst.For) or inner.orelse or not isinstance(inner.target, cst.Name):
        return None
    bounds = loop.bounds(loop.target.value) if isinstance(loop.target, cst.Name) else None
    if bounds is None or bounds.low:
        return None
    index, token, over = bounds.index, inner.target.value, loop.code(inner.iter)
    drawn = (re.fullmatch(one.replace("{index}", index), over) for one in SETS)
    ids = next((one["ids"] for one in drawn if one), None)
    first = next((one for one in body_of(inner) if isinstance(one, cst.AugAssign)), None)
    if ids is None or first is None or loop.is_read_after({index, token}):
        return None
    element = first.target
    scores = loop.code(element).split("[")[0]
    if loop.code(element) not in (f"{scores}[{index}, {token}]", f"{scores}[{index}][{token}]"):
        return None
    if not are_rows(loop, scores, ids):
        return None
    seen = free_name(loop.function, "seen")
    new = new_value(loop, inner, loop.code(element), seen)
    if new is None or names_in(cst.parse_expression(new)) & {scores, index, token}:
        return None
    is_whole = (bounds.high, ids, 0) in bounds.sizes
    rows = ids if is_whole else free_name(loop.function, "rows")
    lines = [] if is_whole else [f"{rows} = {ids}[: {bounds.high}]"]
    lines += [f"{seen} = {scores}.gather(1, {rows})", f"{scores}.scatter_(1, {rows}, {new})"]
    return "\n".join(lines) + "\n"


def body_of(node: cst.For | cst.If | cst.Else) -> list[cst.BaseSmallStatement]:
    """Return the statements of a block, and those of a branch in it."""
    found: list[cst.BaseSmallStatement] = []
    for one in node.body.body:
        if isinstance(one, cst.If):
            found += body_of(one)
        elif isinstance(one, cst.SimpleStatementLine):
            found += one.body
    return found


def are_rows(loop: Loop, scores: str, ids: str) -> bool:
    """Return whether there is a row of token numbers for each row of scores, and only numbers
    change the scores."""
    graph, scope = loop.call.graph, loop.call.source.scope(loop.inside[0])
    held = [graph.of(scope[one].value) if one in scope else None for one in (scores, ids)]
    if None in held or any(len(one.shape) != 2 for one in held if one is not None):
        return False
    is_number = held[1] is not None and held[1].dtype.endswith("int64")
    writes = [one for one in loop.inside if one.name in WRITES]
    return is_number and all(one.value(1, "other") is None for one in writes)


def new_value(loop: Loop, inner: cst.For, element: str, seen: str) -> str | None:
    """Return the code of the new scores of the tokens that are seen."""

    def renamed(node: cst.Comparison) -> str:
        places: dict[cst.CSTNode, str] = {
            one: seen for one in within(node) if loop.code(one) == element
        }
        return loop.code(cst.ensure_type(node.visit(Swap(places)), cst.Comparison))

    def changed(block: cst.BaseSuite) -> str | None:
        [line] = block.body if len(block.body) == 1 else [None]
        small = line.body if isinstance(line, cst.SimpleStatementLine) else ()
        write = small[0] if len(small) == 1 else None
        if not isinstance(write, cst.AugAssign) or loop.code(write.target) != element:
            return None
        sign, value = SIGNS.get(type(write.operator)), write.value
        is_plain = isinstance(value, cst.Name | cst.Attribute | cst.BaseNumber)
        return f"{seen} {sign} {loop.code(value)}" if sign and is_plain else None

    [branch] = inner.body.body if len(inner.body.body) == 1 else [None]
    if not isinstance(branch, cst.If):
        return changed(inner.body)
    otherwise = branch.orelse
    if isinstance(otherwise, cst.If) or not isinstance(branch.test, cst.Comparison):
        return None
    yes = changed(branch.body)
    no = seen if otherwise is None else changed(otherwise.body)
    return (
        None if yes is None or no is None else f"torch.where({renamed(branch.test)}, {yes}, {no})"
    )


RULES = (
    RecordedRule(
        name="token_sets",
        family="vectorization",
        why="one gather reads the scores of all tokens and one scatter writes them; each iteration "
        "read one number on the host and launched several operations",
        precondition="each row's tokens are made different, and are not negative; an iteration "
        "changes the score of its own token",
        find=find_token_sets,
    ),
)
