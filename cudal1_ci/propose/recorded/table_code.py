"""Move statements into a function that keeps what it returned."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence

import libcst as cst

from cudal1_ci.propose.recorded.source import File
from cudal1_ci.records.recording import Argument

SIMPLE = ast.Assign | ast.AugAssign | ast.Expr | ast.For | ast.If | ast.Return | ast.Pass
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
BARRED = COMPREHENSIONS | ast.Lambda | ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr
DISPLAYS = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
UNKNOWN = frozenset(("random", "time", "np", "numpy", "print", "os", "open", "cuda", "globals"))
PARTS = frozenset(("device", "dtype", "ndim"))
METHODS = frozenset(("size", "dim"))


class Unfit(Exception):
    """Say why statements cannot be moved."""


def decorators(is_typed: bool) -> str:
    """Return what keeps a function's results, as plain tensors in every mode."""
    typed = ", typed=True" if is_typed else ""
    return (
        f"@functools.lru_cache(maxsize=8{typed})\n@torch.inference_mode(False)\n@torch.no_grad()\n"
    )


class Body:
    """Statements as a function, and the call in their place."""

    def __init__(
        self,
        file: File,
        function: cst.FunctionDef,
        statements: Sequence[cst.BaseStatement],
        later: Sequence[cst.BaseStatement],
        scope: Mapping[str, object],
        is_return: bool,
    ):
        self.file, self.function, self.statements = file, function, statements
        self.scope, self.is_return = scope, is_return
        first = statements[0].with_changes(leading_lines=[])
        self.text = "".join(file.code(one) for one in (first, *statements[1:]))
        self.tree = ast.parse(self.text)
        whole = ast.parse(textwrap.dedent(file.code(function.with_changes(leading_lines=[]))))
        self.locals = locals_of(whole)
        self.given = whole.body[0].args if isinstance(whole.body[0], FUNCTIONS) else whole
        for outer in file.above(function):
            if isinstance(outer, cst.FunctionDef):
                around = file.code(outer.with_changes(leading_lines=[]))
                self.locals |= locals_of(ast.parse(textwrap.dedent(around)))
        self.stored = names(self.tree, ast.Store)
        self.parameters: dict[str, str] = {}
        """Names of the new function by the code of its arguments."""
        self.places: list[tuple[ast.expr, str]] = []
        self.is_typed = False
        self.check()
        bound: set[str] = set()
        for one in self.tree.body:
            self.read(one, bound)
            bound |= names(one, ast.Store)
        read = names(ast.parse("".join(file.code(one) for one in later)), ast.Load)
        self.outputs = [] if is_return else sorted(self.stored & read, key=self.text.find)
        if not self.outputs and not is_return:
            raise Unfit("nothing reads it")
        self.name = f"kept_{'_'.join(self.outputs) if self.outputs else function.name.value}"
        if self.name in {n.value for n in file.ranges if isinstance(n, cst.Name)}:
            raise Unfit("its name is taken")

    def check(self) -> None:
        """Refuse statements that do more than compute."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and not isinstance(node, SIMPLE):
                raise Unfit("a statement does more than compute")
            if isinstance(node, BARRED):
                raise Unfit("it has names of its own")
            if isinstance(node, ast.Return) and node is not self.tree.body[-1]:
                raise Unfit("it returns early")
            if isinstance(node, ast.Assign | ast.Return) and isinstance(node.value, DISPLAYS):
                raise Unfit("a list can be written later")
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                raise Unfit("it writes to an object")
            if isinstance(node, ast.keyword) and node.arg == "requires_grad":
                raise Unfit("it needs a gradient")
            word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if word in UNKNOWN or word.startswith(("rand", "get_default")):
                raise Unfit("another call could give another value")
            if isinstance(node, ast.Constant) and str(node.value).startswith("cuda"):
                raise Unfit("the device depends on the one in use")

    def read(self, node: ast.AST, bound: set[str]) -> None:
        """Note what a node reads from outside, as parameters."""
        if isinstance(node, ast.expr) and self.is_argument(node, bound):
            return
        if isinstance(node, ast.Name):
            is_inside = node.id in bound or node.id not in self.locals
            if isinstance(node.ctx, ast.Store) or is_inside:
                return
            raise Unfit(f"it reads {node.id}")
        changed = node.target if isinstance(node, ast.AugAssign) else None
        if isinstance(changed, ast.Name) and changed.id not in bound:
            raise Unfit(f"it reads {changed.id}")
        if isinstance(node, ast.For):
            self.read(node.iter, bound)
            inner = {*bound} | names(node.target, ast.Store)
            self.read_all([*node.body, *node.orelse], inner)
            return
        if isinstance(node, ast.If):
            self.read(node.test, bound)
            self.read_all(node.body, {*bound})
            self.read_all(node.orelse, {*bound})
            return
        for child in ast.iter_child_nodes(node):
            self.read(child, bound)

    def read_all(self, nodes: Sequence[ast.stmt], bound: set[str]) -> None:
        for one in nodes:
            self.read(one, bound)
            bound |= names(one, ast.Store)

    def is_argument(self, node: ast.expr, bound: set[str]) -> bool:
        """Return whether an expression is a number, a device or a dtype from outside; it is noted
        as a parameter."""
        root: ast.expr = node
        if isinstance(getattr(node, "ctx", None), ast.Store):
            return False
        while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
            root = root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name) or root.id in bound or root.id not in self.locals:
            return False
        held = self.scope.get(root.id)
        if not isinstance(held, Argument):
            raise Unfit(f"{root.id} is not known")
        if isinstance(node, ast.Name) and is_key(held):
            if node.id in self.stored:
                raise Unfit("a name has two meanings")
            if held.kind == "tuple" and not self.is_tuple(node.id):
                raise Unfit("another call could give a list, which is no key")
            self.add(node, node.id, is_number=True)
            return True
        if is_part(node):
            if held.kind not in ("value", "module"):
                raise Unfit(f"{root.id} is no tensor")
            self.add(node, part_name(node), is_number=False)
            return True
        if held.kind == "module" and isinstance(node, ast.Attribute):
            if node.attr in self.lists():
                raise Unfit("a list is no key")
            self.add(node, node.attr, is_number=True)
            return True
        if held.kind == "module" and isinstance(node, ast.Call):
            raise Unfit("it calls a module")
        return False

    def is_tuple(self, name: str) -> bool:
        """Return whether a name is no parameter of the function, or one declared a tuple."""
        for one in ast.walk(self.given):
            if isinstance(one, ast.arg) and one.arg == name:
                declared = "" if one.annotation is None else ast.unparse(one.annotation)
                return declared.lower().startswith("tuple")
        return True

    def lists(self) -> set[str]:
        """Return the attributes that are lists somewhere in the file."""
        return {
            one.target.attr.value
            for node in self.file.ranges
            if isinstance(node, cst.Assign)
            and isinstance(node.value, cst.List | cst.Dict | cst.Set | cst.ListComp | cst.DictComp)
            for one in node.targets
            if isinstance(one.target, cst.Attribute)
        }

    def add(self, node: ast.expr, name: str, *, is_number: bool) -> None:
        code = ast.unparse(node)
        name = self.parameters.get(code, name)
        taken = self.stored | {v for k, v in self.parameters.items() if k != code}
        taken |= names(self.tree, ast.Load) - {code}
        while name in taken:
            name += "_"
        self.parameters[code] = name
        self.places.append((node, name))
        self.is_typed |= is_number

    def is_whole_function(self) -> bool:
        """Return whether a decorator alone keeps the result: the statements are the body of a
        function of the module, and read nothing but its parameters."""
        function = self.function
        body = list(function.body.body)
        start = 1 if function.get_docstring() is not None else 0
        given = [*function.params.params, *function.params.kwonly_params]
        return (
            body[start:] == list(self.statements)
            and isinstance(self.file.parents[function], cst.Module)
            and not function.decorators
            and isinstance(function.params.star_arg, cst.MaybeSentinel)
            and function.params.star_kwarg is None
            and {one.name.value for one in given} == {*self.parameters}
        )

    @property
    def call(self) -> str:
        target = "return " if self.is_return else f"{', '.join(self.outputs)} = "
        return f"{target}{self.name}({', '.join(self.parameters)})\n"

    @property
    def definition(self) -> str:
        lines = [line.encode() for line in self.text.splitlines()]
        for node, name in sorted(
            self.places, key=lambda one: (one[0].lineno, one[0].col_offset), reverse=True
        ):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            rest = lines[last][node.end_col_offset :]
            lines[first : last + 1] = [lines[first][: node.col_offset] + name.encode() + rest]
        text = "\n".join(one.decode() for one in lines) + "\n"
        if not self.is_return:
            text += f"return {', '.join(self.outputs)}\n"
        given = ", ".join(self.parameters.values())
        inside = textwrap.indent(text, self.file.module.default_indent)
        return f"{decorators(self.is_typed)}def {self.name}({given}):\n{inside}"


def locals_of(whole: ast.Module) -> set[str]:
    """Return the names that a function and those in it bind."""
    found = names(whole, ast.Store)
    for one in ast.walk(whole):
        if isinstance(one, ast.arg):
            found.add(one.arg)
        elif isinstance(one, FUNCTIONS | ast.ClassDef) and one is not whole.body[0]:
            found.add(one.name)
        elif isinstance(one, ast.alias):
            found.add((one.asname or one.name).partition(".")[0])
    return found


def names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Return the names that a tree reads or stores."""
    return {
        one.id
        for one in ast.walk(tree)
        if isinstance(one, ast.Name) and isinstance(one.ctx, context)
    }


