"""Find the expressions of recorded operations in their files, and write values as code.

    place = source.place(operation)             # where it is written
    source.expression(value, at=operation)      # code that evaluates to a value there, or None

A value has code at a place if a local variable holds it there, if it is state of `self`, or if the
expression that made it would give the same there: all names in it hold the same as before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from cudal1_ci.propose.editing.rewrite import names_of
from cudal1_ci.propose.editing.terms import names_in, portable
from cudal1_ci.propose.recorded.graph import Graph, Operation, canonical
from cudal1_ci.propose.target_file import file_text
from cudal1_ci.records import Program, TextProgram
from cudal1_ci.records.recording import Argument, Frame, Span

ATOMS = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.BaseNumber | cst.Tuple
STRINGS = cst.SimpleString | cst.ConcatenatedString
IMPURE = frozenset(
    [
        "dropout",
        "dropout_",
        "rand",
        "randn",
        "randint",
        "rand_like",
        "randn_like",
        "bernoulli",
        "multinomial",
        "normal_",
        "item",
        "uniform_",
        "randperm",
    ]
)
"""Operations that may not be repeated or left out."""


@dataclass(frozen=True)
class Place:
    """The expression of an operation."""

    file: str
    node: cst.BaseExpression
    statement: cst.CSTNode
    function: cst.FunctionDef | None


class File:
    """A file of the program, with the positions of its expressions."""

    def __init__(self, text: str):
        self.text = text
        self.lines = text.splitlines()
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.module = wrapper.module
        self.ranges = wrapper.resolve(PositionProvider)
        self.parents = parents_in(self.module)
        self.by_range: dict[tuple[int, int, int, int], cst.BaseExpression] = {}
        for node, where in self.ranges.items():
            if isinstance(node, cst.BaseExpression):
                self.by_range.setdefault(key_of(where), node)  # the outermost one comes first
        self.add_chained()
        self.functions: dict[int, cst.FunctionDef] = {}
        """By the line of `def`, or of the first decorator."""
        for node in self.ranges:
            if isinstance(node, cst.FunctionDef):
                first = node.decorators[0] if node.decorators else node
                self.functions[self.ranges[first].start.line] = node

    def add_chained(self) -> None:
        """Add calls and attributes with the name on a later line than the value. Python says that
        they begin at the name."""
        for node, where in self.ranges.items():
            called = node.func if isinstance(node, cst.Call) else node
            if not isinstance(called, cst.Attribute) or not isinstance(node, cst.BaseExpression):
                continue
            name = self.ranges[called.attr].start
            if name.line != self.ranges[called].start.line:
                key = name.line, name.column, where.end.line, where.end.column
                self.by_range[key] = node

    def node_at(self, span: Span) -> cst.BaseExpression | None:
        """Return the expression of a span; None before Python 3.11."""
        if span.column is None or span.last_column is None:
            return None
        if not 0 < span.line <= span.last_line <= len(self.lines):
            return None
        start = self.characters(span.line, span.column)
        end = self.characters(span.last_line, span.last_column)
        return self.by_range.get((span.line, start, span.last_line, end))

    def only_on_line(self, line: int, name: str) -> cst.BaseExpression | None:
        """Return the only expression of a line that is spelled as an operation. Python 3.10 knows
        the line of an operation, and no columns."""
        found = [
            node
            for node, where in self.ranges.items()
            if isinstance(node, cst.BinaryOperation | cst.Call)
            and where.start.line <= line <= where.end.line
            and name in spelled_as(node)
        ]
        return found[0] if len(found) == 1 and isinstance(found[0], cst.BaseExpression) else None

    def characters(self, line: int, num_bytes: int) -> int:
        """Return how many characters a number of bytes of a line is."""
        return len(self.lines[line - 1].encode()[:num_bytes].decode(errors="ignore"))

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield what a node is in, from the inside."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def is_within(self, node: cst.CSTNode, around: cst.CSTNode) -> bool:
        """Return whether a node is part of another one."""
        return any(one is around for one in self.above(node))

    def code(self, node: cst.CSTNode) -> str:
        return portable(node)


@functools.cache
def field_names(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def parents_in(module: cst.Module) -> dict[cst.CSTNode, cst.CSTNode]:
    """Return what each node is in. libcst's own provider walks twice, and calls a visitor."""
    found: dict[cst.CSTNode, cst.CSTNode] = {}
    waiting: list[cst.CSTNode] = [module]
    while waiting:
        node = waiting.pop()
        for name in field_names(type(node)):
            value = getattr(node, name)
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(one, cst.CSTNode):
                    found[one] = node
                    waiting.append(one)
    return found


OPERATORS: dict[type[cst.BaseBinaryOp], tuple[str, ...]] = {
    cst.Add: ("add",),
    cst.Subtract: ("sub", "rsub"),
    cst.Multiply: ("mul",),
    cst.Divide: ("div", "rdiv"),
    cst.MatrixMultiply: ("matmul", "rmatmul"),
    cst.Power: ("pow", "rpow"),
}


