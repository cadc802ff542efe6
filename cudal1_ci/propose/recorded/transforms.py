"""Transform real signals by the transform that computes half of the spectrum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from cudal1_ci.propose.recorded.algebra import in_one_block
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.lifted import Swap
from cudal1_ci.propose.recorded.patterns import given, is_free
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File
from cudal1_ci.propose.recorded.top import WHOLE, name_for, sliced, with_name

LAST = (None, -1)
REAL = ("torch.float32", "torch.float64", "float32", "float64")


def spectrum_of(graph: Graph, value: int | None) -> list[Operation] | None:
    """Return the operations that make a spectrum: transforms of real signals, their products and
    their conjugates; None if there are others."""
    made = graph.made_by(value, "fft", "mul", "conj")
    if made is None or (made.name == "fft" and not is_of_real(graph, made)):
        return None
    parts = {"fft": (), "conj": (made.value(0),), "mul": graph.parts(made)}[made.name]
    found = [spectrum_of(graph, one) for one in parts]
    return None if None in found else [made, *(one for some in found for one in some or [])]


def is_of_real(graph: Graph, made: Operation) -> bool:
    """Return whether a transform is of a real signal, along its last dimension."""
    known = graph.of(made.value(0))
    return known is not None and known.dtype in REAL and is_along_last(graph, made)


def is_along_last(graph: Graph, made: Operation) -> bool:
    """Return whether a transform is along the last dimension, of the length that there is."""
    arguments = given(made)
    if not arguments.keys() <= {"input", "dim"}:
        return False
    dim = made.literal(2, "dim")
    return dim in LAST or graph.dims(dim, made.value(0)) == (graph.num_dims(made.value(0)) - 1,)


def find_products(call: Call) -> Iterator[Change]:
    """Find `torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(y)).real`."""
    graph = call.graph
    for operation in graph.operations:
        inverse = graph.made_by(operation.value(0), "ifft")
        if operation.name != "real" or inverse is None or not is_along_last(graph, inverse):
            continue
        spectrum = spectrum_of(graph, inverse.value(0)) or []
        signals = [graph.of(one.value(0)) for one in spectrum if one.name == "fft"]
        sizes = {known.shape[-1] for known in signals if known is not None}
        operations = (operation, inverse, *spectrum)
        if len(sizes) != 1 or not in_one_block(call, operations):
            continue
        new = of_half(call, operations) if is_free(call, operations[1:], operations) else {}
        if new:
            place = call.source.place(operation)
            assert place is not None
            yield Change(place.file, new, shown(operation, call.source))


def of_half(call: Call, operations: Sequence[Operation]) -> dict[cst.CSTNode, str]:
    """Return new code for a product of spectra whose real inverse is read; {} if the length of the
    signals has no name where it is needed."""
    source, (real, inverse, *spectrum) = call.source, operations
    transforms = [one for one in spectrum if one.name == "fft"]
    names = (source.expression(one.value(0), at=real) for one in transforms)
    name = next((one for one in names if one is not None and one.isidentifier()), None)
    places = [source.place(one) for one in (real, inverse, *transforms)]
    if None in places:
        return {}
    whole, back, *there = [one for one in places if one is not None]
    file = source.file(whole.file)
    first, first_place = transforms[-1], there[-1]
    new: dict[cst.CSTNode, str] = {}
    if file is None:
        return {}
    for place in there:
        code = renamed(file, place.node, "rfft")
        if code is None:
            return {}
        new[place.node] = code
    if name is None:
        argument = source.operands(first)[:1]
        if not argument or argument[0] is None or first_place.statement is whole.statement:
            return {}
        value = file.code(argument[0])
        name = name_for(first_place, value)
        code = renamed(file, first_place.node, "rfft", {argument[0]: name}) or ""
        new |= with_name(file, first_place, code, name, value)
        del new[first_place.node]
    inside = {node: code for node, code in new.items() if file.is_within(node, back.node)}
    code = renamed(file, back.node, "irfft", inside, f"n={name}.size(-1)")
    if code is None:
        return {}
    return {node: c for node, c in new.items() if node not in inside} | {whole.node: code}


def renamed(
    file: File,
    node: cst.BaseExpression,
    name: str,
    inside: Mapping[cst.CSTNode, str] | None = None,
    more: str = "",
) -> str | None:
    """Return the code of a call of another transform, with new code inside and one argument
    more."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    if name.removeprefix("i").removeprefix("r") != node.func.attr.value.removeprefix("i"):
        return None
    call = cst.ensure_type(node.visit(Swap(dict(inside or {}))), cst.Call)
    call = call.with_deep_changes(cst.ensure_type(call.func, cst.Attribute).attr, value=name)
    if more:
        extra = cst.ensure_type(cst.parse_expression(f"f({more})"), cst.Call).args
        call = call.with_changes(args=[*call.args, *extra])
    return file.code(call)


def find_halves(call: Call) -> Iterator[Change]:
    """Find `torch.fft.fft(x).abs()[..., : n // 2 + 1]`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        known = graph.of(operation.value(0))
        place = source.place(operation) if operation.name == "fft" else None
        if place is None or known is None or not is_of_real(graph, operation):
            continue
        reader = graph.sole_reader(operation.output)
        while reader is not None and reader.name in ("abs", "pow", "square", "contiguous"):
            reader = graph.sole_reader(reader.output)
        rank, half = len(known.shape), known.shape[-1] // 2 + 1
        part = None if reader is None else sliced(graph, reader, rank - 1)
        there = None if reader is None else source.place(reader)
        if part is None or there is None or part == WHOLE:
            continue
        stop = part.items[1].text or ""
        is_half = stop.isdigit() and int(stop) <= half
        file = source.file(there.file)
        if not is_half or file is None or "// 2" not in file.code(there.node):
            continue
        code = renamed(file, place.node, "rfft")
        if code is not None:
            yield Change(place.file, {place.node: code}, file.code(place.node))


RULES = (
    RecordedRule(
        name="real_convolution",
        family="algebra",
        why="the spectrum of a real signal repeats itself, and half of it takes half of the time",
        precondition="real signals of one length, transformed along the last dimension; only the "
        "real part of the result is read",
        find=find_products,
    ),
    RecordedRule(
        name="half_spectrum",
        family="algebra",
        why="the spectrum of a real signal repeats itself, and half of it takes half of the time",
        precondition="a real signal, transformed along the last dimension; the code reads at most "
        "the first half of the spectrum",
        find=find_halves,
    ),
)
