"""Write a region as a compiled function, or as a decorator on the function that it is.

    q, k = rotary(q, k, cos, sin)           @torch.compile
    scores = q @ k.transpose(-2, -1)        def compute_weights(product, mask, scale): ...
    scores = scores * self.scale + mask     ...
    weights = scores.softmax(-1)            weights = compute_weights(q @ k.T, mask, self.scale)

Names that the region reads are parameters, with what it reads of `self` and the products that it
begins with; names that are read after it are what it returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.nodes import in_order
from cudal1_ci.propose.editing.rewrite import names_of
from cudal1_ci.propose.recorded.lifted import Swap
from cudal1_ci.propose.recorded.purity import definition_of
from cudal1_ci.propose.recorded.rule import Call, Change
from cudal1_ci.propose.recorded.source import File
from cudal1_ci.propose.wrappers.bodies import Body
from cudal1_ci.propose.wrappers.fusible import MOVED, QUERIES
from cudal1_ci.propose.wrappers.regions import Region, is_local, is_return

DECORATOR = "torch.compile"
PARAMETER_OF = {
    "matmul": "product",
    "einsum": "product",
    "linear": "projected",
    "conv1d": "convolved",
    "conv2d": "convolved",
    "conv3d": "convolved",
    "embedding": "embedded",
    "getitem": "chosen",
    "cumsum": "total",
    "dropout": "dropped",
}
"""What a value that is computed outside is called, by the operation that makes it."""
MAX_RESULTS_IN_NAME = 2
BINDING = (
    cst.AssignTarget,
    cst.AugAssign,
    cst.AnnAssign,
    cst.NamedExpr,
    cst.For,
    cst.CompFor,
)


class NotWritten(Exception):
    """A region cannot be written as a function."""


def changes_for(call: Call, regions: Sequence[Region]) -> list[tuple[Region, Change]]:
    """Return regions with the changes that compile them, without those that cannot be written."""
    taken: set[str] = set()
    found = []
    for one in regions:
        try:
            change = whole_function(one) if one.is_whole_function else Writer(call, one, taken)()
        except NotWritten:
            continue
        if call.is_own(change):
            found.append((one, change))
    return found


def whole_function(region: Region) -> Change:
    """Decorate a function."""
    body = region.body
    require_torch(body)
    function = body.function
    new = function.with_changes(
        leading_lines=[],
        lines_after_decorators=[],
        decorators=[cst.Decorator(cst.parse_expression(DECORATOR))],
    )
    name = qualname(body)
    found = f"`@{DECORATOR}` on `{name}`, {number_of(region)}"
    return Change(body.name, {function: body.file.code(new)}, found, frozenset(("torch",)))


def require_torch(body: Body) -> None:
    if names_of(body.file.module, "").imports.get("torch", "torch") != "torch":
        raise NotWritten


def qualname(body: Body) -> str:
    above = [a for a in body.file.above(body.function) if isinstance(a, cst.ClassDef)]
    return ".".join([*(one.name.value for one in above[::-1]), body.function.name.value])


def number_of(region: Region) -> str:
    saved, calls = region.saving.saved_launches, region.saving.calls
    each = f"{saved // calls + 1} kernels"
    return f"{each} as one" + (f", in each of {calls} calls" if calls > 1 else "")


@dataclass
class Reads:
    """What code reads and assigns, in the order in which it runs."""

    given: dict[str, str] = field(default_factory=dict)
    """Code of what parameters are given, by the parameter's name."""
    stored: dict[str, None] = field(default_factory=dict)
    needs_binding: set[str] = field(default_factory=set)
    """Local variables that only some runs read."""
    always_read: set[str] = field(default_factory=set)
    """Code of attributes that each run reads."""
    sometimes_read: set[str] = field(default_factory=set)


