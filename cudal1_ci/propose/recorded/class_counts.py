"""Count the elements of all classes in one pass, where a loop compared all of them with each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.algebra import sums_over
from cudal1_ci.propose.recorded.certainty import CONDITIONS
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Refused, Swap
from cudal1_ci.propose.recorded.loop import Loop, loops_in, shown_loop
from cudal1_ci.propose.recorded.loop_lift import lift_of
from cudal1_ci.propose.recorded.reads import is_unwritten
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import is_statement

MIN_TURNS = 4
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
BOTH = frozenset(("and", "logical_and", "mul"))
EITHER = frozenset(("or", "logical_or"))
THROUGH = frozenset(("float", "half", "bfloat16", "double", "long", "int"))
COUNTED = '''
def class_counts(num_classes, classes, other=None):
    """Return how many elements are of each class; with another tensor, of that class in both."""
    if other is not None:
        classes, other = torch.broadcast_tensors(classes, other)
        classes = torch.where(classes == other, classes.long(), -1)
    num_classes = max(num_classes, 0)
    numbers = classes.flatten().long().clamp(-1, num_classes) + 1
    return numbers.bincount(minlength=num_classes + 2)[1:-1]
'''


@dataclass(frozen=True)
class Mask:
    """The elements that are of a turn's class, in one tensor or in two."""

    kind: str
    """`eq` and `ne` of one tensor; `both`, `first` and `either` of two."""
    classes: tuple[cst.BaseExpression, ...]


def find_counts(call: Call) -> Iterator[Change]:
    """Find `((pred == c) & (target == c)).sum()` in a loop over classes."""
    for loop in loops_in(call):
        lift = lift_of(loop)
        if lift is None or lift.bounds is None or lift.bounds.low < 0:
            continue
        if lift.bounds.index != loop.code(loop.target):
            continue
        try:
            counts = counts_in(loop, lift)
        except Refused:
            continue
        if counts:
            yield counted(loop, lift, counts)


def counts_in(loop: Loop, lift: Lift) -> dict[cst.CSTNode, tuple[Mask, str]]:
    """Return the sums of masks of classes in a loop, each with the dtype of its result."""
    found: dict[cst.CSTNode, tuple[Mask, str]] = {}
    for node, operations in loop.operations.items():
        if not isinstance(node, cst.Call) or not loop.file.is_within(node, loop.node):
            continue
        made = [one for one in operations if sums_over(loop.call.graph, one) == ()]
        if len(made) != len(operations) or len(made) < MIN_TURNS:
            continue
        masks = {mask_of(loop, lift, one.value(0)) for one in made}
        outputs = {loop.call.graph.of(one.output) for one in made}
        dtypes = {one.dtype for one in outputs if one is not None}
        mask = masks.pop()
        if masks or mask is None or mask.kind == "ne" or len(dtypes) != 1:
            continue
        dtype = dtypes.pop()
        if dtype in ("int64", "float32"):
            found[node] = mask, dtype
    certain = {
        loop.code(one)
        for node in loop.operations
        if isinstance(node, cst.Comparison) and is_certain(loop, node)
        for one in (node.left, node.comparisons[0].comparator)
    }
    return {
        node: (mask, dtype)
        for node, (mask, dtype) in found.items()
        if all(loop.code(one) in certain for one in mask.classes)
    }


def is_certain(loop: Loop, node: cst.CSTNode) -> bool:
    """Return whether each turn of a loop evaluates an expression, so that it may be read before."""
    for above in loop.file.above(node):
        if above is loop.node:
            return True
        if isinstance(above, CONDITIONS):
            return False
    return False


def mask_of(loop: Loop, lift: Lift, value: int | None) -> Mask | None:
    """Return which elements a mask lets through; None for another value."""
    graph = loop.call.graph
    maker = graph.made_by(value)
    while maker is not None and is_cast(maker):
        maker = graph.made_by(maker.value(0))
    if maker is None or any(one.output == maker.output for one in readers_of(loop, maker)):
        return None  # x.to("cpu") returns x where that is its device
    if maker.name in ("eq", "ne"):
        return compared(loop, lift, maker)
    if maker.name in ("invert", "logical_not"):
        inner = mask_of(loop, lift, maker.value(0))
        turned = {"eq": "ne", "ne": "eq"}.get("" if inner is None else inner.kind)
        return Mask(turned, inner.classes) if turned and inner is not None else None
    is_picked = maker.name == "getitem" and graph.num_dims(maker.value(0)) == graph.num_dims(
        maker.value(1)
    )
    if maker.name not in BOTH | EITHER and not is_picked:
        return None
    parts = [mask_of(loop, lift, one) for one in graph.parts(maker)]
    if None in parts:
        return None
    first, second = (one for one in parts if one is not None)
    kinds, classes = (first.kind, second.kind), (*first.classes, *second.classes)
    if maker.name in EITHER:
        return Mask("either", classes) if kinds == ("eq", "eq") else None
    named = {("eq", "eq"): "both", ("eq", "ne"): "first", ("ne", "eq"): "first"}.get(kinds)
    classes = classes[::-1] if kinds == ("ne", "eq") else classes
    return None if named is None else Mask(named, classes)


