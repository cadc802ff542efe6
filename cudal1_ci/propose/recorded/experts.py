"""Visit only the experts that a router chose."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import is_impure, within
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import bracketed

HARMLESS = frozenset(("index_add_", "bool", "int"))


def find_experts(call: Call) -> Iterator[Change]:
    """Find `for expert in range(n): slot, token = torch.where(mask[expert])`."""
    if not call.is_inference:
        return  # an expert that is not run has no gradient where it had zeros
    for loop in loops_in(call):
        node = loop.node
        chosen = chosen_experts(loop) if isinstance(node, cst.For) else None
        if chosen is not None and isinstance(node, cst.For):
            yield Change(
                file=loop.name,
                new={node.iter: f"{bracketed(chosen)}.unique().tolist()"},
                found=" ".join(loop.code(node).strip().split("\n")[0].split()),
            )


def chosen_experts(loop: Loop) -> str | None:
    """Return code of the numbers of the chosen experts, if turns without a token do nothing."""
    body = loop.body
    if len(body) < 2 or not isinstance(loop.target, cst.Name):
        return None
    expert = loop.target.value
    bounds = loop.bounds(expert)
    if bounds is None or bounds.low:
        return None
    picks = [one for one in body if isinstance(one, cst.Assign) and "where" in loop.code(one)]
    if len(picks) != 1:
        return None
    target = picks[0].targets[0].target
    wheres = loop.operations.get(picks[0].value, [])
    if not wheres or not all(len(one.recorded.args) == 1 for one in wheres):
        return None
    if {one.name for one in wheres} != {"where"} or not isinstance(target, cst.Tuple):
        return None
    names = [one.value for one in target.elements]
    if len(names) != 2 or not all(isinstance(one, cst.Name) for one in names):
        return None
    token = cst.ensure_type(names[1], cst.Name).value
    chosen = routed(loop, wheres, expert, bounds.high)
    if chosen is None or not only_adds(loop, body, token):
        return None
    return loop.call.source.expression(chosen, at=loop.inside[0])


def routed(loop: Loop, wheres: list[Operation], expert: str, high: str) -> int | None:
    """Return the choice whose one-hot mask is read at each expert, slots before tokens."""
    graph, source = loop.call.graph, loop.call.source
    found: set[int | None] = set()
    for one in wheres:
        picked = graph.made_by(one.value(0), "getitem")
        place = None if picked is None else source.place(picked)
        if picked is None or place is None or not isinstance(place.node, cst.Subscript):
            return None
        if loop.code(place.node.slice[0]).strip() != expert or len(place.node.slice) != 1:
            return None
        turned = graph.made_by(picked.value(0), "permute")
        if turned is None or tuple(
            turned.literal(i) for i in range(1, len(turned.recorded.args))
        ) not in (
            (2, 1, 0),
            ((2, 1, 0),),
        ):
            return None
        hot = graph.made_by(turned.value(0), "one_hot")
        written = None if hot is None else source.place(hot)
        if hot is None or written is None or not isinstance(written.node, cst.Call):
            return None
        if len(written.node.args) != 2 or loop.code(written.node.args[1].value) != high:
            return None
        found.add(hot.value(0))
    return found.pop() if len(found) == 1 else None


def only_adds(loop: Loop, body: list[cst.BaseSmallStatement], token: str) -> bool:
    """Return whether a turn's only effect is what it adds to the rows of its tokens."""
    last = body[-1]
    call = last.value if isinstance(last, cst.Expr) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return False
    given = [loop.code(one.value) for one in call.args]
    if call.func.attr.value != "index_add_" or given[:2] != ["0", token]:
        return False
    stored = roots(loop.target)
    for one in body[:-1]:
        if not isinstance(one, cst.Assign):
            return False
        if not all(isinstance(t.target, cst.Name | cst.Tuple) for t in one.targets):
            return False
        stored |= stored_names(one)
    result = roots(call.func.value)
    if loop.is_read_after(stored) or any(names_in(one) & result for one in body[:-1]):
        return False
    first, end = loop.inside[0].index, loop.inside[-1].index
    between = loop.call.graph.operations[first : end + 1]
    if any(is_impure(one) and one.name not in HARMLESS for one in between):
        return False
    read: set[str] = set()
    for one in body:  # no turn reads a local of an earlier one
        value = one.value if isinstance(one, cst.Assign | cst.Expr) else None
        if value is not None and (names_in(value) & stored) - read - roots(loop.target):
            return False
        read |= stored_names(one)
    return all(
        known_call(loop, one) for s in body for one in within(s) if isinstance(one, cst.Call)
    )


def known_call(loop: Loop, node: cst.Call) -> bool:
    """Return whether a call is of a torch function or of a module."""
    if loop.operations.get(node):
        return True
    if not isinstance(node.func, cst.Name):
        return False
    held = [loop.call.source.scope(one).get(node.func.value) for one in loop.inside]
    return any(one is not None and one.kind == "module" for one in held)


RULES = (
    RecordedRule(
        name="chosen_experts",
        family="loops",
        why="a few tokens choose a few experts; the loop launched every operation for all of them",
        precondition="inference; an expert without tokens adds nothing",
        find=find_experts,
    ),
)
