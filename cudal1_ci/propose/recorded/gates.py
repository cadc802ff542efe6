"""Recognize an LSTM, a GRU or an RNN that a loop computes by hand, by what its operations read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from cudal1_ci.propose.recorded.graph import Graph, Operation, literal
from cudal1_ci.propose.recorded.lifted import Refused
from cudal1_ci.propose.recorded.patterns import Leaf, Match, given, matches, parsed
from cudal1_ci.records.recording import Argument

LSTM = "mul(O, tanh(add(mul(F, C), mul(I, G))))"
GATES = {"I": "sigmoid", "F": "sigmoid", "G": "tanh", "O": "sigmoid"}
"""Gates with their activations, in the order of PyTorch's weights."""
GRU = (
    "add(mul(sub(1, Z), A), mul(Z, B))",
    "add(sub(A, mul(Z, A)), mul(Z, B))",
    "add(A, mul(Z, sub(B, A)))",
    "sub(A, mul(Z, sub(A, B)))",
    "lerp(A, B, Z)",
)
"""A where the gate Z is closed, B where it is open: the old state, and what is written."""
Row: TypeAlias = tuple[str, int, int]
"""Code of weights, and which of how many equal parts of their rows a gate has."""


@dataclass(frozen=True)
class Term:
    """A product of weights with an input, the state, or both of them joined; or a bias."""

    weight: int | None
    bias: int | None
    part: int
    num_parts: int
    """Which of how many equal parts of its outputs the gate reads."""
    is_reset: bool
    """Whether the reset gate is applied to it."""
    read: range = range(0)
    """Where among the values that the step reads are those of the product."""
    is_turned: bool = False
    """Whether the weights have a column for each output."""


@dataclass(frozen=True)
class Gate:
    """A sum of products and biases."""

    terms: tuple[Term, ...]
    is_negative: bool = False
    """Whether PyTorch's gate is open where this one is closed."""


@dataclass(frozen=True)
class Step:
    """One step of a cell."""

    function: str
    """Which runs all steps."""
    gates: tuple[Gate, ...]
    """In the order of PyTorch's weights."""
    read: tuple[int, ...]
    """Values that the products read, those that are joined one by one."""
    carried: int | None
    """What the step reads besides: the cell, or the state of a GRU."""
    made: tuple[int, ...]
    """The new state, and the new cell."""
    root: Operation
    """The operation that makes the new state."""
    operations: frozenset[int]


@dataclass(frozen=True)
class Steps:
    """All steps of a cell."""

    steps: tuple[Step, ...]
    is_state: tuple[bool, ...]
    """Which of the values that a step reads are the state."""

    def inputs(self) -> list[int]:
        """Return the input of each step. Raises: Refused, if a step has several."""
        found = [self.chosen(one, is_state=False) for one in self.steps]
        if any(len(some) != 1 for some in found):
            raise Refused
        return [some.pop() for some in found]

    def first_states(self) -> tuple[int, ...]:
        """Return the state before the first step, and the cell. Raises: Refused, if there are
        several states."""
        first = self.steps[0]
        (*found,) = self.chosen(first, is_state=True)
        if len(found) != 1:
            raise Refused
        return (*found, *([] if first.carried is None else [first.carried]))[: len(first.made)]

    def chosen(self, step: Step, *, is_state: bool) -> set[int]:
        """Return the values that are the state, or that are not."""
        pairs = zip(step.read, self.is_state, strict=True)
        return {value for value, known in pairs if known == is_state}


def steps_of(graph: Graph, operations: Sequence[Operation]) -> Steps:
    """Return the cell that operations of a loop compute. Raises: Refused, if they compute another
    thing, or a step reads what no step before it made."""
    for kind in (lstm_step, gru_step, rnn_step):
        steps = tuple(one for root in operations for one in kind(graph, root))
        if len(steps) > 1:
            return checked(graph, steps)
    raise Refused


def checked(graph: Graph, steps: tuple[Step, ...]) -> Steps:
    """Return steps that follow each other. Raises: Refused, for others."""
    flags = set()
    for before, after in pairwise(steps):
        is_next = after.carried in (None, before.made[-1])
        if not is_next or (after.function, after.gates) != (before.function, before.gates):
            raise Refused
        flags.add(tuple(value == before.made[0] for value in after.read))
    is_state = flags.pop()
    if flags or len(steps[0].read) != len(is_state):
        raise Refused
    found = Steps(steps, is_state)
    values = [*found.first_states(), steps[0].made[0]]
    known = [one for value in values if (one := graph.of(value)) is not None]
    shapes, dtypes = {one.shape for one in known}, {one.dtype for one in known}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2 or len(dtypes) != 1:
        raise Refused
    ((size, _),) = shapes
    if any(one is None or one.shape[0] != size for one in map(graph.of, found.inputs())):
        raise Refused
    return found


