"""Let neighbors in a Triton kernel touch neighbors in memory: lanes of a block, and programs.

A kernel over two dimensions has one offset that moves fastest. Where a recorded launch shows that
this one is multiplied by a stride and the other one is not, the two change places:

    row = at % rows                             row = at // cols
    col = at // rows                 becomes    col = at % cols
    # mask: at < rows * cols

Each pair of a row and a column still belongs to one lane, so an elementwise kernel computes the
same. Programs are numbered in the other order in the same way; the grid stays as it is.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.graph import Graph, Operation, literal
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import File, is_statement
from cudal1_ci.records.recording import Launch, Span

POINTWISE = {
    *("abs", "arange", "cdiv", "ceil", "clamp", "cos", "erf", "exp", "exp2", "fdiv", "floor"),
    *("fma", "full", "load", "log", "log2", "maximum", "minimum", "multiple_of"),
    *("max_contiguous", "num_programs", "program_id", "rsqrt", "sigmoid", "sin", "sqrt"),
    *("static_range", "store", "where", "zeros"),
}
"""Functions of Triton after which each lane depends on its own offsets alone."""
PLAIN = frozenset(("range", "min", "max", "abs", "float", "int"))
MODULES = frozenset(("tl", "triton", "libdevice"))
FRESH = ("empty", "empty_like", "new_empty", "empty_strided", "zeros", "zeros_like", "new_zeros")
ACROSS = (
    "neighboring lanes of `{kernel}` are {stride} elements apart in `{pointer}`: rows are read "
    "across; the last dimension should be the fastest"
)


@dataclass(frozen=True)
class Access:
    """A load or store: what each offset in its pointer is multiplied by, as recorded."""

    pointer: str
    terms: tuple[tuple[frozenset[str], int | None, bool], ...]
    """Names that a term depends on, the term's stride, or None where that is not known, and whether
    it differs among the lanes of a block."""

    def stride(self, name: str) -> int | None:
        """Return the stride of an offset; None if it is not known, or is not of one term."""
        found = [stride for names, stride, _ in self.terms if name in names]
        return found[0] if len(found) == 1 else None


class Kernel:
    """The function of a kernel, with the numbers that one launch gave it."""

    def __init__(self, function: ast.FunctionDef, operation: Operation, launch: Launch):
        self.function, self.launch = function, launch
        given = [*operation.recorded.kwargs, *launch.constants]
        self.numbers = {one.name: literal(one.argument) for one in given}
        self.pointers = {one.name for one in given if one.argument.value is not None}
        self.bound: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.bound.setdefault(name, []).append(value)
                case ast.Name(id=name, ctx=ast.Store()):
                    self.bound.setdefault(name, []).append(None)
        # A plain assignment is met twice: as a statement, then as the name in it.
        self.once = {n: v[0] for n, v in self.bound.items() if len(v) == 2 and v[0] is not None}
        self.calls = [one for one in ast.walk(function) if isinstance(one, ast.Call)]

    def number(self, node: ast.expr) -> int | None:
        """Return the number that an expression had in the launch."""
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name) if name in self.once:
                return self.number(self.once[name])
            case ast.Name(id=name) if name not in self.bound:
                given = self.numbers.get(name)
                return given if isinstance(given, int) else None
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                factors = self.number(left), self.number(right)
                return None if None in factors else factors[0] * factors[1]  # type: ignore[operator]
        return None

    def parts(self, node: ast.AST) -> list[ast.AST]:
        """Return all nodes of an expression, and of what the names in it are bound to once."""
        found: list[ast.AST] = []
        seen: set[str] = set()
        waiting = [node]
        while waiting:
            for one in ast.walk(waiting.pop()):
                found.append(one)
                if isinstance(one, ast.Name) and one.id in self.once and one.id not in seen:
                    seen.add(one.id)
                    waiting.append(self.once[one.id])
        return found

    def behind(self, node: ast.AST) -> frozenset[str]:
        """Return the names that an expression depends on."""
        return frozenset(one.id for one in self.parts(node) if isinstance(one, ast.Name))

    def is_lane(self, node: ast.AST) -> bool:
        """Return whether an expression differs among the lanes of a block."""
        return any(name_of(one) == "arange" for one in self.parts(node))

    def accesses(self) -> Iterator[Access]:
        """Yield the loads and stores whose pointers are sums."""
        for call in self.calls:
            if name_of(call.func) in ("load", "store") and call.args:
                terms = [*self.terms(call.args[0])]
                pointers = {n for one in terms for n in self.behind(one)} & self.pointers
                if len(pointers) == 1:
                    others = [one for one in terms if not self.behind(one) & self.pointers]
                    known = [(self.behind(o), self.stride_of(o), self.is_lane(o)) for o in others]
                    yield Access(pointers.pop(), tuple(known))

    def terms(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the terms of a sum, with those of names that are sums with a pointer."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from self.terms(node.left)
            yield from self.terms(node.right)
        elif isinstance(node, ast.Name) and node.id in self.once and self.is_address(node.id):
            yield from self.terms(self.once[node.id])
        else:
            yield node

    def is_address(self, name: str) -> bool:
        """Return whether a name is a sum with a pointer, or of offsets: `row * stride + col`."""
        value = self.once[name]
        is_sum = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Mult)
        is_offset = any(name_of(one) == "arange" for one in ast.walk(value))
        return bool(self.behind(value) & self.pointers) or (is_sum and not is_offset)

    def stride_of(self, term: ast.expr) -> int | None:
        """Return what a term multiplies an offset by; 1 of a bare offset."""
        match term:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                numbers = [self.number(left), self.number(right)]
                known = [one for one in numbers if one is not None]
                return known[0] if len(known) == 1 else None
            case ast.Name() | ast.Subscript():
                return 1
            case ast.Call() if name_of(term.func) == "arange":
                return 1
        return None

    def uses(self, name: str) -> list[ast.Name]:
        """Return where a name is read."""
        return [
            one
            for one in ast.walk(self.function)
            if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load)
        ]


def kernels(call: Call) -> Iterator[tuple[Operation, Kernel, File, str]]:
    """Yield the launches of kernels whose source is in the program, equal ones once."""
    seen: set[object] = set()
    for one in call.graph.operations:
        launch, frame = one.recorded.launch, call.source.frame(one)
        if launch is None or launch.language != "triton" or launch.first_line is None:
            continue
        numbers = tuple(each.argument.text for each in one.recorded.kwargs)
        key = (one.recorded.span, launch, numbers)
        file = call.source.file(launch.file)
        if file is None or frame is None or key in seen:
            continue
        seen.add(key)
        function = functions(file.text).get((launch.kernel, launch.first_line))
        if function is not None:
            yield one, Kernel(function, one, launch), file, launch.file


@functools.lru_cache(maxsize=4)
def functions(text: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Return the functions of a text by name and first line, that of a decorator included."""
    return {
        (node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])): node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    }


