"""Take loops over tensors apart: what no turn needs of an earlier one is computed at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.batch import batched, is_batched
from cudal1_ci.propose.recorded.hoist import Hoist
from cudal1_ci.propose.recorded.joins import arg_of, joined, reads_of, the_join
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, within
from cudal1_ci.propose.recorded.loop import Loop, loops_in, shown_loop
from cudal1_ci.propose.recorded.loop_lift import lift_of, not_batched
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.sink import find_sunk

FEW_TURNS, LARGE = 16, 16384
"""Passes, and elements of a tensor in them."""


def find_joined(call: Call) -> Iterator[Change]:
    """Find `torch.cat([x[i : i + 1] for i in index])`, and stacks."""
    for loop in loops_in(call):
        node = loop.node
        if not isinstance(node, cst.ListComp | cst.GeneratorExp):
            continue
        if node.for_in.ifs or node.for_in.inner_for_in or node.for_in.asynchronous:
            continue
        lift = lift_of(loop)
        if lift is None:
            continue
        lift.guards = []
        try:
            lifted = lift.lift_any(node.elt)
            change = joined_comprehension(loop, node, lift, lifted)
        except Refused as refused:
            call.miss(loop.inside[0], not_batched(loop, refused), node)
            continue
        if change is not None:
            yield change


def joined_comprehension(
    loop: Loop, node: cst.ListComp | cst.GeneratorExp, lift: Lift, lifted: Lifted
) -> Change | None:
    """Return a change of the only call that reads a comprehension."""
    file = loop.file
    join = next(
        (one for one in file.above(node) if isinstance(one, cst.Call) and arg_of(one) is node),
        None,
    )
    removed: dict[cst.CSTNode, str] = {}
    if join is None:
        statement = file.parents[node]
        line = file.parents.get(statement)
        if not isinstance(statement, cst.Assign) or not isinstance(line, cst.SimpleStatementLine):
            return None
        target = statement.targets[0].target
        if len(statement.targets) != 1 or not isinstance(target, cst.Name):
            return None
        block = file.parents[line]
        if not isinstance(block, cst.IndentedBlock):
            return None
        follower = block.body[list(block.body).index(line) + 1 :][:1]
        join = the_join(follower[0], target.value) if follower else None
        if join is None or reads_of(loop.function, target.value) > 1 + lifted.code.count(
            target.value
        ) + len([n for n in within(node) if isinstance(n, cst.Name) and n.value == target.value]):
            return None
        removed[line] = ""
    code = joined(loop.code(join.func), join, lifted, lift.dtype(node.elt))
    if lift.needs_turn and lift.bounds is not None and loop.code(join.func) == "sum":
        lift.guards = [*(lift.guards or ()), lift.bounds.has_turn()]
    if lift.guards:
        given = [loop.code(node), *(loop.code(one).strip(" ,\n") for one in join.args[1:])]
        old = f"{loop.code(join.func)}({', '.join(given)})"
        test = " and ".join(lift.guards)
        code = f"(\n    {code}\n    if {test}\n    else {old}\n)"
    return Change(
        file=loop.name,
        new={join: code, **removed},
        found=shown_loop(loop),
        modules=frozenset(("torch",)),
    )


def find_batched(call: Call) -> Iterator[Change]:
    """Find loops that carry nothing but sums and lists."""
    for loop in loops_in(call):
        lift = lift_of(loop) if isinstance(loop.node, cst.For) else None
        if lift is None:
            continue
        if has_few_long_turns(loop):
            call.miss(loop.inside[0], "it has few passes, each of large tensors", loop.node)
            continue
        try:
            yield batched(loop, lift)
        except Refused as refused:
            call.miss(loop.inside[0], not_batched(loop, refused), loop.node)
            continue


def has_few_long_turns(loop: Loop) -> bool:
    """Return whether passes are so few and so large that there is little to save on a CPU."""
    values = [loop.call.graph.of(one.output) for one in loop.inside]
    known = [one for one in values if one is not None]
    turns = max((len(one) for node, one in loop.operations.items() if is_in(loop, node)), default=0)
    most = max((math.prod(one.shape) for one in known), default=0)
    is_cpu = all(one.device == "cpu" for one in known)
    return is_cpu and turns <= FEW_TURNS and most >= LARGE


def is_in(loop: Loop, node: cst.CSTNode) -> bool:
    """Return whether an expression is in the body of a loop."""
    return loop.file.is_within(node, loop.node)


def find_hoisted(call: Call) -> Iterator[Change]:
    """Find recurrences whose turns compute what needs no state."""
    for loop in loops_in(call):
        lift = lift_of(loop, any_order=True) if isinstance(loop.node, cst.For) else None
        if lift is None or lift.bounds is None or not lift.bounds.index or is_batched(loop):
            continue
        try:
            yield Hoist(loop, lift, lift.bounds).change()
        except Refused:
            continue


RULES = (
    RecordedRule(
        name="joined_slices",
        family="loops",
        why="one indexing runs where the loop launched several operations per iteration",
        precondition="every iteration reads only its own position, and the results are joined",
        find=find_joined,
    ),
    RecordedRule(
        name="batched_loop",
        family="loops",
        why="one batched operation runs where the loop launched one per iteration, each on a "
        "small slice",
        precondition="no iteration reads what an earlier one made, but for sums, lists and "
        "tensors that are read after the loop",
        find=find_batched,
    ),
    RecordedRule(
        name="hoisted_from_loop",
        family="loops",
        why="one large operation before the loop runs where each iteration launched a small one",
        precondition="what is moved reads only the iteration's own position of what the loop "
        "leaves alone",
        find=find_hoisted,
    ),
    RecordedRule(
        name="sunk_from_loop",
        family="loops",
        why="one large operation after the loop runs where each iteration launched a small one",
        precondition="no later iteration reads what is moved; all states are kept until then",
        find=find_sunk,
    ),
)
