"""Keep tables of positions, and masks, that each call makes of lengths and numbers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import libcst as cst

from cudal1_ci.propose.recorded.graph import CASTS, VIEWS, Operation, flat, values_in
from cudal1_ci.propose.recorded.purity import WITH_STATE, definition_of, is_pure
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import IMPURE, File
from cudal1_ci.propose.recorded.table_code import Body, Unfit, decorators
from cudal1_ci.records import TextProgram

MIN_LAUNCHES, MIN_SHARE = 4, 0.05
ALIASES = CASTS | VIEWS | {"getitem", "chunk", "split", "unbind", "select", "narrow", "detach"}
ALIASES |= {"diagonal", "unfold", "broadcast_to", "view_as", "as_strided", "meshgrid", "numpy"}
ALIASES |= {"broadcast_tensors", "expand", "tensor_split", "data", "ravel", "real", "imag"}
ALIASES |= {"expand_as", "reshape_as", "swapdims", "moveaxis", "t", "H", "mH", "squeeze_"}
BY_AUTOCAST = {"matmul", "rmatmul", "einsum", "tensordot", "addmm", "baddbmm", "linear", "addmv"}
BY_AUTOCAST |= {"conv1d", "conv2d", "conv3d", "chain_matmul", "multi_dot", "addbmm", "mv"}
BY_AUTOCAST |= {"inner", "dot", "vdot", "addr", "cdist", "bilinear"}
"""Operations whose dtype depends on where the call stands."""
UNKEPT = IMPURE | BY_AUTOCAST | {"cuda", "numpy", "empty", "empty_like", "new_empty", "data_ptr"}


@dataclass(frozen=True)
class Run:
    """Consecutive statements of one activation that make a table."""

    frame: int
    file: File
    function: cst.FunctionDef
    statements: tuple[cst.BaseStatement, ...]
    operations: tuple[Operation, ...]
    later: tuple[cst.BaseStatement, ...]


def find_tables(call: Call) -> Iterator[Change]:
    """Find rotary tables, window indexes and masks that read no tensor of the call."""
    tables = Tables(call)
    covered: set[int] = set()
    found: dict[cst.FunctionDef, list[list[Change]]] = {}
    for number, frame in enumerate(call.graph.recording.frames):
        file = call.source.file(frame.file)
        function = None if file is None else definition_of(file, frame)
        if file is None or function is None:
            continue
        changes = []
        for run in tables.runs(number, file, function):
            indexes = {one.index for one in run.operations}
            if indexes <= covered:
                continue
            try:
                changes.append(tables.change(run))
            except Unfit:
                continue
            covered |= indexes
        if changes or not tables.operations_below(number) <= covered:
            found.setdefault(function, []).append(changes)
    for activations in found.values():
        if all(same(first, second) for first, second in pairwise(activations)):
            yield from activations[0]


def same(first: Sequence[Change], second: Sequence[Change]) -> bool:
    """Return whether two activations of a function have the same changes."""
    return [(one.new, one.definitions) for one in first] == [
        (one.new, one.definitions) for one in second
    ]


class Tables:
    """The values of a call that no tensor of the call, parameter or buffer is an ancestor of."""

    def __init__(self, call: Call):
        self.call, self.graph = call, call.graph
        self.constant: set[int] = set()
        self.good: set[int] = set()
        """Indexes of operations that read and make only such values."""
        values = self.graph.recording.values
        for one in self.graph.operations:
            read, made = [*values_in(one.recorded)], one.recorded.outputs
            is_known = all(value in self.constant for value in read)
            is_kept = one.name not in UNKEPT and one.name not in WITH_STATE - {"setitem"}
            if is_known and is_kept and made and not any(values[v].requires_grad for v in made):
                self.constant.update(made)
                self.good.add(one.index)

    def operations_below(self, frame: int) -> set[int]:
        """Return the operations of an activation and of those below it."""
        return {one.index for one in self.graph.operations if self.span_in(frame, one) is not None}

    def span_in(self, frame: int, operation: Operation) -> int | None:
        """Return the line of an activation's function at which an operation ran."""
        number, span = operation.recorded.frame, operation.recorded.span
        while number is not None and number != frame:
            above = self.graph.recording.frames[number]
            number, span = above.caller, above.call
        return span.line if number == frame and span is not None else None

    def runs(self, frame: int, file: File, function: cst.FunctionDef) -> Iterator[Run]:
        """Yield the longest runs of statements of a function's body that only make tables."""
        if not isinstance(function.body, cst.IndentedBlock) or function.asynchronous:
            return
        body = list(function.body.body)
        below: list[list[Operation]] = [[] for _ in body]
        for operation in self.graph.operations:
            line = self.span_in(frame, operation)
            for statement, there in zip(body, below, strict=True):
                where = file.ranges[statement]
                if line is not None and where.start.line <= line <= where.end.line:
                    there.append(operation)
        start = 0
        while start < len(body):
            end, last = start, start
            while end < len(body) and all(one.index in self.good for one in below[end]):
                end += 1
                last = end if below[end - 1] else last
            if below[start] and last > start:
                made = [one for there in below[start:last] for one in there]
                if self.is_worth(made):
                    statements = tuple(body[start:last])
                    yield Run(frame, file, function, statements, tuple(made), tuple(body[last:]))
                start = last
            else:
                start += 1

    def is_worth(self, made: Sequence[Operation]) -> bool:
        """Return whether operations take enough of the call."""
        launches = [one for one in made if one.name not in VIEWS | {"getitem", "meshgrid"}]
        spent = sum(max(one.recorded.host_us, one.recorded.device_us or 0.0) for one in made)
        total = self.graph.recording.total_us
        return len(launches) >= MIN_LAUNCHES or (bool(launches) and spent >= MIN_SHARE * total)

    def change(self, run: Run) -> Change:
        """Return the change that makes a run's table once for each of its keys."""
        self.check(run)
        name = self.graph.recording.frames[run.frame].file
        owner = run.function.name.value
        scope = self.scope(run)
        is_return = isinstance(run.statements[-1], cst.SimpleStatementLine) and isinstance(
            run.statements[-1].body[-1], cst.Return
        )
        if is_return:
            self.check_callers(run)
        body = Body(run.file, run.function, run.statements, run.later, scope, is_return)
        found = f"{', '.join(body.outputs) or 'the result'} in {owner}"
        modules = frozenset(("functools", "torch"))
        is_text = isinstance(self.call.problem.reference, TextProgram)
        if is_return and is_text and body.is_whole_function():
            code = run.file.code(run.function.with_changes(leading_lines=[]))
            new = {run.function: decorators(body.is_typed) + code}
            return Change(name, dict(new), found, modules)
        first, *rest = run.statements
        return Change(
            file=name,
            new={first: body.call, **dict.fromkeys(rest, "")},
            found=found,
            modules=modules,
            definitions=body.definition,
        )

    def check(self, run: Run) -> None:
        """Refuse a table that is written later, or that the caller gets."""
        made = {one.index for one in run.operations}
        family = {value for one in run.operations for value in one.recorded.outputs}
        for one in self.graph.operations:
            if one.index in made:
                continue
            if family & {*values_in(one.recorded)}:
                written = {*flat(one.recorded.args[:1])} | {
                    value
                    for keyword in one.recorded.kwargs
                    if keyword.name == "out"
                    for value in flat([keyword.argument])
                }
                if not is_pure(one) and family & written:
                    raise Unfit("it is written later")
                if one.name in ALIASES or family & {*one.recorded.outputs}:
                    family.update(one.recorded.outputs)
                if one.name in ("numpy", "data_ptr", "requires_grad_"):
                    raise Unfit("its memory is read by others")
        if family & {*self.graph.recording.outputs}:
            raise Unfit("the call returns it")

    def check_callers(self, run: Run) -> None:
        """Refuse a function that is called where the recording does not see what happens to its
        table: a buffer made of it would be written when weights are loaded."""
        frames = self.graph.recording.frames
        known = {
            (frame.call.line, frame.call.column)
            for frame in frames
            if frame.call is not None
            and frame.file == frames[run.frame].file
            and definition_of(run.file, frame) is run.function
        }
        name = run.function.name.value
        written = sum(isinstance(node, cst.Name) and node.value == name for node in run.file.ranges)
        if written - 1 != len(known):
            raise Unfit("others call it")

    def scope(self, run: Run) -> dict[str, object]:
        """Return the local variables known around a run: those before its first operation of the
        same activation, else those before the next one."""
        first = run.operations[0].index
        for one in self.graph.operations[first:]:
            if one.recorded.frame == run.frame:
                return dict(self.call.source.scope(one))
        raise Unfit("its variables are not known")


RULES = (
    RecordedRule(
        name="kept_table",
        family="caching",
        why="the table is made once for each length, where every call made it again",
        precondition="the table depends on lengths, numbers, a device and a dtype alone, and "
        "nothing writes to it",
        find=find_tables,
    ),
)