def readers_of(loop: Loop, operation: Operation) -> list[Operation]:
    """Return the operations that read what an operation made."""
    return loop.call.graph.readers.get(-1 if operation.output is None else operation.output, [])


def is_cast(operation: Operation) -> bool:
    """Return whether an operation changes the dtype of a mask, and not its device."""
    dtype = operation.literal(1)
    is_to = operation.name == "to" and isinstance(dtype, str) and dtype.startswith("torch.")
    return operation.name in THROUGH or (is_to and not operation.recorded.kwargs)


def compared(loop: Loop, lift: Lift, operation: Operation) -> Mask | None:
    """Return the tensor of whole numbers that is compared with the turn's number."""
    place = loop.call.source.place(operation)
    node = None if place is None else place.node
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return None
    sides = [node.left, node.comparisons[0].comparator]
    number = [loop.code(one) for one in sides].count(lift.bounds.index if lift.bounds else "")
    known = loop.call.graph.of(operation.value(0))
    if number != 1 or known is None or known.dtype not in INTEGERS or not known.shape:
        return None
    index = lift.bounds.index if lift.bounds else ""
    classes = next(one for one in sides if loop.code(one) != index)
    span = loop.inside[0].index, loop.inside[-1].index
    if lift.varies(classes) or not is_unwritten(loop.call, operation.value(0), span):
        return None
    lift.check_pure(classes)
    return Mask(operation.name, (classes,))


def counted(loop: Loop, lift: Lift, counts: dict[cst.CSTNode, tuple[Mask, str]]) -> Change:
    """Return a loop that reads counts which are made before it."""
    assert lift.bounds is not None
    high, index = lift.bounds.high, lift.bounds.index
    node: cst.CSTNode = loop.node
    above = [node, *loop.file.above(node)]
    statement = next(one for one in above if is_statement(one))
    lines = Lines(lift.taken)
    new = {}
    for sum_, (mask, dtype) in counts.items():
        codes = [loop.code(one) for one in mask.classes]
        read = f"{lines.count(high, mask.kind, codes)}[{index}]"
        new[sum_] = read if dtype == "int64" else f"{read}.float()"
    swapped = statement.with_changes(leading_lines=[]).visit(Swap(new))
    assert isinstance(swapped, cst.CSTNode)
    return Change(
        file=loop.name,
        new={statement: "\n".join([*(lift.lines or ()), *lines.made, loop.code(swapped)])},
        found=shown_loop(loop),
        modules=frozenset(("torch",)),
        definitions=COUNTED,
    )


class Lines:
    """The lines before a loop that make counts, each of them once."""

    def __init__(self, taken: set[str]):
        self.taken = taken
        self.names: dict[str, str] = {}
        """Names by the code that they are bound to."""

    @property
    def made(self) -> list[str]:
        return [f"{name} = {code}" for code, name in self.names.items()]

    def count(self, high: str, kind: str, codes: Sequence[str]) -> str:
        """Return the name of the counts of a kind of masks."""
        if kind == "eq":
            return self.bind(f"class_counts({high}, {codes[0]})", "counts")
        pair = sorted(codes)
        both = self.bind(f"class_counts({high}, {', '.join(pair)})", "common")
        if kind == "both":
            return both
        wide = self.bind(f"torch.broadcast_tensors({', '.join(pair)})", "pair")
        own = [f"class_counts({high}, {wide}[{pair.index(one)}])" for one in codes]
        total = own[0] if kind == "first" else " + ".join(own)
        return self.bind(f"{total} - {both}", "others" if kind == "first" else "either")

    def bind(self, code: str, wanted: str) -> str:
        """Return the name that code is bound to."""
        if code not in self.names:
            while wanted in self.taken:
                wanted += "_"
            self.taken.add(wanted)
            self.names[code] = wanted
        return self.names[code]


RULES = (
    RecordedRule(
        name="class_counts",
        family="vectorization",
        why="one pass counts the elements of all classes, where each iteration compared all "
        "elements with its class",
        precondition="the loop counts the classes, from 0 on, and changes no tensor of them",
        find=find_counts,
    ),
)
