"""Hoist tables that every forward creates, and that could be created once.

A table is a mask, a table of positions or frequencies, or a window. A table that depends only on
the constructor's numbers becomes a buffer outside the state_dict. A table that also depends on one
size of the input (a sequence length) is made for the size that the class names (`self.max_len` and
similar names). The method then uses a slice; the ranks of all parts must be known to choose the
slice. A longer input is possible unless the method refuses it; for a longer input the table is made
as before.

A module converts its buffers of floats (`.half()`), but not what a method makes. So the class makes
such a table again where its tensors are converted or moved, in `_apply`.

The constructor makes a table for any numbers. If the method tests a number by itself (`if
self.max_len > 0`), a table of that number remains where it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.rewrites.layout import with_arguments, with_last_line
from cudal1_ci.propose.rewrites.patterns import bare
from cudal1_ci.propose.rewrites.rewrite import Rewrite, Site, SourceEdit, short
from cudal1_ci.propose.rewrites.table_shapes import (
    CREATORS,
    Facts,
    may_be_floats,
    shape_of,
    sizes_in,
)
from cudal1_ci.propose.rewrites.terms import code, is_self, names_in
from cudal1_ci.propose.rewrites.walk import assigned_name, calls_in, stored_names, without_dead

MAXIMA = (
    "max_len", "max_length", "max_seq_len", "max_seq_length", "block_size", "max_position",
    "max_positions", "max_position_embeddings", "context_length", "max_context", "seq_len",
    "n_ctx", "num_positions", "max_tokens",
)  # fmt: skip
"""Names of attributes for the longest, or longest expected, input."""
CONVERSIONS = {
    "_apply", "to", "to_empty", "type", "float", "double", "half", "bfloat16", "cpu", "cuda",
}  # fmt: skip
"""Methods of a module that convert or move its tensors."""


def plain_attributes(constructor: cst.FunctionDef) -> set[str]:
    """Return attributes like `self.dim = dim`, `self.scale = dim ** -0.5`: apparently numbers."""
    plain: dict[str, int] = {}
    good: set[str] = set()
    parameters = {
        p.name.value for p in (*constructor.params.params, *constructor.params.kwonly_params)
    }
    for line in constructor.body.body:
        if not isinstance(line, cst.SimpleStatementLine):
            continue
        for statement in line.body:
            if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
                target = statement.targets[0].target
                if isinstance(target, cst.Attribute) and is_self(target.value):
                    name = target.attr.value
                    plain[name] = plain.get(name, 0) + 1
                    if is_number_expression(statement.value, parameters):
                        good.add(name)
    return {name for name in good if plain[name] == 1}


def is_number_expression(node: cst.BaseExpression, parameters: set[str]) -> bool:
    """Return whether a node is arithmetic of numbers, parameters and attributes of self."""
    if isinstance(node, cst.Integer | cst.Float):
        return True
    if isinstance(node, cst.Name):
        return node.value in parameters and node.value != "self"
    if isinstance(node, cst.BinaryOperation):
        return is_number_expression(node.left, parameters) and is_number_expression(
            node.right, parameters
        )
    if isinstance(node, cst.UnaryOperation):
        return is_number_expression(node.expression, parameters)
    return isinstance(node, cst.Attribute) and is_self(node.value)


def hoisted(site: Site) -> SourceEdit | None:
    """Move every table of every method to the constructor."""
    constructor = site.constructor()
    if constructor is None or not isinstance(constructor.body, cst.IndentedBlock):
        return None
    plain = plain_attributes(constructor)
    place = device_of(constructor)
    if place is None:
        return None
    new_constructor = constructor
    functions: dict[cst.FunctionDef, cst.FunctionDef] = {}
    found: list[str] = []
    text = code(site.definition)
    taken = set(re.findall(r"self\.(\w+)|def (\w+)", text))
    names = {name for pair in taken for name in pair}
    makers: list[cst.FunctionDef] = []
    again: list[tuple[str, str]] = []
    for method in site.methods():
        if not isinstance(method.body, cst.IndentedBlock):
            continue
        hoist = Hoist(Facts(site.names, plain - asked_of(method)), names, code(method))
        changed = hoist.method(method)
        if not hoist.buffers:
            continue
        for name, expression in hoist.buffers.items():
            made = hoist.made_by.get(name, expression) + place
            if name in hoist.floats:
                again.append((name, hoist.made_by[name]))
            line = f'self.register_buffer("{name}", {made}, persistent=False)'
            new_constructor = with_last_line(new_constructor, line)
            found.append(f"`{short(expression)}` as the buffer `{name}`")
        makers += hoist.makers
        functions[method] = without_dead(changed, hoist.suspects, site.names, hoist.written)
    if not functions:
        return None
    if again:
        makers.append(made_again(again))
    return SourceEdit(
        {**functions, constructor: new_constructor},
        tuple(found),
        methods={constructor: tuple(makers)},
    )


def made_again(tables: Sequence[tuple[str, str]]) -> cst.FunctionDef:
    """Return the method that makes tables of floats again after a conversion of the module."""
    lines = "".join(f"    self.{name} = {made}.to(self.{name}.device)\n" for name, made in tables)
    text = (
        f"def _apply(self, *args, **kwargs):\n"
        f"    super()._apply(*args, **kwargs)\n"
        f"    # A table keeps its dtype where `.half()` and the like convert the module.\n"
        f"{lines}    return self\n"
    )
    method = cst.ensure_type(cst.parse_statement(text), cst.FunctionDef)
    return method.with_changes(leading_lines=[cst.EmptyLine(indent=False)])


def device_of(constructor: cst.FunctionDef) -> str | None:
    """Return the code that moves a table to the device of the constructor's parameters; None if the
    constructor does not name one.
    """
    parameters = constructor.params
    named = (*parameters.params, *parameters.kwonly_params)
    if any(parameter.name.value == "device" for parameter in named):
        return ".to(device=device)"
    return None if "factory_kwargs" in code(constructor) else ""


def asked_of(method: cst.FunctionDef) -> set[str]:
    """Return attributes of self that are all that a condition of the method tests."""
    found: set[str] = set()

    class Collect(cst.CSTVisitor):
        def visit_If(self, node: cst.If) -> None:  # noqa: N802
            ask(node.test)

        def visit_IfExp(self, node: cst.IfExp) -> None:  # noqa: N802
            ask(node.test)

    def ask(test: cst.BaseExpression) -> None:
        called = {code(call.func) for call in calls_in(test)}
        if names_in(test) - called <= {"self", "None"}:
            found.update(re.findall(r"\bself\.(\w+)", code(test)))

    method.visit(Collect())
    return found


class Hoist:
    """Read one method and replace its tables."""

    def __init__(self, facts: Facts, taken: set[str], text: str):
        self.facts = facts
        self.may_convert = not taken & CONVERSIONS
        """Whether the class leaves it to others to convert it."""
        self.taken = taken
        self.text = text
        """Of the method as it was."""
        self.buffers: dict[str, str] = {}
        self.made_by: dict[str, str] = {}
        """Of a buffer that a method makes, the call."""
        self.floats: set[str] = set()
        """Buffers that a conversion of the module would change."""
        self.makers: list[cst.FunctionDef] = []
        self.suspects: set[str] = set()
        self.written: set[cst.CSTNode] = set()
        """The replacements of tables."""

    def method(self, method: cst.FunctionDef) -> cst.FunctionDef:
        """Return the method with buffers in place of tables."""
        lines: list[cst.BaseStatement] = []
        for line in method.body.body:
            name = assigned_name(line)
            assert isinstance(line, cst.BaseStatement)
            if isinstance(line, cst.SimpleStatementLine) and self.learn(line, name):
                lines.append(line)
                continue
            changed = line.visit(UseBuffers(self))
            assert isinstance(changed, cst.BaseStatement)
            lines.append(changed)
            for stored in stored_names(line):
                self.facts.tables.pop(stored, None)
                self.facts.sizes.discard(stored)
        return method.with_changes(body=method.body.with_changes(body=lines))

    def learn(self, line: cst.SimpleStatementLine, name: str | None) -> bool:
        """Record sizes, devices and tables; return True when the line defines nothing else."""
        statement = line.body[0]
        if len(line.body) != 1 or not isinstance(statement, cst.Assign):
            return False
        value = statement.value
        if name is None:
            target = statement.targets[0].target
            is_shape = re.fullmatch(r"\w+\.(shape|size\(\))", code(value))
            if is_shape and isinstance(target, cst.Tuple):
                self.facts.sizes |= {code(e.value) for e in target.elements}
                return True
            return False
        self.facts.tables.pop(name, None)
        if re.fullmatch(r"\w+\.(shape\[-?\d\]|size\(-?\d\))", code(value)):
            self.facts.sizes.add(name)
            return True
        if re.fullmatch(r"\w+\.device", code(value)):
            self.facts.devices.add(name)
            return True
        table = self.table(value)
        if table is None:
            return False
        self.facts.tables[name] = table
        self.facts.steps.append((name, without_devices(value, self.facts)))
        return True

    def table(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the expression over constructor numbers and sizes alone, without devices; None if
        it depends on anything else.
        """
        opened = node.visit(Open(self.facts))
        assert isinstance(opened, cst.BaseExpression)
        if shape_of(opened, self.facts) is None:
            return None
        return opened

    def buffer(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the replacement of a table: a buffer or a slice of one."""
        table = self.table(node)
        shape = None if table is None else shape_of(table, self.facts)
        if table is None or shape is None or shape.rank == 0 or not makes_tensor(table):
            return None
        used = (names_in(table) | sizes_in(table)) & self.facts.sizes | sizes_in(table)
        expression = code(table)
        is_kept = not may_be_floats(table, self.facts)
        if len(used) > 1 or not (is_kept or self.may_convert):
            return None
        self.suspects |= names_in(node)
        if used:
            (size,) = used
            largest = next((name for name in MAXIMA if name in self.facts.plain), None)
            if largest is None or not shape.axes:
                return None
            parts = [f":{size}" if axis in shape.axes else ":" for axis in range(shape.rank)]
            while parts[-1] == ":":
                parts.pop()
            name = self.named(with_size(expression, size, f"self.{largest}"))
            part = f"self.{name}[{', '.join(parts)}]"
            is_longest = refuses_longer(self.text, size, largest)
            if not is_kept:
                self.floats.add(name)
            if is_longest and is_kept:
                return cst.parse_expression(part)
            maker = self.maker(name, node, size, largest)
            if is_longest:
                return cst.parse_expression(part)
            return cst.parse_expression(
                f"({part} if {size} <= self.{largest} else {maker}({size}).to(self.{name}.device))"
            )
        name = self.named(expression)
        if not is_kept:
            self.floats.add(name)
            self.maker(name, node)
        return cst.parse_expression(f"self.{name}")

    def maker(
        self, buffer: str, node: cst.BaseExpression, size: str = "", largest: str = ""
    ) -> str:
        """Return the name of the method that makes a buffer, also a longer one where it has a size,
        in the author's steps.
        """
        if buffer not in self.made_by:
            name = f"_make{buffer}"
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            head = f"def {name}(self{size and f', {parameter(size)}'}):\n    pass\n"
            empty = cst.ensure_type(cst.parse_statement(head), cst.FunctionDef)
            body = [line.visit(Sized(size)) for line in self.steps_to(node)]
            made = empty.with_changes(
                body=empty.body.with_changes(body=body),
                leading_lines=[cst.EmptyLine(indent=False)],
            )
            self.makers.append(made)
            self.made_by[buffer] = f"self.{name}({size and f'self.{largest}'})"
        return self.made_by[buffer].partition("(")[0]

    def steps_to(self, node: cst.BaseExpression) -> list[cst.SimpleStatementLine]:
        """Return statements that compute a table and return it."""
        steps = list(self.facts.steps)
        result = without_devices(node, self.facts)
        if isinstance(node, cst.Name) and steps and steps[-1][0] == node.value:
            result = steps.pop()[1]
        lines = [line_of(cst.Return(result))]
        needed = names_in(result)
        for name, value in reversed(steps):
            if name in needed:
                target = cst.AssignTarget(cst.Name(name))
                lines.insert(0, line_of(cst.Assign([target], value)))
                needed = needed - {name} | names_in(value)
        return lines

    def named(self, expression: str) -> str:
        """Return the name of the buffer that holds an expression."""
        for name, known in self.buffers.items():
            if known == expression:
                return name
        kind = "mask" if re.search(r"\btri[lu]\b", expression) else "table"
        number = 0
        while (name := f"_{kind}{number or ''}") in self.taken:
            number += 1
        self.taken.add(name)
        self.buffers[name] = expression
        return name


class Sized(cst.CSTTransformer):
    """Replace a size by its parameter."""

    def __init__(self, size: str):
        self.size = size

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        if isinstance(original_node, cst.BaseExpression) and code(original_node) == self.size:
            return cst.Name(parameter(self.size))  # type: ignore[return-value]
        return updated_node


def line_of(statement: cst.BaseSmallStatement) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([statement])


def without_devices(node: cst.BaseExpression, facts: Facts) -> cst.BaseExpression:
    """Return an expression whose tensors are on torch's default device."""
    changed = node.visit(Open(replace(facts, tables={})))
    assert isinstance(changed, cst.BaseExpression)
    return changed


def parameter(size: str) -> str:
    """Return a parameter name: `T` for a local, `size` for `x.shape[1]`."""
    return size if size.isidentifier() else "size"


def with_size(expression: str, size: str, other: str) -> str:
    """Return an expression with another size."""
    return re.sub(rf"(?<![\w.]){re.escape(size)}(?!\w)", other, expression)


def refuses_longer(text: str, size: str, largest: str) -> bool:
    """Return whether a method has `assert T <= self.max_len`, or raises for a longer input."""
    size, most = re.escape(size), rf"self\.{largest}\b"
    asserted = rf"assert\s+{size}\s*<=\s*{most}"
    raised = rf"if\s+{size}\s*>\s*{most}\s*:\s*raise\b"
    return re.search(rf"(?<!\w)({asserted}|{raised})", text) is not None


class UseBuffers(cst.CSTTransformer):
    """Replace the largest tables in a statement."""

    def __init__(self, hoist: Hoist):
        self.hoist = hoist
        self.chosen: dict[cst.CSTNode, cst.BaseExpression] = {}
        self.labels: set[cst.CSTNode | None] = set()
        """Names that are no variables: of parameters and of attributes."""

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.AssignTarget | cst.Lambda | cst.BaseComp) or node in self.labels:
            return False
        if isinstance(node, cst.Arg):
            self.labels.add(node.keyword)
        if isinstance(node, cst.Attribute):
            self.labels.add(node.attr)
        if isinstance(node, TABLES):
            if isinstance(node, cst.Name) and node.value not in self.hoist.facts.tables:
                return False
            buffer = self.hoist.buffer(node)
            if buffer is not None:
                self.chosen[node] = buffer
                self.hoist.written.add(buffer)
                return False
        return not isinstance(node, cst.Attribute) or not is_self(node.value)

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        new = self.chosen.get(original_node)
        if new is not None:
            return new  # type: ignore[return-value]
        value = getattr(updated_node, "value", None)
        if not isinstance(updated_node, ALONE) or not isinstance(value, cst.IfExp):
            return updated_node
        if value not in self.hoist.written:
            return updated_node
        value = value.with_changes(lpar=[], rpar=[])
        self.hoist.written.add(value)
        return updated_node.with_changes(value=value)  # type: ignore[return-value]