def forms(graph: Graph, root: Operation, *patterns: str) -> Iterator[Match]:
    """Yield the ways in which an operation ends one of these patterns."""
    whole = Argument(kind="value", value=root.output)
    for pattern in patterns if root.output is not None else ():
        yield from matches(parsed(pattern), whole, Leaf(whole, root, 0), Match(graph))


def lstm_step(graph: Graph, root: Operation) -> Iterator[Step]:
    """Yield the step of an LSTM that an operation ends, if it ends one."""
    for found in forms(graph, root, LSTM):
        reader = Reader(graph)
        try:
            gates = tuple(reader.gate(found.value(one), kind) for one, kind in GATES.items())
        except Refused:
            continue
        new_cell = next(one.output for one in found.operations if one.name == "add")
        if new_cell is not None and found.value("C") is not None:
            yield reader.step("lstm", gates, root, found, found.value("C"), new_cell)
            return


def gru_step(graph: Graph, root: Operation) -> Iterator[Step]:
    """Yield the step of a GRU that an operation ends, if it resets products of the state."""
    for found in forms(graph, root, *GRU):
        for new, old in ("AB", "BA"):
            reader, state = Reader(graph), found.value(old)
            try:
                written = reader.gate(found.value(new), "tanh")
                reset = reader.gate(reader.reset, "sigmoid")
                update = reader.gate(found.value("Z"), "sigmoid")
            except Refused:
                continue
            if state is not None:
                reader.read.append(state)
                gates = reset, replace(update, is_negative=old == "A"), written
                yield reader.step("gru", gates, root, found, state)
                return


def rnn_step(graph: Graph, root: Operation) -> Iterator[Step]:
    """Yield the step of an RNN that an operation ends, if it may end one."""
    if root.name in ("tanh", "relu"):
        reader = Reader(graph)
        try:
            gates = (reader.gate(root.output, root.name),)
        except Refused:
            return
        if len(reader.read) > 1 and reader.reset is None:
            yield reader.step(f"rnn_{root.name}", gates, root, Match(graph))


class Reader:
    """Read what gates are computed of, with the operations that this takes."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.read: list[int] = []
        self.operations: set[int] = set()
        self.reset: int | None = None
        """The value of the reset gate."""

    def step(
        self,
        function: str,
        gates: tuple[Gate, ...],
        root: Operation,
        found: Match,
        carried: int | None = None,
        *more: int,
    ) -> Step:
        """Return the step that gates make."""
        inner = frozenset({one.index for one in found.operations} | self.operations)
        made = root.output or 0, *more
        return Step(function, gates, tuple(self.read), carried, made, root, inner)

    def gate(self, value: int | None, activation: str) -> Gate:
        """Return what a gate's activation reads. Raises: Refused."""
        size = self.size(value)
        value, start = self.whole(value)
        made = self.graph.made_by(value, activation)
        if made is None or len(given(made)) != 1:
            raise Refused
        self.operations.add(made.index)
        return Gate(tuple(self.terms(made.value(0), start, size)))

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

    def terms(
        self, value: int | None, start: int, size: int, *, is_reset: bool = False
    ) -> Iterator[Term]:
        """Yield the terms of a sum, of which a gate reads a part. Raises: Refused."""
        value, more = self.whole(value)
        start += more
        made = self.graph.made_by(value, "add", "mul")
        if made is not None:
            if len(made.recorded.args) != 2 or made.recorded.kwargs:
                raise Refused
            self.operations.add(made.index)
            values = [one.value for one in made.recorded.args]
            if made.name == "mul":
                is_gate = [self.graph.made_by(self.whole(one)[0], "sigmoid") for one in values]
                first, second = values if is_gate[0] else values[::-1]
                if self.reset or self.size(first) != size or self.size(second) != size or start:
                    raise Refused
                self.reset, values, is_reset = first, [second], True
            for one in values:
                yield from self.terms(one, start, size, is_reset=is_reset)
            return
        num_parts, rest = divmod(self.size(value), size)
        part = start // size
        if rest or start % size or part >= num_parts:
            raise Refused
        product = self.graph.made_by(value, "linear", "matmul")
        if product is None and self.graph.num_dims(value) != 1:
            raise Refused
        term = Term(None, value, part, num_parts, is_reset)
        yield term if product is None else self.product(product, term)

    def product(self, made: Operation, term: Term) -> Term:
        """Return a product with weights."""
        weight, is_turned = made.value(1, "weight"), made.name == "matmul"
        turned = self.graph.made_by(weight, "t", "T")
        if is_turned and turned is not None:
            weight, is_turned = turned.value(0), False
            self.operations.add(turned.index)
        if weight is None or self.graph.num_dims(weight) != 2:
            raise Refused
        whole = made.value(0)
        joined = self.graph.made_by(whole, "cat", "concat")
        is_last = joined is not None and self.graph.dims(joined.literal(1, "dim"), whole) == (1,)
        if joined is not None and is_last:
            self.operations.add(joined.index)
            read = [one.value for one in joined.recorded.args[0].items]
        else:
            read = [whole]
        values = [self.known(one) for one in read if one is not None]
        if len(values) != len(read) or any(self.graph.num_dims(one) != 2 for one in values):
            raise Refused
        self.operations.add(made.index)
        self.read += values
        places = range(len(self.read) - len(values), len(self.read))
        bias = made.value(2, "bias")
        return replace(term, weight=weight, bias=bias, read=places, is_turned=is_turned)

    def known(self, value: int) -> int:
        """Return the first value that the step read of the same part of the same tensor."""
        made = self.graph.made_by(value, "getitem", "select")
        if made is not None:
            for one in self.read:
                other = self.graph.made_by(one, made.name)
                if other is not None and other.recorded.args == made.recorded.args:
                    self.operations |= {made.index} - {other.index}
                    return one
        return value


