"""Recognize an LSTM whose steps a loop computes by hand, by what its operations read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from cudal1_ci.propose.recorded.graph import Graph, Operation, literal
from cudal1_ci.propose.recorded.lifted import Refused
from cudal1_ci.propose.recorded.patterns import Leaf, Match, matches, parsed
from cudal1_ci.records.recording import Argument

CELL = "mul(O, tanh(add(mul(F, C), mul(I, G))))"
GATES = {"I": "sigmoid", "F": "sigmoid", "G": "tanh", "O": "sigmoid"}
"""Gates with their activations, in the order of PyTorch's weights."""
Flags: TypeAlias = tuple[bool, ...]
"""Whether what a product reads is the state, for each of its parts."""


@dataclass(frozen=True)
class Product:
    """A product of weights with an input, the state, or both of them joined."""

    weight: int
    bias: int | None
    is_turned: bool
    """Whether the weights have a column for each output."""
    num_read: int


@dataclass(frozen=True)
class Gate:
    """A sum of products and biases, or one of its four equal parts."""

    products: tuple[Product, ...]
    biases: tuple[int, ...]
    part: int | None


@dataclass(frozen=True)
class Step:
    """One step of an LSTM."""

    gates: tuple[Gate, ...]
    """By `GATES`."""
    read: tuple[int, ...]
    """Values that the products read, those that are joined one by one."""
    cell: int
    new_cell: int
    new_state: int
    root: Operation
    """The operation that makes the new state."""
    operations: frozenset[int]


@dataclass(frozen=True)
class Steps:
    """All steps of an LSTM."""

    steps: tuple[Step, ...]
    is_state: tuple[bool, ...]
    """Which of the values that a step reads are the state."""

    def inputs(self) -> list[int]:
        """Return the input of each step. Raises: Refused, if a step has several."""
        found = [self.chosen(one, is_state=False) for one in self.steps]
        if any(len(some) != 1 for some in found):
            raise Refused
        return [some.pop() for some in found]

    def first_state(self) -> int:
        """Return the state before the first step. Raises: Refused, if there are several."""
        (*found,) = self.chosen(self.steps[0], is_state=True)
        if len(found) != 1:
            raise Refused
        return found[0]

    def chosen(self, step: Step, *, is_state: bool) -> set[int]:
        """Return the values that are the state, or that are not."""
        pairs = zip(step.read, self.is_state, strict=True)
        return {value for value, known in pairs if known == is_state}


def steps_of(graph: Graph, operations: Sequence[Operation]) -> Steps:
    """Return the LSTM that operations of a loop compute. Raises: Refused, if they compute another
    thing, or a step reads what no step before it made."""
    steps = tuple(one for root in operations for one in step_of(graph, root))
    if len(steps) < 2:
        raise Refused
    flags = set()
    for before, after in pairwise(steps):
        if after.cell != before.new_cell or after.gates != before.gates:
            raise Refused
        flags.add(tuple(value == before.new_state for value in after.read))
    is_state = flags.pop()
    if flags or len(steps[0].read) != len(is_state):
        raise Refused
    found = Steps(steps, is_state)
    values = [found.first_state(), steps[0].cell, steps[0].new_state]
    known = [one for value in values if (one := graph.of(value)) is not None]
    shapes, dtypes = {one.shape for one in known}, {one.dtype for one in known}
    if len(shapes) != 1 or len(shapes.pop()) != 2 or len(dtypes) != 1:
        raise Refused
    return found


def step_of(graph: Graph, root: Operation) -> Iterator[Step]:
    """Yield the step that an operation ends, if it ends one."""
    if root.name != "mul" or root.output is None:
        return
    whole = Argument(kind="value", value=root.output)
    for found in matches(parsed(CELL), whole, Leaf(whole, root, 0), Match(graph)):
        reader = Reader(graph)
        try:
            gates = tuple(reader.gate(found.value(one), kind) for one, kind in GATES.items())
        except Refused:
            continue
        cell = found.value("C")
        new_cell = next(one.output for one in found.operations if one.name == "add")
        inner = {one.index for one in found.operations} | reader.operations
        if cell is not None and new_cell is not None:
            read = tuple(reader.read)
            yield Step(gates, read, cell, new_cell, root.output, root, frozenset(inner))
            return


