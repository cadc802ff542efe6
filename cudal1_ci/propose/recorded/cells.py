"""Run a cell of PyTorch over all steps at once, where a loop called it for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.batch import Batch
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, within
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import File, bracketed

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
        x = self.lift.lift(given[0])
        x = x if x.turns in (0, 1) and not x.is_kept else x.first()
        if x.turns is None or x.rank != 2:
            raise Refused
        self.written(x, states, function, operations[0])

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
        weights = ", ".join(f"{self.cell}.{one}" for one in WEIGHTS)
        first = [f"{one}.unsqueeze(0)" for one in states]
        start = first[0] if len(first) == 1 else f"({', '.join(first)})"
        all_states = self.lift.free_name(f"{states[0]}_all")
        is_read = [self.loop.is_read_after({one}) for one in states]
        last = [self.lift.free_name(f"{one}_last") if any(is_read) else "_" for one in states]
        self.lines.append(
            f"{', '.join([all_states, *last])} = torch.{function}({bracketed(x.code)}, {start}, "
            f"({weights}), has_biases=True, num_layers=1, dropout=0.0, train=self.training, "
            f"bidirectional=False, batch_first={x.turns == 1})"
        )
        for name, value in zip(states, last, strict=True):
            if any(is_read):
                self.lines.append(f"{name} = {value}.squeeze(0)")
        self.lift.known[states[0]] = Lifted(all_states, 2, x.turns, is_computed=True)
        made = self.loop.call.graph.of(operation.output)
        self.lift.dtypes[states[0]] = "" if made is None else made.dtype
        self.has_effect = self.has_effect or any(is_read)


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
    """Find `state = self.cell(x[:, t], state)` in a loop over steps."""
    for loop in loops_in(call):
        lift = loop.lift() if isinstance(loop.node, cst.For) else None
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


def names_in_loop(loop: Loop) -> set[str]:
    return {one.name for one in loop.inside}


RULES = (
    RecordedRule(
        name="cell_over_steps",
        family="loops",
        why="one function runs the cell over all steps, where the loop called it for each",
        precondition="the loop carries the state of the cell alone; with no step at all it raises",
        find=find_cells,
    ),
)
