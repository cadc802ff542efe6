"""Read the functions that recorded operations are written in: branches, names, statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import portable
from cudal1_ci.propose.editing.walk import assigned_name
from cudal1_ci.propose.recorded.source import File, is_statement, key_of
from cudal1_ci.records.recording import Span

BRANCHES = (
    cst.If
    | cst.IfExp
    | cst.For
    | cst.While
    | cst.With
    | cst.Try
    | cst.Lambda
    | cst.BooleanOperation
    | cst.BaseComp
)
Branch = tuple[cst.CSTNode, bool]
"""A compound statement or expression, and whether its body or its other branch is meant."""


@dataclass(frozen=True)
class Site:
    """An expression, or an augmented assignment, in its statement."""

    node: cst.CSTNode
    statement: cst.CSTNode
    function: cst.FunctionDef | None
    target: str | None
    """The name that the statement assigns, or whose tensor it changes in place."""


class Body:
    """A function of a file."""

    def __init__(self, file: File, function: cst.FunctionDef):
        self.file, self.function = file, function
        self.names: dict[str, list[cst.Name]] = {}
        function.visit(Mentions(self.names))

    @staticmethod
    def site(file: File, span: Span) -> Site | None:
        """Return what is written at a span."""
        node: cst.CSTNode | None = file.node_at(span)
        if node is None and span.column is not None and span.last_column is not None:
            wanted = (span.line, span.column, span.last_line, span.last_column)
            for one, where in file.ranges.items():
                if isinstance(one, cst.AugAssign) and key_of(where) == wanted:
                    node = one
        if node is None:
            return None
        above = list(file.above(node))
        statement = next((one for one in above if is_statement(one)), None)
        function = next((one for one in above if isinstance(one, cst.FunctionDef)), None)
        return None if statement is None else Site(node, statement, function, target_of(statement))

    def site_of(self, node: cst.CSTNode) -> Site:
        statement = self.statement(node)
        return Site(node, statement, self.function, target_of(statement))

    def start(self, node: cst.CSTNode) -> tuple[int, int]:
        where = self.file.ranges[node].start
        return where.line, where.column

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the statement of an expression."""
        return next(one for one in self.file.above(node) if is_statement(one))

    def branches(self, node: cst.CSTNode) -> list[Branch]:
        """Return the branches of this function that a node is in, from the inside."""
        found: list[Branch] = []
        child = node
        for one in self.file.above(node):
            if one is self.function:
                break
            if isinstance(one, cst.If | cst.IfExp):
                if child is not one.test:
                    found.append((one, child is one.body))
            elif isinstance(one, BRANCHES) and not (
                isinstance(one, cst.BooleanOperation) and child is one.left
            ):
                found.append((one, True))
            child = one
        return found

    def mentions(self, name: str) -> Sequence[cst.Name]:
        return self.names.get(name, ())

    def is_inside(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        return node is outer or any(one is outer for one in self.file.above(node))

    def is_stored(self, name: cst.Name) -> bool:
        """Return whether a name is assigned here."""
        child: cst.CSTNode = name
        for one in self.file.above(name):
            if isinstance(one, cst.AssignTarget | cst.AsName | cst.NamedExpr):
                return not isinstance(one, cst.NamedExpr) or one.target is child
            if isinstance(one, cst.AugAssign | cst.AnnAssign | cst.For | cst.CompFor):
                return one.target is child
            if isinstance(one, cst.Attribute | cst.Subscript) or is_statement(one):
                return False
            child = one
        return False

    def reads(self, statement: cst.CSTNode, name: str) -> bool:
        """Return whether a statement reads a name, too."""
        return any(
            self.statement(one) is statement
            and (not self.is_stored(one) or isinstance(self.file.parents.get(one), cst.AugAssign))
            for one in self.mentions(name)
        )

    def is_bound(self, name: str, branches: Iterable[object]) -> bool:
        """Return whether a name is bound in these branches, whichever others are taken."""
        stores = [one for one in self.mentions(name) if self.is_stored(one)]
        known = [*branches]
        return (
            not stores
            or any(
                self.is_parameter(one) or all(b in known for b in self.branches(one))
                for one in stores
            )
            or any(one.name.value == name for one in parameters(self.function))
        )

    def is_parameter(self, name: cst.Name) -> bool:
        return isinstance(self.file.parents.get(name), cst.Param)

    def size_code(self, mention: cst.Name, q: str, k: str) -> tuple[cst.CSTNode, str] | None:
        """Return what to write for a use of scores that asks for their dtype or shape only."""
        parent = self.file.parents.get(mention)
        if not isinstance(parent, cst.Attribute) or parent.value is not mention:
            return None
        outer = self.file.parents.get(parent)
        name = parent.attr.value
        if name in ("dtype", "device"):
            return parent, f"{q}.{name}"
        if isinstance(outer, cst.Subscript) and name == "shape":
            inside = self.file.code(outer).partition("[")[2].rstrip("]").replace(" ", "")
            codes = {
                "-2:": f"({q}.shape[-2], {k}.shape[-2])",
                "-1": f"{k}.shape[-2]",
                "-2": f"{q}.shape[-2]",
            }
            return (outer, codes[inside]) if inside in codes else None
        if isinstance(outer, cst.Call) and name == "size" and len(outer.args) == 1:
            inside = self.file.code(outer.args[0].value).replace(" ", "")
            codes = {"-1": f"{k}.size(-2)", "-2": f"{q}.size(-2)"}
            return (outer, codes[inside]) if inside in codes else None
        return None

    def whole(self, site: Site) -> Site | None:
        """Return a site that is all of its statement's right side."""
        line = site.statement
        if not isinstance(line, cst.SimpleStatementLine):
            return None
        small = line.body[0]
        is_all = site.node is small or (isinstance(small, cst.Assign) and small.value is site.node)
        return site if is_all else None

    def twin(self, statement: cst.CSTNode, branch: Branch) -> Site | None:
        """Return the statement of the other branch if it is the only one there, and the same."""
        node, taken = branch
        if not isinstance(node, cst.If):
            return None
        other: cst.CSTNode | None = node.orelse if taken else node.body
        if isinstance(other, cst.Else):
            other = other.body
        if not isinstance(other, cst.IndentedBlock) or len(other.body) != 1:
            return None
        only = other.body[0]
        same = self.file.code(only).strip() == self.file.code(statement).strip()
        return Site(only, only, self.function, target_of(only)) if same else None

    def only(self, branch: cst.CSTNode, allowed: Iterable[cst.CSTNode]) -> bool:
        """Return whether a branch has no other statements than these."""
        block = branch.body if isinstance(branch, cst.Else) else branch
        return isinstance(block, cst.IndentedBlock) and {*block.body} <= {*allowed}

    def without(self, gone: Iterable[cst.CSTNode]) -> list[cst.CSTNode]:
        """Return what to remove for these statements to go: branches that they are all of, too."""
        left = {*gone}
        while True:
            whole: set[cst.CSTNode] = set()
            for one in left:
                block = self.file.parents[one]
                owner = self.file.parents[block]
                is_whole = isinstance(block, cst.IndentedBlock) and {*block.body} <= left
                is_free = isinstance(owner, cst.Else) or (
                    isinstance(owner, cst.If) and (owner.orelse is None or owner.orelse in left)
                )
                if is_whole and is_free:
                    whole.add(owner)
            if whole <= left:
                break
            left |= whole
        return [one for one in left if not any(a in left for a in self.file.above(one))]

    def siblings(self, statement: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the statements of a statement's block."""
        block = self.file.parents[statement]
        return [*block.body] if isinstance(block, cst.IndentedBlock) else []

    def indented(self, lines: Iterable[cst.CSTNode]) -> str:
        """Return statements as the body of a branch."""
        step = self.file.module.default_indent
        text = "".join(self.file.code(one) for one in lines)
        return "".join(f"{step}{one}" if one.strip() else one for one in text.splitlines(True))

    def is_plain(self) -> bool:
        """Return whether the function only computes and returns: no state is written."""
        effects = Effects()
        self.function.body.visit(effects)
        return not effects.found and not self.function.decorators

    def is_return(self, statement: cst.CSTNode) -> bool:
        return isinstance(statement, cst.SimpleStatementLine) and isinstance(
            statement.body[0], cst.Return
        )

    def size_check(self, mention: cst.Name) -> cst.CSTNode | None:
        """Return the statement that only raises if a name's tensor has another shape."""
        parent = self.file.parents.get(mention)
        if not isinstance(parent, cst.Attribute) or parent.attr.value not in ("shape", "size"):
            return None
        statement = self.statement(mention)
        if isinstance(statement, cst.SimpleStatementLine):
            if isinstance(statement.body[0], cst.Assert):
                return statement
            block = self.file.parents[statement]
            statement = self.file.parents[block]
        if not isinstance(statement, cst.If) or statement.orelse is not None:
            return None
        lines = [*statement.body.body] if isinstance(statement.body, cst.IndentedBlock) else []
        only = lines[0] if len(lines) == 1 else None
        is_raise = isinstance(only, cst.SimpleStatementLine) and isinstance(only.body[0], cst.Raise)
        return statement if is_raise else None

    def returns(self) -> list[cst.CSTNode]:
        """Return the statements that leave the function."""
        return [one for one in self.file.ranges if self.is_return(one)]

    def is_decided(self, branch: Branch, call: cst.Call) -> bool:
        """Return whether a call of this function takes a branch by what it leaves out."""
        name = is_none_test(branch, wanted=None)
        given = {one.keyword.value for one in call.args if one.keyword is not None}
        if name is None or name in given or any(one.star for one in call.args):
            return False
        names = [one.name.value for one in parameters(self.function)]
        if name not in names or any(
            self.is_stored(one) for one in self.mentions(name) if not self.is_parameter(one)
        ):
            return False
        plain = sum(one.keyword is None for one in call.args)
        if names[0] == "self":
            plain += 1
        default = parameters(self.function)[names.index(name)].default
        is_none = isinstance(default, cst.Name) and default.value == "None"
        return is_none and names.index(name) >= plain and not is_none_test(branch)

    def free_name(self, name: str) -> str:
        """Return a name that the function does not use."""
        while name in self.names:
            name += "_"
        return name

    def class_name(self) -> str:
        """Return the class of the method."""
        names = [
            one.name.value
            for one in self.file.above(self.function)
            if isinstance(one, cst.ClassDef)
        ]
        return ".".join(reversed(names))


class Mentions(cst.CSTVisitor):
    """Collect names, without those of attributes and keywords."""

    def __init__(self, found: dict[str, list[cst.Name]]):
        self.found = found

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:  # noqa: N802
        node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
        self.found.setdefault(node.value, []).append(node)


class Effects(cst.CSTVisitor):
    """Find what a function does besides computing what it returns."""

    def __init__(self) -> None:
        self.found = False

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:  # noqa: N802
        self.found |= not isinstance(node.target, cst.Name | cst.Tuple)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:  # noqa: N802
        self.found |= not isinstance(node.target, cst.Name)

    def visit_Expr(self, node: cst.Expr) -> None:  # noqa: N802
        self.found |= not isinstance(node.value, cst.SimpleString)

    def visit_Global(self, node: cst.Global) -> None:  # noqa: ARG002, N802
        self.found = True

    def visit_Nonlocal(self, node: cst.Nonlocal) -> None:  # noqa: ARG002, N802
        self.found = True

    def visit_Yield(self, node: cst.Yield) -> None:  # noqa: ARG002, N802
        self.found = True


def parameters(function: cst.FunctionDef) -> list[cst.Param]:
    """Return the parameters of a function, in order."""
    given = function.params
    return [*given.posonly_params, *given.params, *given.kwonly_params]


def target_of(statement: cst.CSTNode) -> str | None:
    """Return the only name that a statement assigns, or whose tensor it changes in place."""
    found = assigned_name(statement)
    if found is not None or not isinstance(statement, cst.SimpleStatementLine):
        return found
    if len(statement.body) != 1:
        return None
    small = statement.body[0]
    if isinstance(small, cst.AugAssign) and isinstance(small.target, cst.Name):
        return small.target.value
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        function = small.value.func
        if isinstance(function, cst.Attribute) and isinstance(function.value, cst.Name):
            return function.value.value if function.attr.value.endswith("_") else None
    return None


def is_none_test(branch: Branch, wanted: bool | None = True) -> str | None:
    """Return the code that is not None in a branch of `if x is not None` or `if x is None`. With
    `wanted=None`, that of any branch of such a test."""
    node, taken = branch
    if not isinstance(node, cst.If | cst.IfExp):
        return None
    test = node.test
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
    if not (isinstance(right, cst.Name) and right.value == "None"):
        return None
    if not isinstance(operator, cst.Is | cst.IsNot):
        return None
    is_value = isinstance(operator, cst.IsNot) == taken
    return portable(test.left) if is_value or wanted is None else None


def bare(code: str) -> str:
    """Return code without brackets around it."""
    node = cst.parse_expression(code)
    if getattr(node, "lpar", ()):
        node = node.with_changes(lpar=node.lpar[1:], rpar=node.rpar[1:])
    code = portable(node)
    if "\n" in code and not {*code} & {*"#'\""}:
        code = " ".join(code.split())
        for bracket in "([{":
            code = code.replace(f"{bracket} ", bracket)
        for bracket in ")]}":
            code = code.replace(f", {bracket}", bracket).replace(f" {bracket}", bracket)
    return code
