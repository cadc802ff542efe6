"""Compute a layer on fewer rows or pixels: before an upsampling, and after a mean.

A layer that does the same at each position, and a weighted mean of positions whose weights add up
to one, give the same in either order, with a bias too.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.certainty import unstated, written_arguments
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.needless import dims_of
from cudal1_ci.propose.recorded.patterns import Leaf, Match, given, layer_match, written
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.records.recording import Argument

CONVOLUTIONS = frozenset(f"conv{n}d" for n in (1, 2, 3))
AVERAGES = frozenset(f"adaptive_avg_pool{n}d" for n in (1, 2, 3))
PLAIN = {"stride": 1, "padding": 0, "dilation": 1}
SIGNATURE = ("in_channels", "out_channels", "kernel_size", *PLAIN)


def find_pooled(call: Call) -> Iterator[Change]:
    """Find `self.fc(x).mean(dim=1)` and `self.pool(self.conv(x))`."""
    for outer in call.graph.operations:
        inner = call.graph.made_by(outer.value(0), "linear", *CONVOLUTIONS)
        if inner is None or outer.name not in ("mean", *AVERAGES):
            continue
        if any(True for _ in unstated(call.source, [outer])):
            continue
        is_convolution = inner.name in CONVOLUTIONS
        if outer.name in AVERAGES:
            yield from swapped(call, outer, inner) if is_convolution else ()
        elif (dims := dims_of(call.graph, outer)) and is_convolution:
            rank, is_kept = call.graph.num_dims(outer.value(0)), "keepdim" in given(outer)
            if dims == {*range(2, rank)}:
                yield from swapped(call, outer, inner, is_flat=not is_kept)
        elif dims and call.graph.num_dims(outer.value(0)) - 1 not in dims:
            yield from swapped(call, outer, inner)


def find_upsampled(call: Call) -> Iterator[Change]:
    """Find `self.classifier(F.interpolate(x, scale_factor=4))` with a 1 x 1 convolution."""
    graph = call.graph
    for outer in graph.operations:
        inner = graph.made_by(outer.value(0), "interpolate", "upsample")
        if outer.name not in CONVOLUTIONS or inner is None:
            continue
        small, large, result = (
            graph.of(one) for one in (inner.value(0), inner.output, outer.output)
        )
        if small is None or large is None or result is None:
            continue
        is_larger = math.prod(large.shape) > math.prod(small.shape)
        if is_larger and result.shape[1] <= large.shape[1] and "float" in small.dtype:
            yield from swapped(call, outer, inner)


def swapped(
    call: Call, outer: Operation, inner: Operation, *, is_flat: bool = False
) -> Iterator[Change]:
    """Yield the change that applies two operations in the other order. A flat mean of pixels keeps
    its dimensions for the layer, and loses them after it."""
    leaves = {"X": Leaf(inner.argument(0) or Argument(kind="other"), inner, 0)}
    codes = [applied(call, one, leaves) for one in (outer, inner)]
    if None not in codes:
        first, last = map(str, codes)
        first = first.removesuffix(")") + ", keepdim=True)" if is_flat else first
        template = last.replace("ROWS", first.replace("ROWS", "X")) + ".flatten(1)" * is_flat
        found = Match(call.graph, (outer, inner), leaves, is_layer=True)
        change = written(call, found, template)
        if change is not None:
            yield change


def applied(call: Call, operation: Operation, leaves: dict[str, Leaf]) -> str | None:
    """Return the code that applies an operation to ROWS. Its other arguments become leaves."""
    source = call.source
    if len(call.graph.in_one_call(operation)) > 1:
        return None
    layer = layer_match(call, operation)
    if layer is not None:
        is_alike = operation.name not in CONVOLUTIONS or is_pointwise(call, operation)
        return f"{layer[0]}(ROWS)" if is_alike else None
    place = source.place(operation)
    if place is None or not isinstance(place.node, cst.Call) or operation.name in CONVOLUTIONS:
        return None
    if operation.name != "mean" and not source.is_functional(place.node, place.file):
        return None
    parts = []
    for key, node, argument in written_arguments(source, operation):
        if key == 0 or node is None:
            continue
        name = f"{'K' if argument.value is None else 'W'}{operation.index}_{key}"
        leaves[name] = Leaf(argument, operation, key)
        parts.append(name if isinstance(key, int) else f"{key}={name}")
    if operation.name == "mean":
        return f"ROWS.mean({', '.join(parts)})"
    return f"F.{operation.name}({', '.join(('ROWS', *parts))})"


def is_pointwise(call: Call, operation: Operation) -> bool:
    """Return whether the class of a layer states that its kernel has size 1 and moves by 1."""
    place = call.source.place(operation)
    file = None if place is None else call.source.file(place.file)
    if place is None or file is None or not isinstance(place.node, cst.Call):
        return False
    owner = next((one for one in file.above(place.node) if isinstance(one, cst.ClassDef)), None)
    layer = file.code(place.node.func)
    tree = ast.parse("" if owner is None else file.code(owner).strip())
    made = [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and [ast.unparse(t) for t in one.targets] == [layer]
    ]
    if len(made) != 1 or not isinstance(made[0], ast.Call):
        return False
    node = made[0]
    stated = dict(zip(SIGNATURE, node.args, strict=False))
    stated |= {one.arg or "": one.value for one in node.keywords}
    wanted = {"kernel_size": 1, **{name: n for name, n in PLAIN.items() if name in stated}}
    return "" not in stated and all(
        isinstance(one := stated.get(name), ast.Constant) and one.value == number
        for name, number in wanted.items()
    )


RULES = (
    RecordedRule(
        name="mean_before_layer",
        family="algebra",
        why="the layer reads one row where it read all of those that are averaged",
        precondition="a mean of the rows that a linear layer gives, or of the pixels that a 1 x 1 "
        "convolution gives, and nothing else reads them",
        find=find_pooled,
    ),
    RecordedRule(
        name="layer_before_upsampling",
        family="algebra",
        why="a 1 x 1 convolution reads the small map, and fewer channels are enlarged",
        precondition="the class states a kernel of size 1; the layer has no more channels after "
        "than before, and nothing else reads the enlarged map",
        find=find_upsampled,
    ),
)
