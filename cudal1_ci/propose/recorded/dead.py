"""Leave out work whose result nothing reads, or do it only where it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.editing.rewrite import names_of
from cudal1_ci.propose.editing.terms import Names, names_in
from cudal1_ci.propose.editing.walk import is_pure, stored_names
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import within
from cudal1_ci.propose.recorded.loop import loops_in
from cudal1_ci.propose.recorded.near import line_of
from cudal1_ci.propose.recorded.purity import definition_of, is_within, pure_calls
from cudal1_ci.propose.recorded.purity import is_pure as is_plain
from cudal1_ci.propose.recorded.reads import (
    free_names,
    has_hidden_writes,
    is_write,
    loads_in,
    loads_of,
)
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import IMPURE, File, Place, bracketed
from cudal1_ci.propose.recorded.traffic import bytes_of

Branch = tuple[cst.If, cst.BaseSuite]
SIMPLE = (
    *(cst.Name, cst.Attribute, cst.Comparison, cst.ComparisonTarget, cst.UnaryOperation, cst.Not),
    *(cst.Is, cst.IsNot, cst.BaseParenthesizableWhitespace, cst.SimpleWhitespace, cst.Dot),
    *(cst.Integer, cst.Equal, cst.NotEqual, cst.SimpleString),
)
"""Parts of a condition that has no effect, and is the same a few lines earlier."""


class Function:
    """A function that ran, with what may be left out of it."""

    def __init__(self, call: Call, name: str, file: File, node: cst.FunctionDef):
        self.call, self.name, self.file, self.node = call, name, file, node
        owner = next((one for one in file.above(node) if isinstance(one, cst.ClassDef)), None)
        names = names_of(file.module, owner.name.value if owner is not None else "")
        self.names: Names = replace(names, pure=pure_calls(call.source, name, node))
        self.free = free_names(node)
        self.operations = [
            one
            for one in call.graph.operations
            if (frame := call.source.frame(one)) is not None
            and frame.file == name
            and definition_of(file, frame) is node
        ]

    def operations_of(self, line: cst.CSTNode) -> list[Operation]:
        return [o for o in self.operations if is_within(o.recorded.span, self.file, line)]

    def does_work(self, line: cst.CSTNode) -> bool:
        """Return whether a line passes over memory, itself or in a helper."""
        graph = self.call.graph
        if any(bytes_of(one, graph) for one in self.operations_of(line)):
            return True
        frames = graph.recording.frames
        return any(
            frame.caller is not None
            and definition_of(self.file, frames[frame.caller]) is self.node
            and is_within(frame.call, self.file, line)
            for frame in frames
        )

    def assigned(self, line: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
        """Return name and value of `x = ...`, if leaving it out has no other effect."""
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            return None
        one = line.body[0]
        if not isinstance(one, cst.Assign) or len(one.targets) != 1:
            return None
        target = one.targets[0].target
        if not isinstance(target, cst.Name) or target.value in self.free:
            return None
        if any(isinstance(o, cst.NamedExpr | cst.Await | cst.Yield) for o in within(one.value)):
            return None
        return target.value, one.value

    def is_pure(self, value: cst.BaseExpression) -> bool:
        """Return whether computing a value has no other effect: no random number is drawn."""
        return is_pure(value, self.names) and all(map(is_plain, self.operations_of(value)))

    def loads(self, line: cst.CSTNode, name: str) -> list[cst.Name] | None:
        value = cst.Name(name)
        return loads_of(self.file, Place(self.name, value, line, self.node), name)

    def block_of(self, line: cst.CSTNode) -> list[cst.CSTNode]:
        block = self.file.parents.get(line)
        return list(block.body) if isinstance(block, cst.IndentedBlock) else []

    def in_block(self, node: cst.CSTNode, block: Sequence[cst.CSTNode]) -> cst.CSTNode | None:
        """Return the line of a block that a node is in."""
        return next((one for one in (node, *self.file.above(node)) if one in block), None)


def functions_in(call: Call) -> Iterator[Function]:
    """Yield the functions of the checkout that ran."""
    seen: set[cst.FunctionDef] = set()
    for frame in call.graph.recording.frames:
        file = call.source.file(frame.file)
        node = None if file is None else definition_of(file, frame)
        if file is not None and node is not None and node not in seen:
            seen.add(node)
            yield Function(call, frame.file, file, node)


def find_unread(call: Call) -> Iterator[Change]:
    """Find locals that nothing reads, and those that only a branch reads which did not run."""
    for function in functions_in(call):
        unread: dict[cst.CSTNode, str] = {}
        for line in within(function.node.body):
            known = function.assigned(line)
            if known is None or not function.does_work(line):
                continue
            name, value = known
            loads = function.loads(line, name)
            is_alone = len(function.block_of(line)) < 2
            is_alone |= any(isinstance(above, cst.Try) for above in function.file.above(line))
            if loads == [] and not is_alone and function.is_pure(value):
                unread[line] = ""
        for line in unread:
            found = " ".join(function.file.code(line).split())
            yield Change(function.name, {line: ""}, f"`{found}` is never read")
        yield from moved_into_branches(function)


def moved_into_branches(function: Function) -> Iterator[Change]:
    """Yield lines that move into the only branch that reads them."""
    blocks = [one for one in within(function.node.body) if isinstance(one, cst.IndentedBlock)]
    for block in (function.node.body, *blocks):
        if not isinstance(block, cst.IndentedBlock):
            continue
        body: list[cst.CSTNode] = list(block.body)
        chosen: dict[cst.CSTNode, Branch] = {}
        staying: set[cst.CSTNode] = set()
        for line in reversed(body):
            branch = only_branch(function, line, body, chosen, staying)
            if branch is not None:
                chosen[line] = branch
        for branch in dict.fromkeys(chosen.values()):
            lines = [one for one in body if chosen.get(one) == branch]
            if any(map(function.does_work, lines)):
                yield moved_into(function, lines, branch, staying)
    yield from moved_into_expressions(function)


def only_branch(
    function: Function,
    line: cst.CSTNode,
    body: list[cst.CSTNode],
    chosen: dict[cst.CSTNode, Branch],
    staying: set[cst.CSTNode],
) -> Branch | None:
    """Return the branch that alone reads what a line assigns, if it did not run. A line that has to
    stay where it is, since what it reads changes, is added to `staying`."""
    known = function.assigned(line)
    loads = function.loads(line, known[0]) if known is not None else None
    if known is None or not loads:
        return None
    found: set[Branch] = set()
    feeds_staying = False
    for load in loads:
        place = function.in_block(load, body)
        if place is None or body.index(place) <= body.index(line):
            return None
        if place in chosen:
            found.add(chosen[place])
            feeds_staying |= place in staying
            continue
        branch = branch_of(function.file, load, place)
        if branch is None:
            return None
        found.add(branch)
    if len(found) != 1:
        return None
    ((test, suite),) = found
    ran = any(function.operations_of(one) for one in suite.body)
    between = body[body.index(line) + 1 : body.index(test)]
    is_training = suite is test.body and function.file.code(test.test) == "self.training"
    kept = [one for one in between if one not in chosen or one in staying]
    if ran:
        return None
    if feeds_staying or not may_move(function, line, known[1], kept, is_training):
        stored = set().union(*map(stored_names, between)) if between else set()
        is_fixed = all(isinstance(one, SIMPLE) for one in within(test.test))
        is_unset = not any(
            isinstance(o, cst.AssignTarget) and isinstance(o.target, cst.Attribute)
            for each in between
            for o in within(each)
        )
        is_alone = function.is_pure(known[1]) or (
            is_training and is_known_module(function, known[1])
        )
        if not (is_fixed and is_unset and is_alone) or names_in(test.test) & stored:
            return None
        staying.add(line)
    return test, suite


def branch_of(file: File, load: cst.CSTNode, line: cst.CSTNode) -> Branch | None:
    """Return the branch of an `if` that a read is in; None if it is in its condition."""
    if not isinstance(line, cst.If) or isinstance(line.orelse, cst.If):
        return None
    above = list(file.above(load))
    if line.body in above:
        return line, line.body
    if line.orelse is not None and line.orelse.body in above:
        return line, line.orelse.body
    return None


def may_move(
    function: Function,
    line: cst.CSTNode,
    value: cst.BaseExpression,
    between: Sequence[cst.CSTNode],
    is_for_training: bool,
) -> bool:
    """Return whether a line gives the same later, and need not run in other calls."""
    stored = set().union(*map(stored_names, between)) if between else set()
    operations = function.operations_of(line)
    if names_in(value) & stored or not operations:
        return False
    later = function.call.graph.operations[operations[0].index :]
    # The last operation stands for a call of a library function; those within have no place.
    if any(map(is_write, later)) or has_hidden_writes(function.call, operations[-1]):
        return False
    return function.is_pure(value) or (is_for_training and is_known_module(function, value))


def is_known_module(function: Function, value: cst.BaseExpression) -> bool:
    """Return whether an expression only calls a submodule without random numbers. In training it
    runs as before, so what it keeps of a batch is the same."""
    calls = [one for one in within(value) if isinstance(one, cst.Call)]
    if len(calls) != 1 or not function.file.code(calls[0].func).startswith("self."):
        return False
    operations = function.operations_of(value)
    return bool(operations) and all(is_certain(one) for one in operations)


def is_certain(operation: Operation) -> bool:
    """Return whether an operation needs no random numbers."""
    return operation.name not in IMPURE


def moved_into(
    function: Function, lines: list[cst.CSTNode], branch: Branch, staying: set[cst.CSTNode]
) -> Change:
    """Return lines at the start of a branch, where they were before it, or under its condition
    where they stay."""
    file = function.file
    first = cst.ensure_type(branch[1], cst.IndentedBlock).body[0]
    codes = [bare(file, one) for one in lines if one not in staying]
    new: dict[cst.CSTNode, str] = {one: "" for one in lines if one not in staying}
    if codes:
        new[first] = "\n".join([*codes, bare(file, first)])
    test = file.code(branch[0].test)
    for one in lines:
        known = function.assigned(one)
        if one in staying and known is not None:
            value = file.code(known[1])
            sides = (value, "None") if branch[1] is branch[0].body else ("None", value)
            new[one] = f"{known[0]} = {sides[0]} if {test} else {sides[1]}"
    found = "; ".join(" ".join(bare(file, one).split()) for one in lines)
    return Change(function.name, new, f"`{found}` is read in a branch only")


def bare(file: File, line: cst.CSTNode) -> str:
    return file.code(line.with_changes(leading_lines=[])).strip("\n")


def moved_into_expressions(function: Function) -> Iterator[Change]:
    """Yield values that move into the only side of a conditional expression that reads them."""
    file = function.file
    for line in within(function.node.body):
        known = function.assigned(line)
        loads = function.loads(line, known[0]) if known is not None else None
        body = function.block_of(line)
        if known is None or not loads or len(loads) != 1 or not function.does_work(line):
            continue
        place = function.in_block(loads[0], body)
        if not isinstance(place, cst.SimpleStatementLine) or body.index(place) <= body.index(line):
            continue
        choice = next((one for one in file.above(loads[0]) if isinstance(one, cst.IfExp)), None)
        if choice is None or isinstance(known[1], cst.IfExp | cst.Lambda | cst.Yield):
            continue
        side = next(
            (s for s in (choice.body, choice.orelse) if s in (loads[0], *file.above(loads[0]))),
            None,
        )
        if side is None or any(isinstance(o, cst.Lambda) for o in file.above(loads[0])):
            continue
        if is_read(function, line):
            continue
        between = body[body.index(line) + 1 : body.index(place)]
        is_training = side is choice.body and file.code(choice.test) == "self.training"
        if not may_move(function, line, known[1], between, is_training):
            continue
        code = file.code(known[1])
        found = " ".join(file.code(line).split())
        yield Change(
            function.name, {line: "", loads[0]: code}, f"`{found}` is read on one side only"
        )


def is_read(function: Function, line: cst.CSTNode) -> bool:
    """Return whether something read in this call what a line gives."""
    graph = function.call.graph
    operations = function.operations_of(line)
    made = {value for one in operations for value in one.recorded.outputs}
    own = {one.index for one in operations}
    readers = {one.index for value in made for one in graph.readers.get(value, [])}
    return bool(readers - own or made & {*graph.recording.outputs})


def find_last(call: Call) -> Iterator[Change]:
    """Find `outputs.append(head(x))` in a loop of which only `outputs[-1]` is read."""
    for loop in loops_in(call):
        node = loop.node
        if (
            not isinstance(node, cst.For)
            or node.orelse
            or not isinstance(node.body, cst.IndentedBlock)
        ):
            continue
        function = Function(call, loop.name, loop.file, loop.function)
        for line in node.body.body:
            change = last_of(function, node, line)
            if change is not None:
                yield change


def last_of(function: Function, loop: cst.For, line: cst.CSTNode) -> Change | None:
    """Return the code that computes after a loop what only its last turn is read of."""
    file = function.file
    appended = appended_by(line)
    if appended is None or len(loop.body.body) < 2 or not function.is_pure(appended[1]):
        return None
    name, value = appended
    made = [
        one
        for one in within(function.node.body)
        if isinstance(one, cst.SimpleStatementLine)
        and [file.code(one).strip(), name in function.free] == [f"{name} = []", False]
    ]
    reads = loads_in(file, function.node.body, name)
    if len(made) != 1 or len(reads) != 2:
        return None
    last = file.parents.get(reads[1])
    if not isinstance(last, cst.Subscript) or file.code(last) != f"{name}[-1]":
        return None
    body = function.block_of(loop)
    place = function.in_block(last, body)
    operations = function.operations_of(line)
    if (
        place is None
        or made[0] not in body
        or not operations
        or body.index(place) < body.index(loop)
    ):
        return None
    rest = [*loop.body.body][[*loop.body.body].index(line) + 1 :]
    between = [*rest, *body[body.index(loop) + 1 : body.index(place)]]
    first = operations[0]
    if not may_move(function, line, value, between, is_for_training=False):
        return None
    if any(isinstance(one, cst.Break | cst.Continue | cst.Return) for one in within(loop)):
        return None
    is_inner = any(
        isinstance(one, cst.IfExp | cst.Lambda | cst.BaseComp) for one in file.above(last)
    )
    if is_inner or isinstance(place, cst.If | cst.For | cst.While):
        return None
    found = (
        f"`{file.code(line).strip()}` in each iteration at line {line_of(first)}, read at the end"
    )
    return Change(function.name, {made[0]: "", line: "", last: file.code(value)}, found)


def appended_by(line: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """Return list and value of `outputs.append(value)`."""
    one = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    call = one.value if isinstance(one, cst.Expr) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return None
    owner = call.func.value
    if call.func.attr.value != "append" or not isinstance(owner, cst.Name) or len(call.args) != 1:
        return None
    return owner.value, call.args[0].value


def find_dropout(call: Call) -> Iterator[Change]:
    """Find dropout of nothing: `F.dropout(x, 0.0)`, and `F.dropout(x, p, training=False)`."""
    for operation in call.graph.operations:
        place = call.source.place(operation)
        file = None if place is None else call.source.file(place.file)
        if place is None or file is None or operation.name != "dropout":
            continue
        node = place.node
        if not isinstance(node, cst.Call) or not file.code(node.func).endswith(".dropout"):
            continue
        given = {a.keyword.value: file.code(a.value) for a in node.args if a.keyword is not None}
        plain = [file.code(one.value) for one in node.args if one.keyword is None]
        if not plain or any(one.star for one in node.args) or "self." in file.code(node.func):
            continue
        p = plain[1] if len(plain) > 1 else given.get("p")
        training = plain[2] if len(plain) > 2 else given.get("training")
        if p in ("0", "0.0", "0.") or training == "False":
            code = bracketed(plain[0])
            yield Change(place.file, {node: code}, shown(operation, call.source))


RULES = (
    RecordedRule(
        name="unread_value",
        family="dead code",
        why="nothing reads the value in these calls, and computing it took as long as if it did",
        precondition="computing it has no other effect; a branch that reads it computes it",
        find=find_unread,
    ),
    RecordedRule(
        name="last_of_list",
        family="dead code",
        why="only the last element of the list is read, so that only the last one is computed",
        precondition="each iteration appends one value, and computing it has no other effect",
        find=find_last,
    ),
    RecordedRule(
        name="dropout_of_nothing",
        family="dead code",
        why="dropout of nothing returns its argument",
        precondition="the code states a probability of 0, or that it does not train",
        find=find_dropout,
    ),
)
