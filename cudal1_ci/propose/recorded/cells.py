"""Run a cell over all steps at once, where a loop called or computed it for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded import gates
from cudal1_ci.propose.recorded.batch import Batch
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, within
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.loop_lift import lift_of
from cudal1_ci.propose.recorded.purity import is_pure_frame
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import File, bracketed
from cudal1_ci.records.recording import Argument, RecordedValue

CELLS = {
    "gru_cell": ("GRUCell", "gru"),
    "lstm_cell": ("LSTMCell", "lstm"),
    "rnn_tanh_cell": ("RNNCell", "rnn_tanh"),
}
"""Operations of cells, with the module and the function over all steps."""
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@dataclass
class Steps(Batch):
    """A loop that carries nothing but the state of one cell."""

    cell: str = ""
    all_states: str = ""
    turns: int | None = None

    def statement(self, node: cst.BaseSmallStatement) -> None:
        """Write the steps of the cell, or another statement of the loop."""
        value = node.value if isinstance(node, cst.Assign) else None
        operations = self.loop.operations.get(value, []) if value is not None else []
        names = {one.name for one in operations}
        if not isinstance(value, cst.Call) or len(names) != 1 or not names <= CELLS.keys():
            super().statement(node)
            return
        module, function = CELLS[names.pop()]
        assert isinstance(node, cst.Assign)
        states = names_of(node.targets[0].target)
        given = [one.value for one in value.args if one.keyword is None and not one.star]
        num_states = 2 if function == "lstm" else 1
        if len(value.args) != 2 or len(given) != 2 or self.cell or len(node.targets) > 1:
            raise Refused
        if len(states) != num_states or names_of(given[1]) != states:
            raise Refused
        self.cell = self.loop.code(value.func)
        if not is_cell(self.loop.file, value, self.cell, module):
            raise Refused
        self.check_operations(operations)
        x = self.steps_first(self.lift.lift(given[0]))
        self.written(x, states, function, operations[0])

    def steps_first(self, x: Lifted) -> Lifted:
        """Return an input of all steps whose first or second dimension is the steps."""
        x = x if x.turns in (0, 1) and not x.is_kept else x.first()
        if x.turns is None or x.rank != 2:
            raise Refused
        return x

    def check_operations(self, operations: list[Operation]) -> None:
        """Refuse a cell without biases, and states and inputs that are no batches."""
        graph = self.loop.call.graph
        for one in operations:
            given, state, *weights = one.recorded.args
            tensors = [given.value, *(part.value for part in state.items or (state,))]
            if {graph.num_dims(each) for each in tensors} != {2}:
                raise Refused
            paths = [known.path for each in weights if (known := graph.of(each.value)) is not None]
            own = {path.rpartition(".")[0].rpartition(".")[2] for path in paths}
            ends = tuple(path.rpartition(".")[2] for path in paths)
            if own != {self.cell.rpartition(".")[2]} or ends != WEIGHTS:
                raise Refused

    def written(self, x: Lifted, states: list[str], function: str, operation: Operation) -> None:
        """Write a call of the function over all steps."""
        weights = [f"{self.cell}.{one}" for one in WEIGHTS]
        is_read = any(self.loop.is_read_after({one}) for one in states)
        finals = [[one] if is_read else [] for one in states]
        self.run(x, function, weights, states, finals)
        self.know(states[0], operation)

    def run(
        self,
        x: Lifted,
        function: str,
        weights: list[str],
        states: list[str],
        finals: Sequence[Sequence[str]],
    ) -> None:
        """Write a call over all steps, from these states, and bind names to the last ones."""
        first = [f"{one}.unsqueeze(0)" for one in states]
        start = first[0] if len(first) == 1 else f"({', '.join(first)})"
        names, is_read = [one.partition(".")[0] for one in states], any(finals)
        self.all_states = self.lift.free_name(f"{names[0]}_all")
        last = [self.lift.free_name(f"{one}_last") if is_read else "_" for one in names]
        self.lines.append(
            f"{', '.join([self.all_states, *last])} = torch.{function}({bracketed(x.code)}, "
            f"{start}, ({', '.join(weights)}), has_biases={len(weights) > 2}, num_layers=1, "
            f"dropout=0.0, train=torch.is_grad_enabled(), bidirectional=False, "
            f"batch_first={x.turns == 1})"
        )
        for some, value in zip(finals, last, strict=True):
            self.lines.extend(f"{name} = {value}.squeeze(0)" for name in some)
        self.turns = x.turns
        self.writes.has_effect |= is_read

    def know(self, name: str, operation: Operation) -> None:
        """Know a name as the states of all steps."""
        self.lift.known[name] = Lifted(self.all_states, 2, self.turns, is_computed=True)
        made = self.loop.call.graph.of(operation.output)
        self.lift.dtypes[name] = "" if made is None else made.dtype


@dataclass
class StepsByHand(Steps):
    """A loop that computes the steps of a cell, and carries nothing else."""

    frame: int = 0
    """The activation of the loop's function that is read."""
    operations: dict[cst.CSTNode, list[Operation]] = field(default_factory=dict)
    """Of this activation and of what it calls, by the statements of the loop."""
    steps: gates.Steps | None = None

    def read(self) -> None:
        """Find the steps. Raises: Refused, if the loop computes another thing."""
        source, graph = self.loop.call.source, self.loop.call.graph
        for one in graph.operations:
            statement = self.statement_of(one)
            if statement is not None:
                self.operations.setdefault(statement, []).append(one)
        made = sorted((o for some in self.operations.values() for o in some), key=index_of)
        steps = gates.steps_of(graph, made)
        self.inner = {number for one in steps.steps for number in one.operations}
        self.own: list[cst.BaseSmallStatement] = []
        self.kinds: dict[str, int] = {}
        """Names of the state (0) and of the cell (1)."""
        for statement in self.loop.body:
            if any(one.index in self.inner for one in self.operations.get(statement, [])):
                self.own.append(statement)
                self.read_names(statement, steps.steps[0])
            elif (pairs := aliases(statement)) and {o for _, o in pairs} <= self.bound():
                self.own.append(statement)
                self.kinds |= {name: self.kinds[o] for name, o in pairs if o in self.kinds}
        self.root = self.statement_of(steps.steps[0].root)
        scope = source.scope(self.loop.inside[0])
        values = steps.first_states()
        names = [
            [one for one, kind in self.kinds.items() if kind == at and is_held(scope, one, value)]
            for at, value in enumerate(values)
        ]
        if not all(names):
            raise Refused
        self.states = [
            some[0] if is_contiguous(graph.of(value)) else f"{some[0]}.contiguous()"
            for some, value in zip(names, values, strict=True)
        ]
        self.steps = steps

    def statement_of(self, operation: Operation) -> cst.CSTNode | None:
        """Return the statement of the loop in which an operation ran."""
        loop, frames = self.loop, self.loop.call.graph.recording.frames
        number, span = operation.recorded.frame, operation.recorded.span
        while number is not None and number != self.frame:
            called = frames[number]
            number, span = called.caller, called.call
        node = loop.file.node_at(span) if number is not None and span is not None else None
        if node is None:
            return None
        body = loop.body
        return next((one for one in (node, *loop.file.above(node)) if one in body), None)

    def read_names(self, statement: cst.BaseSmallStatement, step: gates.Step) -> None:
        """Know which names a statement binds to the new state and to the new cell."""
        made = [o for o in self.operations[statement] if o.index <= step.root.index]
        after = [o for o in self.loop.inside if made and o.index > made[-1].index]
        scope = self.loop.call.source.scope(after[0]) if after else {}
        for name in stored_names(statement):
            for kind, value in enumerate(step.made):
                if is_held(scope, name, value):
                    self.kinds[name] = kind

    def bound(self) -> set[str]:
        return {name for one in self.own for name in stored_names(one)}

    def statement(self, node: cst.BaseSmallStatement) -> None:
        """Write the steps where the new state is made; leave out the rest of them."""
        if node not in self.own:
            Batch.statement(self, node)
            return
        assert self.steps is not None
        if node is self.root:
            x = self.input(self.steps)
            self.check_own(x)
            self.stored |= self.bound() - self.kinds.keys()
            finals = [
                [o for o, at in self.kinds.items() if at == kind and self.loop.is_read_after({o})]
                for kind in range(len(self.states))
            ]
            x_all = self.steps_first(self.lift.lift(x))
            weights = [
                self.lift.kept(code, name) if code.startswith("torch.") else code
                for code, name in zip(self.weights(self.steps), WEIGHTS, strict=False)
            ]
            bias = "".join(weights[2:])
            weights = [one or f"torch.zeros_like({bias})" for one in weights]
            self.run(x_all, self.steps.steps[0].function, weights, self.states, finals)
            self.cell = self.all_states
        if self.cell:
            for name in stored_names(node):
                if self.kinds.get(name) == 0:
                    self.know(name, self.steps.steps[0].root)

    def weights(self, steps: gates.Steps) -> list[str]:
        """Return code of the weights at the loop. Raises: Refused, if some have none."""
        source, at = self.loop.call.source, self.loop.inside[0]
        codes: dict[int, str] = {}
        for term in (one for gate in steps.steps[0].gates for one in gate.terms):
            for value in (term.weight, term.bias):
                code = source.expression(value, at)
                if value is not None and code is not None:
                    codes[value] = code
        if any(names_in(cst.parse_expression(one)) & self.lift.changing for one in codes.values()):
            raise Refused
        try:
            return gates.Weights(steps, codes, self.states[0].partition(".")[0]).written()
        except KeyError:
            raise Refused from None

    def input(self, steps: gates.Steps) -> cst.BaseExpression:
        """Return the expression that a step reads as its input."""
        source, graph, file = self.loop.call.source, self.loop.call.graph, self.loop.file
        values = steps.inputs()
        makers = [graph.made_by(one) for one in values]
        places = {None if o is None else source.place(o) for o in makers}
        nodes = {None if one is None else one.node for one in places}
        node = nodes.pop()
        if nodes or any(o is not None and o.recorded.frame != self.frame for o in makers):
            raise Refused
        inside = cst.ensure_type(self.loop.node, cst.For).body
        if node is not None and file.is_within(node, inside):
            parent = file.parents[node]
            if isinstance(parent, cst.Assign) and parent not in self.own:
                return parent.targets[0].target
            return node
        ends = [0, *(one.root.index for one in steps.steps)]
        for target in within(self.loop.target):
            if isinstance(target, cst.Name) and all(
                any(is_held(source.scope(o), target.value, value) for o in self.between(*span))
                for value, span in zip(values, pairwise(ends), strict=True)
            ):
                return target
        raise Refused

    def between(self, start: int, end: int) -> list[Operation]:
        """Return the operations of the loop from one operation to another one."""
        return [one for one in self.loop.inside if start <= one.index <= end]

    def check_own(self, x: cst.BaseExpression) -> None:
        """Refuse statements of the steps that do more, and other activations that differ."""
        source, graph = self.loop.call.source, self.loop.call.graph
        for statement in self.own:
            for one in self.operations.get(statement, []):
                place = source.place(one)
                above = [] if place is None else [place.node, *self.loop.file.above(place.node)]
                if one.index not in self.inner and x not in above:
                    raise Refused
        for number in graph.called_by.get(self.frame, []):
            span = graph.recording.frames[number].call
            node = None if span is None else self.loop.file.node_at(span)
            is_inside = node is not None and self.loop.file.is_within(node, self.loop.node)
            if is_inside and not is_pure_frame(source, number):
                raise Refused