# --- lanes ---------------------------------------------------------------------------------------


def lanes(call: Call) -> Iterator[Change]:
    """Yield kernels whose lanes move along the dimension with a stride."""
    for operation, kernel, file, path in kernels(call):
        across = [one for one in divided(kernel) if is_across(kernel, one.fast, one.slow)]
        if not across:
            call.miss(operation, strided(kernel))
            continue
        one = across[0]
        extent = extent_of(kernel, one)
        fast, slow = (place(file, kernel.once[name]) for name in (one.fast, one.slow))
        if extent is None or not is_elementwise(kernel, operation, call.graph):
            call.miss(operation, across_text(kernel, one.fast))
        elif fast is not None and slow is not None:
            new: dict[cst.CSTNode, str] = {
                fast: f"{one.at} // {extent}",
                slow: f"{one.at} % {extent}",
            }
            said = f"lanes of {kernel.launch.kernel} move along {one.fast}, across memory"
            yield Change(path, new, said)


@dataclass(frozen=True)
class Divided:
    """An offset taken apart: `fast = at % bottom`, `slow = at // bottom`."""

    fast: str
    slow: str
    at: str
    bottom: str


def divided(kernel: Kernel) -> Iterator[Divided]:
    """Yield the offsets of a kernel's lanes that are taken apart by a parameter."""
    for fast, value in kernel.once.items():
        match value:
            case ast.BinOp(left=ast.Name(id=at), op=ast.Mod(), right=ast.Name(id=bottom)):
                for slow, other in kernel.once.items():
                    if ast.unparse(other) == f"{at} // {bottom}" and kernel.is_lane(value):
                        yield Divided(fast, slow, at, bottom)


def extent_of(kernel: Kernel, one: Divided) -> str | None:
    """Return the parameter B of `at < A * B`, where A is what `at` is divided by. None where the
    offset is read elsewhere, or is no number of all lanes of all programs: then the lanes below
    A * B are not each pair of offsets once."""
    masks = {id(b): b for call in kernel.calls for b in bounds_in(call, one.at)}
    masks |= {id(b): b for value in kernel.once.values() for b in bounds_in(value, one.at)}
    extents = {other_factor(kernel, bound, one.bottom) for bound in masks.values()}
    extent = extents.pop() if len(extents) == 1 else None
    if extent is None or {extent, one.bottom} & {*kernel.bound}:
        return None
    if len(kernel.uses(one.at)) > 2 + len(masks):
        return None
    return extent if is_numbering(kernel, one, extent) else None