class Reader:
    """Read what gates are computed of, with the operations that this takes."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.read: list[int] = []
        self.operations: set[int] = set()

    def gate(self, value: int | None, activation: str) -> Gate:
        """Return what a gate's activation reads. Raises: Refused."""
        size = self.size(value)
        value, start = self.whole(value)
        made = self.graph.made_by(value, activation)
        if made is None or len(made.recorded.args) != 1:
            raise Refused
        self.operations.add(made.index)
        value, more = self.whole(made.value(0))
        if self.size(value) not in (size, 4 * size) or (start + more) % size:
            raise Refused
        products: list[Product] = []
        biases: list[int] = []
        for term in self.terms(value):
            product = self.graph.made_by(term, "linear", "matmul")
            if product is None and self.graph.num_dims(term) == 1:
                biases.append(term)
            else:
                products.append(self.product(product))
        part = None if self.size(value) == size else (start + more) // size
        return Gate(tuple(products), tuple(biases), part)

    def size(self, value: int | None) -> int:
        """Return the size of a value's last dimension."""
        known = self.graph.of(value)
        if known is None or not known.shape:
            raise Refused
        return known.shape[-1]

    def whole(self, value: int | None) -> tuple[int | None, int]:
        """Return the value that another one is a part of along the last dimension, and where the
        part begins."""
        start = 0
        while (made := self.graph.made_by(value, "chunk", "split", "getitem")) is not None:
            if made.name == "getitem":
                start += self.slice_start(made)
            elif self.graph.is_last_dim(made, 2):
                at = made.recorded.outputs.index(value)
                start += sum(map(self.size, made.recorded.outputs[:at]))
            else:
                raise Refused
            self.operations.add(made.index)
            value = made.value(0)
        return value, start

    def slice_start(self, made: Operation) -> int:
        """Return where `x[:, a:b]` begins. Raises: Refused, for another subscript."""
        given = made.argument(1)
        items = given.items if given is not None and given.kind == "tuple" else ()
        parts = [[literal(one) for one in item.items] for item in items if item.kind == "slice"]
        size = self.size(made.value(0))
        is_plain = len(parts) == len(items) == self.graph.num_dims(made.value(0)) == 2
        if not is_plain or parts[0] != [None] * 3 or parts[1][2] is not None:
            raise Refused
        start = parts[1][0] or 0
        if not isinstance(start, int):
            raise Refused
        return start % size

    def terms(self, value: int | None) -> Iterator[int]:
        """Yield the terms of a sum."""
        made = self.graph.made_by(value, "add")
        if made is None and value is not None:
            yield value
        elif made is not None and len(made.recorded.args) == 2 and not made.recorded.kwargs:
            self.operations.add(made.index)
            for one in made.recorded.args:
                yield from self.terms(one.value)
        else:
            raise Refused

    def product(self, made: Operation | None) -> Product:
        """Return a product with weights."""
        weight = None if made is None else made.value(1, "weight")
        if made is None or weight is None or self.graph.num_dims(weight) != 2:
            raise Refused
        given = made.value(0)
        joined = self.graph.made_by(given, "cat", "concat")
        is_last = joined is not None and self.graph.dims(joined.literal(1, "dim"), given) == (1,)
        if joined is not None and is_last:
            self.operations.add(joined.index)
            read = [one.value for one in joined.recorded.args[0].items]
        else:
            read = [given]
        values = [one for one in read if one is not None]
        if len(values) != len(read) or any(self.graph.num_dims(one) != 2 for one in values):
            raise Refused
        self.operations.add(made.index)
        self.read += values
        is_turned = made.name == "matmul"
        return Product(weight, made.value(2, "bias"), is_turned, len(values))


@dataclass(frozen=True)
class Weights:
    """Write the weights of an LSTM as PyTorch has them."""

    steps: Steps
    codes: dict[int, str]
    """Of weights and biases."""
    state: str
    """Code of the state before the first step."""

    def written(self) -> list[str]:
        """Return code of the weights of inputs and of states, and of up to two biases. Raises:
        Refused, KeyError."""
        gates, read = self.steps.steps[0].gates, iter(self.steps.is_state)
        parts = [one.part for one in gates]
        found: list[list[tuple[str, Flags]]] = []
        for gate in gates:
            by_kind: dict[bool, tuple[str, Flags]] = {}
            biases = [*gate.biases]
            for one in gate.products:
                flags = tuple(next(read) for _ in range(one.num_read))
                if set(flags) & by_kind.keys() or len({*flags}) != len(flags):
                    raise Refused
                code = self.codes[one.weight] + ".t()" * one.is_turned
                by_kind |= dict.fromkeys(flags, (code, flags))
                biases += [one.bias] if one.bias is not None else []
            if len(by_kind) != 2 or len(biases) > 2:
                raise Refused
            listed = [(self.codes[one], ()) for one in biases]
            found.append([by_kind[False], by_kind[True], *listed])
        if len({len(one) for one in found}) != 1:
            raise Refused
        made = []
        for at, given in enumerate(zip(*found, strict=True)):
            flags, *others = {one[1] for one in given}
            if others:
                raise Refused
            code = self.rows([one[0] for one in given], parts)
            code += self.columns(flags, is_state=at == 1)
            is_view = code.endswith((".t()", "]"))
            made.append(f"{code}.contiguous()" if is_view else code)  # cuDNN takes no other
        return made

    def columns(self, flags: Flags, *, is_state: bool) -> str:
        """Return the subscript of the columns that are for the state, or for the input."""
        if len(flags) < 2:
            return ""
        size = f"{self.state}.size(1)"
        if flags[0]:  # the state comes first
            return f"[:, : {size}]" if is_state else f"[:, {size} :]"
        return f"[:, -{size} :]" if is_state else f"[:, : -{size}]"

    def rows(self, codes: list[str], parts: list[int | None]) -> str:
        """Return the rows of all gates in PyTorch's order."""
        if parts == [None] * 4:
            return f"torch.cat([{', '.join(codes)}])"
        if sorted(-1 if one is None else one for one in parts) != [0, 1, 2, 3] or len({*codes}) > 1:
            raise Refused
        if parts == [0, 1, 2, 3]:
            return codes[0]
        order = ", ".join(map(str, parts))
        return f"torch.cat([{codes[0]}.chunk(4)[k] for k in ({order})])"