@dataclass(frozen=True)
class Weights:
    """Write the weights of a cell as PyTorch has them."""

    steps: Steps
    codes: dict[int, str]
    """Of weights and biases."""
    state: str
    """Code of the state before the first step."""

    def written(self) -> list[str]:
        """Return code of the weights of inputs and of states, and of their biases, if there are
        some; "" for one of zeros. Raises: Refused, KeyError."""
        gates = self.steps.steps[0].gates
        found = [self.rows_of(one) for one in gates]
        signs = [one.is_negative for one in gates]
        made = [self.joined([some[at] for some, _ in found], signs) for at in (0, 1)]
        sides = {at for _, biases in found for at in biases}
        for at in (0, 1) if sides else ():
            rows = [biases.get(at) or zeros(biases) for _, biases in found]
            made.append(self.joined(rows, signs) if at in sides else "")
        return made

    def rows_of(self, gate: Gate) -> tuple[dict[int, Row], dict[int, Row]]:
        """Return the weights of a gate and its biases: of the input (0), and of the state (1)."""
        weights: dict[int, Row] = {}
        biases: dict[int, Row] = {}
        has_reset = any(one.is_reset for one in gate.terms)
        for one in sorted(gate.terms, key=lambda one: one.weight is None):
            part, num_parts = one.part, one.num_parts
            flags = [self.steps.is_state[at] for at in one.read]
            if one.weight is not None:
                code = self.codes[one.weight] + ".t()" * one.is_turned
                for at in flags:
                    if at in weights or (has_reset and at != one.is_reset):
                        raise Refused
                    weights[at] = (code + self.columns(flags, is_state=at), part, num_parts)
            if one.bias is not None:
                wanted = one.is_reset or flags == [True]
                at = wanted if has_reset or wanted not in biases else not wanted
                if at in biases:
                    raise Refused
                biases[at] = (self.codes[one.bias], part, num_parts)
        if len(weights) != 2:
            raise Refused
        return weights, biases

    def columns(self, flags: list[bool], *, is_state: bool) -> str:
        """Return the subscript of the columns that are for the state, or for the input."""
        if len(flags) < 2:
            return ""
        size = f"{self.state}.size(1)"
        if flags[0]:  # the state comes first
            return f"[:, : {size}]" if is_state else f"[:, {size} :]"
        return f"[:, -{size} :]" if is_state else f"[:, : -{size}]"

    def joined(self, rows: list[Row], is_negative: list[bool]) -> str:
        """Return the rows of all gates in PyTorch's order, contiguous: cuDNN takes no other."""
        codes, parts = {code for code, _, _ in rows}, [part for _, part, _ in rows]
        if len(codes) == 1 and not any(is_negative):
            code, num_parts = codes.pop(), rows[0][2]
            if sorted(parts) != [*range(num_parts)]:
                raise Refused
            if parts != sorted(parts):
                order = ", ".join(map(str, parts))
                return f"torch.cat([{code}.chunk({num_parts})[k] for k in ({order})])"
            return f"{code}.contiguous()" if code.endswith((".t()", "]")) else code
        pieces = (
            "-" * negative + code + f".chunk({num_parts})[{part}]" * (num_parts > 1)
            for (code, part, num_parts), negative in zip(rows, is_negative, strict=True)
        )
        return f"torch.cat([{', '.join(pieces)}])"


def zeros(biases: dict[int, Row]) -> Row:
    """Return zeros in place of a missing bias, shaped like the gate's other one. Raises: Refused,
    if the gate has no bias."""
    if not biases:
        raise Refused
    ((code, part, num_parts),) = biases.values()
    return (f"torch.zeros_like({code})", part, num_parts)