def bounds_in(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield what a name is compared with: `at < rows * cols`."""
    for one in ast.walk(node):
        match one:
            case ast.Compare(left=ast.Name(id=left), ops=[ast.Lt()], comparators=[right]):
                if left == name:
                    yield right


def other_factor(kernel: Kernel, bound: ast.expr, factor: str) -> str | None:
    """Return B of a bound `A * B` with a factor A; None of another bound."""
    if isinstance(bound, ast.Name) and bound.id in kernel.once:
        bound = kernel.once[bound.id]
    match bound:
        case ast.BinOp(left=ast.Name(id=left), op=ast.Mult(), right=ast.Name(id=right)):
            return {left: right, right: left}.get(factor)
    return None


def is_numbering(kernel: Kernel, one: Divided, extent: str) -> bool:
    """Return whether `at` numbers all lanes of all programs, nothing else tells them apart, and
    what is beyond the extents is masked out."""
    if one.at not in kernel.once or not all(
        any(bound == one.at for bound in bounded(kernel, mask)) for mask in masks_of(kernel)
    ):
        return False
    inside = kernel.parts(kernel.once[one.at])
    own = [each for each in inside if isinstance(each, ast.Call)]
    outside = {ast.unparse(each) for each in kernel.calls if each not in own}
    if {ast.unparse(each) for each in own} & outside or any("arange" in each for each in outside):
        return False
    names = [each.id for each in inside if isinstance(each, ast.Name) and each.id in kernel.bound]
    if any(n not in kernel.once or len(kernel.uses(n)) != names.count(n) for n in names):
        return False
    sizes = [each.args for each in own if name_of(each.func) == "arange"]
    lanes = [kernel.number(size) for given in sizes for size in given[1:]]
    first, second = kernel.numbers.get(one.bottom), kernel.numbers.get(extent)
    known = [number for number in (*lanes, first, second) if isinstance(number, int)]
    if len(known) != 3:
        return False
    return known[0] * math.prod(kernel.launch.grid) >= known[1] * known[2]


def bounded(kernel: Kernel, mask: ast.expr) -> Iterator[str]:
    """Yield the names that a mask, and all that it is a conjunction of, says are below a bound."""
    match mask:
        case ast.Name(id=name) if name in kernel.once:
            yield from bounded(kernel, kernel.once[name])
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            yield from bounded(kernel, left)
            yield from bounded(kernel, right)
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt()]):
            yield name


def masks_of(kernel: Kernel) -> Iterator[ast.expr]:
    """Yield the mask of each load and store; a constant where there is none."""
    for one in kernel.calls:
        if (name := name_of(one.func)) in ("load", "store"):
            given = [each.value for each in one.keywords if each.arg == "mask"]
            given += one.args[1:2] if name == "load" else one.args[2:3]
            yield given[0] if given else ast.Constant(value=None)


def is_elementwise(kernel: Kernel, operation: Operation, graph: Graph) -> bool:
    """Return whether each lane computes from its offsets alone, and writes to new memory."""
    launch = kernel.launch
    given = {one.name: one.argument.value for one in operation.recorded.kwargs}
    return (
        launch.is_sure
        and not {*launch.reads} & {*launch.writes}
        and all(map(is_pointwise, kernel.calls))
        and all(graph.made_by(given[name], *FRESH) is not None for name in launch.writes)
    )


def is_pointwise(call: ast.Call) -> bool:
    """Return whether a call's result in a lane depends on its arguments in that lane."""
    match call.func:
        case ast.Name(id=name):
            return name in PLAIN
        case ast.Attribute(attr="to"):
            return True
        case ast.Attribute(value=module, attr=name):
            return name in POINTWISE and ast.unparse(module).partition(".")[0] in MODULES
    return False


def is_across(kernel: Kernel, fast: str, slow: str) -> bool:
    """Return whether more accesses have a stride along the fast offset than along the slow one."""
    score = 0
    for one in kernel.accesses():
        first, second = one.stride(fast), one.stride(slow)
        if first is not None and second is not None:
            score += (first > 1 and second == 1) - (first == 1 and second > 1)
    return score > 0


def across_text(kernel: Kernel, fast: str) -> str:
    """Return that lanes move along an offset with a stride, in words."""
    for one in kernel.accesses():
        stride = one.stride(fast)
        if stride is not None and stride > 1:
            return ACROSS.format(kernel=kernel.launch.kernel, stride=stride, pointer=one.pointer)
    return ""


def strided(kernel: Kernel) -> str:
    """Return that lanes of a kernel are a stride apart, in words; "" where they are not."""
    for one in kernel.accesses():
        tiles = [stride for _, stride, is_lane in one.terms if is_lane]
        known = [stride for stride in tiles if stride is not None]
        if tiles and len(known) == len(tiles) and min(known) > 1:
            return ACROSS.format(
                kernel=kernel.launch.kernel, stride=min(known), pointer=one.pointer
            )
    return ""


# --- programs ------------------------------------------------------------------------------------


def programs(call: Call) -> Iterator[Change]:
    """Yield kernels whose neighboring programs are far apart in memory."""
    for _, kernel, file, path in kernels(call):
        axes: dict[str, list[str]] = {"0": [], "1": []}
        for name, value in kernel.once.items():
            for axis, names in axes.items():
                names += [name] if ast.unparse(value) == f"tl.program_id({axis})" else []
        ids = [one for one in kernel.calls if name_of(one.func) == "program_id"]
        is_plain = len(ids) == 2 and all(len(names) == 1 for names in axes.values())
        grid = (*kernel.launch.grid, 1, 1)
        has_atomics = any(name_of(one.func).startswith("atomic_") for one in kernel.calls)
        if not is_plain or has_atomics or min(grid[:2]) < 2 or calls_others(kernel):
            continue
        (fast,), (slow,) = axes.values()
        if not is_across(kernel, fast, slow):
            continue
        code = renumbered(kernel, fast, slow)
        places = [(place(file, kernel.once[name]), text) for name, text in code]
        new = {
            next(above for above in file.above(node) if is_statement(above)): text
            for node, text in places
            if node is not None
        }
        if len(new) == 2:
            said = f"neighboring programs of {kernel.launch.kernel} are far apart in memory"
            yield Change(path, new, said)


def calls_others(kernel: Kernel) -> bool:
    """Return whether a kernel calls functions of the user's, which may ask for the program too."""
    known = {one.arg for one in kernel.function.args.args} | {*kernel.bound} | MODULES
    for one in kernel.calls:
        root = one.func
        while isinstance(root, ast.Attribute):
            root = root.value
        is_method = isinstance(one.func, ast.Attribute) and not isinstance(root, ast.Name)
        names = PLAIN if root is one.func else known
        if not is_method and not (isinstance(root, ast.Name) and root.id in names):
            return True
    return False


def renumbered(kernel: Kernel, fast: str, slow: str) -> list[tuple[str, str]]:
    """Return new code for the statements of both numbers of a program, the first one first; none
    where they are not statements of the function itself."""
    names = [
        one.targets[0].id
        for one in kernel.function.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
    ]
    known = {one.arg for one in kernel.function.args.args} | {*kernel.bound}
    pid = next((one for one in ("pid", "program", "number") if one not in known), None)
    if pid is None or not {fast, slow} <= {*names}:
        return []
    code = {
        fast: f"{fast} = {pid} // tl.num_programs(1)",
        slow: f"{slow} = {pid} % tl.num_programs(1)",
    }
    first, second = sorted(code, key=names.index)
    linear = f"{pid} = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)"
    return [(first, f"{linear}\n{code[first]}"), (second, code[second])]


# --- syntax --------------------------------------------------------------------------------------


def place(file: File, node: ast.expr) -> cst.BaseExpression | None:
    """Return an expression in the file's tree."""
    return file.node_at(
        Span(
            line=node.lineno,
            last_line=node.end_lineno or node.lineno,
            column=node.col_offset,
            last_column=node.end_col_offset,
        )
    )


def name_of(node: ast.AST) -> str:
    """Return the last part of a dotted name; of a call, that of its function."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


RULES = (
    RecordedRule(
        name="kernel_lane_order",
        family="memory access",
        why="lanes of a warp read memory together where their elements are neighbors",
        precondition="the kernel is elementwise over two extents and writes to new memory",
        find=lanes,
    ),
    RecordedRule(
        name="kernel_program_order",
        family="memory access",
        why="programs that run at a time share lines of cache where they are neighbors in memory",
        precondition="the kernel has no atomics, and fewer than 2^31 programs",
        find=programs,
    ),
)