TABLES = (cst.Call, cst.BinaryOperation, cst.Comparison, cst.Subscript, cst.Name)
ALONE = (cst.Arg, cst.Assign, cst.Return)
"""Nodes that evaluate an expression without need of parentheses."""


class Open(cst.CSTTransformer):
    """Expand the names of tables and leave devices out."""

    def __init__(self, facts: Facts):
        self.facts = facts

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
        return not is_self(node.value)

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        # The name after the dot is no local.
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        # Nor is that of a parameter; and an argument needs no parentheses.
        value = updated_node.value
        if value is not original_node.value and isinstance(original_node.value, cst.Name):
            value = bare(value)
        return updated_node.with_changes(keyword=original_node.keyword, value=value)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        table = self.facts.tables.get(original_node.value)
        if table is None:
            return updated_node
        if isinstance(table, cst.BinaryOperation | cst.UnaryOperation | cst.Comparison):
            return table.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return table

    def leave_Call(  # noqa: N802
        self,
        original_node: cst.Call,  # noqa: ARG002
        updated_node: cst.Call,
    ) -> cst.BaseExpression:
        args = [arg for arg in updated_node.args if not self.is_device(arg)]
        if len(args) == len(updated_node.args):
            return updated_node
        function = updated_node.func
        if not args and isinstance(function, cst.Attribute) and function.attr.value == "to":
            return function.value
        return with_arguments(updated_node, args)

    def is_device(self, arg: cst.Arg) -> bool:
        text = code(arg.value)
        is_one = text in self.facts.devices or re.fullmatch(r"\w+\.device", text) is not None
        return is_one and (arg.keyword is None or arg.keyword.value == "device")


def makes_tensor(node: cst.BaseExpression) -> bool:
    """Return whether a table is worth a buffer: an operation creates a tensor in it."""
    return re.search(rf"\btorch\.({'|'.join(CREATORS)})\(", code(node)) is not None


REWRITES = (
    Rewrite(
        name="hoist_table",
        family="hoisting",
        precondition="a mask or table of numbers of the constructor, and of at most one size of "
        "the input where an attribute names the largest one (a longer one is made as before); a "
        "table of floats is made again where the module is converted or moved",
        why="made once instead of in every call: no allocation, no arithmetic, and on a GPU none "
        "of the small launches.",
        apply=hoisted,
    ),
)