def index_of(operation: Operation) -> int:
    return operation.index


def is_contiguous(value: RecordedValue | None) -> bool:
    """Return whether a state of two dimensions has its elements in order."""
    return value is not None and value.stride == (value.shape[1], 1)


def is_held(scope: dict[str, Argument], name: str, value: int | None) -> bool:
    """Return whether a local holds a tensor."""
    return name in scope and scope[name].value is not None and scope[name].value == value


def aliases(node: cst.BaseSmallStatement) -> list[tuple[str, str]]:
    """Return the names that `h, c = new_h, new_c` binds, with those that it reads."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return []
    targets, values = names_of(node.targets[0].target), names_of(node.value)
    return [*zip(targets, values, strict=True)] if len(targets) == len(values) else []


def names_of(node: cst.BaseExpression) -> list[str]:
    """Return the names that an expression is, in order; [] for another one."""
    parts = [one.value for one in node.elements] if isinstance(node, cst.Tuple) else [node]
    names = [one.value for one in parts if isinstance(one, cst.Name)]
    return names if len(names) == len(parts) else []


def is_cell(file: File, node: cst.Call, name: str, module: str) -> bool:
    """Return whether `self.name` is a cell with biases, as its class makes it."""
    owner = next((one for one in file.above(node) if isinstance(one, cst.ClassDef)), None)
    made = [
        one.value
        for one in (within(owner) if owner is not None else ())
        if isinstance(one, cst.Assign)
        and any(file.code(target.target) == name for target in one.targets)
    ]
    if not name.startswith("self.") or len(made) != 1 or not isinstance(made[0], cst.Call):
        return False
    keywords = {one.keyword.value for one in made[0].args if one.keyword is not None}
    plain = [one for one in made[0].args if one.keyword is None]
    is_plain = len(plain) <= 2 and not any(one.star for one in made[0].args)
    is_its = file.code(made[0].func) in (f"nn.{module}", f"torch.nn.{module}")
    return is_its and is_plain and not keywords - {"input_size", "hidden_size", "device", "dtype"}


def find_cells(call: Call) -> Iterator[Change]:
    """Find `state = self.cell(x[:, t], state)` in a loop over steps, and a cell written out."""
    has_gates = {"tanh", "relu"} & {one.name for one in call.graph.operations}
    for loop in loops_in(call):
        if has_gates and isinstance(loop.node, cst.For) and (by_hand := cell_of(loop)):
            yield by_hand
            continue
        lift = lift_of(loop) if isinstance(loop.node, cst.For) else None
        if lift is None or not names_in_loop(loop) & CELLS.keys():
            continue
        steps = Steps(loop, lift)
        try:
            change = steps.change()
        except Refused as refused:
            call.miss(loop.inside[0], str(refused), loop.node)
            continue
        if steps.cell:
            yield change


def cell_of(loop: Loop) -> Change | None:
    """Return the change of a loop that computes a cell by hand; None for another loop."""
    changes: list[Change] = []
    for frame in {one.recorded.frame for one in loop.inside}:
        lift = lift_of(loop)
        if lift is None or frame is None:
            return None
        inside = tuple(one for one in loop.inside if one.recorded.frame == frame)
        steps = StepsByHand(replace(loop, inside=inside), lift, frame=frame)
        try:
            steps.read()
            changes.append(steps.change())
        except Refused:
            return None
    return changes[0] if all(one.new == changes[0].new for one in changes) else None


def names_in_loop(loop: Loop) -> set[str]:
    return {one.name for one in loop.inside}


RULES = (
    RecordedRule(
        name="cell_over_steps",
        family="loops",
        why="one function runs the cell over all steps, where the loop called or computed it for "
        "each",
        precondition="the loop carries the state of the cell alone; with no step at all it raises",
        find=find_cells,
    ),
)