def is_key(held: Argument) -> bool:
    """Return whether equal objects give equal results: numbers, dtypes, devices, and tuples."""
    if held.kind == "tuple":
        return all(map(is_key, held.items))
    return held.kind == "literal"


def is_part(node: ast.expr) -> bool:
    """Return whether an expression is `x.device`, `x.dtype`, `x.shape[1]` or `x.size(1)`."""
    if isinstance(node, ast.Attribute):
        return node.attr in PARTS
    if isinstance(node, ast.Subscript):
        is_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return is_shape and number(node.slice) is not None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_known = all(number(one) is not None for one in node.args) and not node.keywords
        return (
            node.func.attr in METHODS
            and is_known
            and len(node.args) == (1 if node.func.attr == "size" else 0)
        )
    return False


def number(node: ast.expr) -> int | None:
    """Return the whole number that an index is."""
    found = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(found, ast.Constant) and type(found.value) is int:
        return found.value
    return None


def part_name(node: ast.expr) -> str:
    """Return a name for a length, a device or a dtype."""
    if isinstance(node, ast.Attribute):
        return node.attr
    given = (
        node.slice
        if isinstance(node, ast.Subscript)
        else node.args[0]
        if isinstance(node, ast.Call) and node.args
        else None
    )
    if given is None:
        return "ndim"
    return "size_" + ast.unparse(given).replace("-", "last_")