class Writer:
    """Move a region to a function of its own."""

    def __init__(self, call: Call, region: Region, taken: set[str]):
        self.call, self.region, self.body = call, region, region.body
        self.file, self.taken = region.body.file, taken
        self.function = region.body.function
        self.locals = local_names(self.function)
        self.nodes: tuple[cst.CSTNode, ...] = (
            region.statements if region.expression is None else (region.expression,)
        )
        inside = [node for one in self.nodes for node in in_order(one)]
        self.names = {one.value for one in inside if isinstance(one, cst.Name)}
        self.reads = Reads()
        self.new: dict[cst.CSTNode, str] = {}
        self.by_code: dict[str, str] = {}

    def __call__(self) -> Change:
        require_torch(self.body)
        for one in self.nodes:
            self.visit(one, sometimes=False)
        reads = self.reads
        if reads.sometimes_read - reads.always_read:
            raise NotWritten
        if reads.needs_binding - bound_before(self.file, self.function, self.nodes[0]):
            raise NotWritten
        if not reads.given:
            raise NotWritten
        return self.expression() if self.region.expression is not None else self.statements()

    # --- what it reads ---------------------------------------------------------------------------

    def visit(self, node: cst.CSTNode, sometimes: bool) -> None:
        """Take down what code reads and assigns."""
        if node in self.region.holes:
            self.give(node, self.hole_name(node), sometimes)
        elif isinstance(node, cst.Assign):
            self.visit(node.value, sometimes)
            for one in node.targets:
                self.store(one.target, sometimes)
        elif isinstance(node, cst.AnnAssign):
            if node.value is not None:
                self.visit(node.value, sometimes)
            self.store(node.target, sometimes)
        elif isinstance(node, cst.If | cst.IfExp | cst.BooleanOperation):
            first = node.left if isinstance(node, cst.BooleanOperation) else node.test
            self.visit(first, sometimes)
            for child in node.children:
                if child is not first:
                    self.visit(child, sometimes=True)
        elif isinstance(node, cst.Attribute):
            self.attribute(node, sometimes)
        elif isinstance(node, cst.Arg):
            self.visit(node.value, sometimes)
        elif isinstance(node, cst.Name):
            self.read(node.value, sometimes)
        else:
            for child in node.children:
                self.visit(child, sometimes)

    def store(self, target: cst.BaseExpression, sometimes: bool) -> None:
        for one in in_order(target):
            if isinstance(one, cst.Name):
                if sometimes:
                    self.read(one.value, sometimes)
                self.reads.stored[one.value] = None

    def read(self, name: str, sometimes: bool) -> None:
        if name == self.body.receiver or name in ("super", "__class__", "locals", "vars"):
            raise NotWritten
        if name in self.reads.stored or name not in self.locals:
            return
        self.reads.given.setdefault(name, name)
        if sometimes:
            self.reads.needs_binding.add(name)

    def attribute(self, node: cst.Attribute, sometimes: bool) -> None:
        """Give what is read of the module itself: `self.scale` is a parameter `scale`."""
        chain: list[cst.Attribute] = []
        inner: cst.BaseExpression = node
        while isinstance(inner, cst.Attribute):
            chain.insert(0, inner)
            inner = inner.value
        if not isinstance(inner, cst.Name) or inner.value != self.body.receiver:
            self.visit(node.value, sometimes)
            return
        given = self.state_of(chain)
        names = [one.attr.value.strip("_") for one in chain[: chain.index(given) + 1]]
        if any(one.attr.value.startswith("__") for one in chain) or not names[-1]:
            raise NotWritten
        self.give(given, "_".join(name for name in names if name), sometimes)

    def state_of(self, chain: list[cst.Attribute]) -> cst.Attribute:
        """Return the part of `self.a.b.c` that is state: the parameter or buffer, without the
        method that is called on it."""
        path = self.module_path()
        state = {one.path for one in self.call.graph.recording.values if one.path}
        for number, one in enumerate(chain):
            dotted = ".".join([*path, *(a.attr.value for a in chain[: number + 1])])
            if dotted in state:
                return one
        last = chain[-1]
        parent = self.file.parents.get(last)
        if isinstance(parent, cst.Call) and parent.func is last and not self.is_module(parent):
            if len(chain) == 1:
                raise NotWritten
            return chain[-2]
        if last.attr.value in ("shape", "dtype", "device", "T", "mT") and len(chain) > 1:
            return chain[-2]
        return last

    def module_path(self) -> list[str]:
        """Return where the module of the function is below the target."""
        for one in self.region.ran:
            if one.child is None:
                held = self.call.source.scope(one.operation).get(self.body.receiver or "")
                if held is not None and held.kind == "module" and held.text:
                    return held.text.split(".")
        return []

    def is_module(self, node: cst.Call) -> bool:
        """Return whether a call is of a submodule or a function that `self` holds, not of a
        method."""
        function = cst.ensure_type(node.func, cst.Attribute).attr.value
        ran = self.body.ran.get(node, [])
        frames = self.call.graph.recording.frames
        called = {frames[r.child].function.rpartition(".")[2] for r in ran if r.child is not None}
        return bool(ran) and function not in called | {r.operation.name for r in ran}

    def give(self, node: cst.CSTNode, wanted: str, sometimes: bool) -> None:
        """Make what a node reads a parameter."""
        written = self.file.code(node)
        if "\n" not in written and isinstance(node, cst.BaseExpression):
            written = self.file.code(node.with_changes(lpar=(), rpar=()))
        (self.reads.sometimes_read if sometimes else self.reads.always_read).add(written)
        name = self.by_code.get(written)
        if name is None:
            name = self.free(wanted)
            self.by_code[written] = name
            self.reads.given[name] = written
        self.new[node] = name

    def free(self, wanted: str) -> str:
        """Return a name that nothing in the function has."""
        taken = self.names | {*self.reads.given} | {"torch"}
        return next(
            name
            for number in range(1, 99)
            for name in [wanted if number == 1 else f"{wanted}_{number}"]
            if name not in taken or (name not in self.locals and self.is_of_self(name))
        )

    def is_of_self(self, name: str) -> bool:
        """Return whether a name is read only as an attribute."""
        inside = [node for one in self.nodes for node in in_order(one)]
        used = [one for one in inside if isinstance(one, cst.Name) and one.value == name]
        parents = [self.file.parents.get(one) for one in used]
        attributes = [
            isinstance(above, cst.Attribute) and above.attr is one
            for one, above in zip(used, parents, strict=True)
        ]
        return all(attributes) and name not in self.reads.given

    def hole_name(self, node: cst.CSTNode) -> str:
        ran = self.body.ran.get(node, [])
        name = ran[-1].operation.name if ran else ""
        return PARAMETER_OF.get(name, "value")

    # --- what it is written as -------------------------------------------------------------------

    def expression(self) -> Change:
        """Write one expression as a function."""
        node = self.region.expression
        assert node is not None
        value = node.visit(Swap(self.new))
        assert isinstance(value, cst.BaseExpression)
        name = self.function_name([])
        lines = [cst.SimpleStatementLine([cst.Return(without_parentheses(value))])]
        return self.change(name, lines, {node: self.call_of(name)})

    def statements(self) -> Change:
        """Write statements as a function."""
        nodes = self.region.statements
        results = [
            name
            for name in self.reads.stored
            if is_read_later(self.file, self.function, nodes, name, name in self.reads.given)
        ]
        lines: list[cst.CSTNode] = []
        for number, one in enumerate(nodes):
            new = one.visit(Swap(self.new))
            assert isinstance(new, cst.CSTNode)
            lines.append(new if number else new.with_changes(leading_lines=()))
        returns = is_return(nodes[-1])
        if not results and not returns:
            raise NotWritten
        shown = results if not returns else returned_names(nodes[-1], self.reads.stored)
        name = self.function_name(shown)
        called = self.call_of(name)
        if returns:
            called = f"return {called}"
        else:
            called = f"{', '.join(results)} = {called}"
            last = assigned_value(lines[-1], results)
            if last is not None:
                lines[-1] = cst.SimpleStatementLine(
                    [cst.Return(last)], leading_lines=getattr(lines[-1], "leading_lines", ())
                )
            else:
                lines.append(cst.parse_statement(f"return {', '.join(results)}"))
        new_code = {nodes[0]: called} | dict.fromkeys(nodes[1:], "")
        return self.change(name, lines, new_code)

    def call_of(self, name: str) -> str:
        return f"{name}({', '.join(self.reads.given.values())})"

    def change(
        self, name: str, lines: Sequence[cst.CSTNode], new: dict[cst.CSTNode, str]
    ) -> Change:
        parameters = [cst.Param(cst.Name(one)) for one in self.reads.given]
        function = cst.FunctionDef(
            name=cst.Name(name),
            params=cst.Parameters(parameters),
            body=cst.IndentedBlock(lines),  # type: ignore[arg-type]
            decorators=[cst.Decorator(cst.parse_expression(DECORATOR))],
        )
        self.taken.add(name)
        found = f"`{name}` of `{qualname(self.body)}`, {number_of(self.region)}"
        return Change(
            file=self.body.name,
            new=new,
            found=found,
            modules=frozenset(("torch",)),
            definitions=self.file.code(function),
        )

    def function_name(self, results: Sequence[str]) -> str:
        """Return what the function is called: by what it computes, by the helper that it calls, or
        by its operations."""
        wanted = self.by_operations()
        if 0 < len(results) <= MAX_RESULTS_IN_NAME and all(len(one) > 1 for one in results):
            wanted = f"compute_{'_and_'.join(one.strip('_') for one in results)}"
        elif (helper := self.helper()) is not None:
            wanted = f"apply_{helper}"
        module = self.file.module
        taken = {one.value for one in in_order(module) if isinstance(one, cst.Name)} | self.taken
        for name in (wanted, *(f"{wanted}_{n}" for n in range(2, 9))):
            if name not in taken:
                return name
        raise NotWritten

    def by_operations(self) -> str:
        names = [
            one.operation.name.strip("_")
            for one in sorted(self.region.ran, key=lambda one: one.operation.index)
            if one.operation.name not in MOVED | QUERIES
        ]
        return "_".join(("fused", *[*dict.fromkeys(names)][-3:]))

    def helper(self) -> str | None:
        """Return the last function of the file that the region calls."""
        frames = self.call.graph.recording.frames
        for one in reversed(self.region.ran):
            if one.child is not None and "." not in frames[one.child].function:
                function = definition_of(self.file, frames[one.child])
                return None if function is None else function.name.value
        return None