def spelled_as(node: cst.BinaryOperation | cst.Call) -> tuple[str, ...]:
    """Return the names of the operations that an expression may be."""
    if isinstance(node, cst.BinaryOperation):
        return OPERATORS.get(type(node.operator), ())
    function = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    return (canonical(function.value),) if isinstance(function, cst.Name) else ()


def key_of(where: CodeRange) -> tuple[int, int, int, int]:
    return where.start.line, where.start.column, where.end.line, where.end.column


@functools.lru_cache(maxsize=8)
def parsed_file(text: str) -> File | None:
    """Return a file with positions, read once for all rules; None if libcst cannot parse it."""
    try:
        return File(text)
    except cst.ParserSyntaxError:
        return None


class Source:
    """The files of a program, and the places of recorded operations in them."""

    def __init__(self, program: Program, graph: Graph):
        self.program, self.graph = program, graph
        self.places: dict[int, Place | None] = {}
        """By the operation."""
        self.files: dict[str, File | None] = {}
        """By the path. A file that is parsed again has other nodes."""

    def file(self, name: str) -> File | None:
        """Return a file by its path below the checkout; "" is the text of a task."""
        if name not in self.files:
            program = self.program
            text = program.source if isinstance(program, TextProgram) else file_text(program, name)
            self.files[name] = None if text is None else parsed_file(text)
        return self.files[name]

    def functional(self, name: str) -> tuple[str, frozenset[str]]:
        """Return how a file writes `torch.nn.functional`, and the import that this needs."""
        file = self.file(name)
        imports = {} if file is None else names_of(file.module, "").imports
        for dotted, rest in (("torch.nn.functional", ""), ("torch.nn", ".functional")):
            for spelling, meant in imports.items():
                if meant == dotted:
                    return f"{spelling}{rest}", frozenset()
        return "torch.nn.functional", frozenset(("torch",))

    def frame(self, operation: Operation) -> Frame | None:
        number = operation.recorded.frame
        return None if number is None else self.graph.recording.frames[number]

    def place(self, operation: Operation) -> Place | None:
        """Return where an operation is written; None where that is not in the checkout. Of the
        operations of a library call only the last one gives what the expression is."""
        if operation.index not in self.places:
            self.places[operation.index] = self.find_place(operation)
        return self.places[operation.index]

    def find_place(self, operation: Operation) -> Place | None:
        """Find where an operation is written."""
        if self.graph.in_one_call(operation)[-1] is not operation:
            return None
        frame, span = self.frame(operation), operation.recorded.span
        file = None if frame is None else self.file(frame.file)
        node = None if file is None or span is None else file.node_at(span)
        if file is not None and span is not None and span.column is None:
            node = file.only_on_line(span.line, operation.name)
        if frame is None or file is None or node is None:
            return None
        above = list(file.above(node))
        statement = next((one for one in above if is_statement(one)), None)
        function = next((one for one in above if isinstance(one, cst.FunctionDef)), None)
        return None if statement is None else Place(frame.file, node, statement, function)

    def operands(self, operation: Operation) -> list[cst.BaseExpression | None]:
        """Return the expressions of an operation's positional arguments, in the order in which
        the recording has them; [] where it is not written as an operator or a plain call."""
        place = self.place(operation)
        if place is None or len(self.graph.in_one_call(operation)) > 1:
            return []
        node, count = place.node, len(operation.recorded.args)
        found: list[cst.BaseExpression | None]
        if isinstance(node, cst.BinaryOperation):
            found = [node.left, node.right]
            if self.is_swapped(operation, node.left, node.right):
                found = found[::-1]
        elif isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            right = node.comparisons[0].comparator
            found = [node.left, right]
            if self.is_swapped(operation, node.left, right):
                found = found[::-1]
        elif isinstance(node, cst.UnaryOperation):
            found = [node.expression]
        elif isinstance(node, cst.Subscript):
            found = [node.value, None]
        elif isinstance(node, cst.Call):
            plain = [one.value for one in node.args if one.keyword is None and not one.star]
            function = node.func
            owner = function.value if isinstance(function, cst.Attribute) else None
            held = self.scope(operation).get(getattr(owner, "value", ""))
            is_function = self.is_functional(node, place.file)
            is_method = len(plain) == count - 1 and not (held and held.kind == "module")
            is_method = is_method and not is_function
            receiver = [function.value] if is_method and isinstance(function, cst.Attribute) else []
            found = [*receiver, *plain]
            if is_function:  # F.softmax(x, -1) is recorded as softmax(x, dim=-1)
                found = [*found[:count], *[None] * (count - len(found))]
            if operation.name == "einsum" and plain and isinstance(plain[-1], STRINGS):
                found = [*plain[-1:], *plain[:-1]]  # einops has the equation last
        elif isinstance(node, cst.Attribute):
            found = [node.value]
        else:
            return []
        return found if len(found) == count else []

    def is_functional(self, node: cst.Call, name: str) -> bool:
        """Return whether an expression calls a function of `torch.nn.functional`."""
        file = self.file(name)
        return file is not None and calls_functional(file, node)

    def scope(self, operation: Operation) -> dict[str, Argument]:
        """Return the local variables before an operation."""
        number = operation.recorded.scope
        if number is None:
            return {}
        return {one.name: one.argument for one in self.graph.recording.scopes[number].locals}

    def name_read(
        self, value: int | None, reader: Operation, at: Operation, position: int = 0
    ) -> str | None:
        """Return the name by which an operation reads a value, though others hold the same in this
        call: the first (0) or the second (1) of its operands that do. None where the name does not
        hold the value at another operation of the same function."""
        if reader.recorded.frame != at.recorded.frame:
            return None
        scope = self.scope(at)
        names = [
            node.value
            for node in self.operands(reader)
            if isinstance(node, cst.Name)
            and node.value in scope
            and scope[node.value].value == value
        ]
        return names[min(position, len(names) - 1)] if names else None

    def expression(self, value: int | None, at: Operation) -> str | None:
        """Return code that evaluates to a value where an operation is written."""
        known = self.graph.of(value)
        if value is None or known is None:
            return None
        scope = self.scope(at)
        for name, held in scope.items():
            if held.value == value and not name.startswith("."):
                return name
        if known.path:
            for name, held in scope.items():
                if held.kind == "module" and held.text is not None:
                    prefix = f"{held.text}." if held.text else ""
                    rest = known.path.removeprefix(prefix)
                    if known.path.startswith(prefix) and all(
                        map(str.isidentifier, rest.split("."))
                    ):
                        return f"{name}.{rest}"
        maker = self.graph.maker.get(value)
        if maker is None or maker.recorded.frame != at.recorded.frame or maker.name in IMPURE:
            return None
        place, here = self.place(maker), self.place(at)
        if place is None or here is None or maker.recorded.outputs != (value,):
            return None
        return self.repeated(place.node, maker, at)

    def repeated(self, node: cst.CSTNode, made: Operation, at: Operation) -> str | None:
        """Return an expression's code if it means the same at another place of its function."""
        place = self.place(made)
        file = None if place is None else self.file(place.file)
        if file is None or made.recorded.frame != at.recorded.frame:
            return None
        before, after = self.scope(made), self.scope(at)
        for name in names_in(node):
            if before.get(name) != after.get(name):
                return None
        return file.code(node)

    def argument_code(self, operation: Operation, position: int, at: Operation) -> str | None:
        """Return the code of an operation's argument, such as `self.scale`, if it means the same
        at another place."""
        found = self.operands(operation)
        node = found[position] if position < len(found) else None
        return None if node is None else self.repeated(node, operation, at)

    def is_swapped(
        self, operation: Operation, left: cst.BaseExpression, right: cst.BaseExpression
    ) -> bool:
        """Return whether the first argument of an operator is its right operand: `2 * x` and
        `1 / x` call a function of the tensor."""
        recorded = operation.recorded
        if recorded.name.startswith("__r") and operation.name not in ("rshift",):
            return True
        if len(recorded.args) != 2 or recorded.args[0].value is None:
            return False
        if recorded.args[1].value is not None:
            return False
        return self.is_of(right, recorded.args[0], operation) or self.is_of(
            left, recorded.args[1], operation
        )

    def is_of(self, node: cst.BaseExpression, argument: Argument, operation: Operation) -> bool:
        """Return whether an operand is known to be an argument: a literal, a local variable, or
        the expression that made it."""
        if isinstance(node, cst.Name):
            held = self.scope(operation).get(node.value)
            return held is not None and held == argument
        if argument.value is None:
            return isinstance(node, cst.BaseNumber)
        maker = self.graph.maker.get(argument.value)
        place = None if maker is None else self.place(maker)
        return place is not None and place.node is node


def calls_functional(file: File, node: cst.Call) -> bool:
    """Return whether an expression of a file calls a function of `torch.nn.functional`."""
    dotted = names_of(file.module, "").dotted(node.func)
    return (dotted or "").startswith("torch.nn.functional.")


def is_statement(node: cst.CSTNode) -> bool:
    """Return whether a node is a statement of a block."""
    return isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement)


def bracketed(code: str) -> str:
    """Return code that can stand before a dot or next to an operator."""
    node = cst.parse_expression(f"({code})")
    is_closed = len(node.lpar) > 1 or (isinstance(node, ATOMS) and not code.startswith("-"))
    return code if is_closed else f"({code})"


def bare(code: str) -> cst.BaseExpression:
    """Return code without the brackets around all of it, as an argument has it."""
    node = cst.parse_expression(f"({code.strip()})")
    num_kept = int(isinstance(node, cst.Tuple | cst.GeneratorExp | cst.NamedExpr))
    kept = node.lpar[len(node.lpar) - num_kept :]
    return node.with_changes(lpar=kept, rpar=node.rpar[:num_kept])
