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
ALIASES |= {"hsplit", "vsplit", "dsplit", "iter", "positive", "view_as_real", "as_tensor"}
ALIASES |= {"atleast_1d", "atleast_2d", "atleast_3d", "view_as_complex", "unsafe_chunk"}
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
    kept_by_decorator = tables.kept_by_decorator()
    found: dict[cst.FunctionDef, list[list[Change]]] = {}
    for number, frame in enumerate(call.graph.recording.frames):
        file = call.source.file(frame.file)
        function = None if file is None else definition_of(file, frame)
        if file is None or function is None:
            continue
        changes = []
        for run in tables.runs(number, file, function):
            indexes = {one.index for one in run.operations}
            inner = kept_by_decorator - tables.directly_in(number)
            if indexes <= covered or indexes <= inner:
                continue
            try:
                changes.append(tables.change(run))
            except Unfit:
                continue
            covered |= indexes
        if changes or not tables.operations_below(number) <= covered:
            found.setdefault(function, []).append(changes)
    taken: dict[tuple[str, str], str] = {}
    for activations in found.values():
        if all(same(first, second) for first, second in pairwise(activations)):
            for one in activations[0]:
                name = one.definitions.partition("def ")[2].partition("(")[0]
                known = taken.setdefault((one.file, name), one.definitions)
                if not name or known == one.definitions:
                    yield one


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
        self.below: dict[int, list[tuple[Operation, int]]] = {}
        """By activation: the operations of it and of those below it, with the lines of its
        function at which they ran."""
        for one in self.graph.operations:
            number, span = one.recorded.frame, one.recorded.span
            while number is not None:
                if span is not None:
                    self.below.setdefault(number, []).append((one, span.line))
                frame = self.graph.recording.frames[number]
                number, span = frame.caller, frame.call
        values = self.graph.recording.values
        for one in self.graph.operations:
            read, made = [*values_in(one.recorded)], one.recorded.outputs
            is_known = all(value in self.constant or self.is_base(one, value) for value in read)
            is_kept = one.name not in UNKEPT and one.name not in WITH_STATE - {"setitem"}
            if is_known and is_kept and made and not any(values[v].requires_grad for v in made):
                self.constant.update(made)
                self.good.add(one.index)

    def is_base(self, operation: Operation, value: int) -> bool:
        """Return whether a value is the tensor of `table[0] += 1`, whose view was written just
        before: the recording gives it a new number."""
        if operation.name != "setitem" or operation.value(0) != value or operation.index < 2:
            return False
        read, written = self.graph.operations[operation.index - 2 : operation.index]
        return (
            read.name == "getitem"
            and read.recorded.span is not None
            and operation.recorded.span is not None
            and read.recorded.span.line == operation.recorded.span.line
            and written.value(0) == read.output
            and operation.value(2) == written.output
            and {read.index, written.index} <= self.good
            and self.shape(read.value(0)) == self.shape(value)
            and read.argument(1) == operation.argument(1)
        )

    def shape(self, value: int | None) -> tuple[object, ...]:
        known = self.graph.of(value)
        return () if known is None else (known.shape, known.stride, known.dtype)

    def operations_below(self, frame: int) -> set[int]:
        """Return the operations of an activation and of those below it."""
        return {one.index for one, _ in self.below.get(frame, ())}

    def runs(self, frame: int, file: File, function: cst.FunctionDef) -> Iterator[Run]:
        """Yield the longest runs of statements of a function's body that only make tables."""
        if not isinstance(function.body, cst.IndentedBlock) or function.asynchronous:
            return
        body = list(function.body.body)
        below: list[list[Operation]] = [[] for _ in body]
        lines = [file.ranges[one] for one in body]
        for operation, line in self.below.get(frame, ()):
            for where, there in zip(lines, below, strict=True):
                if where.start.line <= line <= where.end.line:
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
        if any(one.name in ("tensor", "as_tensor") for one in made) and self.is_on_gpu():
            return True  # the host copies its numbers to the device, and waits for that
        return len(launches) >= MIN_LAUNCHES or (bool(launches) and spent >= MIN_SHARE * total)

    def is_on_gpu(self) -> bool:
        return any(one.device == "cuda" for one in self.graph.recording.values)

    def directly_in(self, frame: int) -> set[int]:
        """Return the operations of an activation that are written in its own function."""
        return {one.index for one in self.graph.in_frame.get(frame, ())}

    def kept_by_decorator(self) -> set[int]:
        """Return the operations of activations that a decorator alone would keep."""
        kept: set[int] = set()
        for number, frame in enumerate(self.graph.recording.frames):
            file = self.call.source.file(frame.file)
            function = None if file is None else definition_of(file, frame)
            if file is None or function is None:
                continue
            for run in self.runs(number, file, function):
                try:
                    change = self.change(run)
                except Unfit:
                    continue
                if function in change.new:
                    kept |= {one.index for one in run.operations}
        return kept

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
            new: dict[cst.CSTNode, str] = {run.function: decorators(body.is_typed) + code}
            return Change(name, new, found, modules)
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
                is_inplace = one.literal(99, "inplace") is True
                if (is_inplace or not is_pure(one)) and family & written:
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