def without_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression without the brackets around it, if it is on one line."""
    return (
        node if "\n" in cst.Module([]).code_for_node(node) else node.with_changes(lpar=(), rpar=())
    )


def assigned_value(line: cst.CSTNode, results: Sequence[str]) -> cst.BaseExpression | None:
    """Return what a last line assigns, if that is all that a function returns."""
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0].target
    is_all = isinstance(target, cst.Name) and [target.value] == [*results]
    return statement.value if is_all else None


def returned_names(line: cst.CSTNode, stored: dict[str, None]) -> list[str]:
    """Return the assigned names that a `return` gives as they are."""
    assert isinstance(line, cst.SimpleStatementLine)
    value = cst.ensure_type(line.body[0], cst.Return).value
    parts = [one.value for one in value.elements] if isinstance(value, cst.Tuple) else [value]
    return [one.value for one in parts if isinstance(one, cst.Name) and one.value in stored]


# --- local variables -----------------------------------------------------------------------------


def local_names(function: cst.FunctionDef) -> set[str]:
    """Return what a function binds: its parameters, and names that it assigns."""
    found = {one.name.value for one in in_order(function.params) if isinstance(one, cst.Param)}
    for node in in_order(function.body):
        found |= bound_by(node)
    return found


def bound_by(node: cst.CSTNode) -> set[str]:
    """Return the names that a node binds by itself."""
    target: cst.CSTNode | None = None
    if isinstance(node, BINDING):
        target = node.target
    elif isinstance(node, cst.AsName):
        target = node.name
    elif isinstance(node, cst.FunctionDef | cst.ClassDef):
        return {node.name.value}
    elif isinstance(node, cst.ImportAlias):
        return {node.evaluated_alias or node.evaluated_name.partition(".")[0]}
    return set() if target is None else set(plain_names(target))


def plain_names(target: cst.CSTNode) -> Iterator[str]:
    """Yield the names that a target binds; `x` is not bound by `x[0]` or `x.y`."""
    if isinstance(target, cst.Name):
        yield target.value
    elif not isinstance(target, cst.Attribute | cst.Subscript):
        for child in target.children:
            yield from plain_names(child)


def bound_before(file: File, function: cst.FunctionDef, node: cst.CSTNode) -> set[str]:
    """Return the names that are surely bound where a node is reached."""
    found = {one.name.value for one in in_order(function.params) if isinstance(one, cst.Param)}
    for around, block in enclosing(file, function, node):
        for one in block[: block.index(around)]:
            if isinstance(one, cst.SimpleStatementLine):
                for inner in in_order(one):
                    found |= bound_by(inner)
        parent = file.parents.get(file.parents[around])
        if isinstance(parent, cst.For):
            found |= bound_by(parent)
    return found


def is_read_later(
    file: File,
    function: cst.FunctionDef,
    nodes: Sequence[cst.CSTNode],
    name: str,
    is_given: bool,
) -> bool:
    """Return whether a function may read a name's value after statements of it, which may read the
    name's value of the turn before."""
    node = nodes[-1]
    kinds = cst.FunctionDef | cst.Lambda
    inner = [one for one in in_order(function.body) if isinstance(one, kinds)]
    if any(name in reads_of(one) for one in inner):
        return True
    for around, block in enclosing(file, function, node):
        for one in block[block.index(around) + 1 :]:
            if name in reads_of(one):
                return True
            if isinstance(one, cst.SimpleStatementLine) and assigns(one, name):
                return False
            if is_return(one):
                return False
        parent = file.parents.get(file.parents[around])
        if isinstance(parent, cst.For | cst.While) and (
            is_given or name in reads_of(parent, frozenset(nodes))
        ):
            return True
        if isinstance(parent, cst.Try | cst.TryStar):
            return True
    return False


def enclosing(
    file: File, function: cst.FunctionDef, node: cst.CSTNode
) -> Iterator[tuple[cst.CSTNode, list[cst.CSTNode]]]:
    """Yield a statement with its block, then the one that it is in, up to the function."""
    for one in (node, *file.above(node)):
        if one is function:
            return
        parent = file.parents.get(one)
        if isinstance(parent, cst.IndentedBlock):
            yield one, [*parent.body]


def assigns(line: cst.SimpleStatementLine, name: str) -> bool:
    """Return whether a line binds a name whatever happens."""
    return any(
        name in plain_names(target.target)
        for one in line.body
        if isinstance(one, cst.Assign)
        for target in one.targets
    )


def reads_of(node: cst.CSTNode, without: frozenset[cst.CSTNode] = frozenset()) -> set[str]:
    """Return the names that code reads, without some statements of it."""
    if node in without:
        return set()
    if isinstance(node, cst.Name):
        return {node.value}
    if isinstance(node, cst.Attribute | cst.Arg):
        return reads_of(node.value, without)
    if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name | cst.Tuple):
        return set() if is_local(node.target) else reads_of(node.target, without)
    return set().union(*(reads_of(child, without) for child in node.children))
