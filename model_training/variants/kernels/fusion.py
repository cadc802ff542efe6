"""Statements in a row as one Triton kernel, with the function that launches it.

    fused = fuse(program, shapes, forward)     # other statements, and the kernels that they call

A run of statements becomes a kernel where each is of elements, or of the last dimension, and one
name alone is needed after them. Where nothing is of the row, the kernel is of elements and flat.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from model_training.variants.kernels.calls import Extent, Untranslatable
from model_training.variants.kernels.terms import Terms
from model_training.variants.shapes import Shapes
from model_training.variants.source import Extra, Program, Statement

MIN_OPERATORS = 3
"""Kernels of torch that one of Triton is worth writing for."""
IMPORTS = (
    "import triton",
    "import triton.language as tl",
    "from triton.language.extra import libdevice",
)
FLAT = """@triton.jit
def {name}_kernel({pointers}, out_pointer, size, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
{loads}
{lines}
    tl.store(out_pointer + place, {result}, mask=inside)


def {name}({arguments}):
{contiguous}
    out = torch.empty_like({first})
    grid = (triton.cdiv(out.numel(), 1024),)
    {name}_kernel[grid]({arguments}, out, out.numel(), BLOCK=1024)
    return out"""
ROWS = """@triton.jit
def {name}_kernel(
    {pointers}, out_pointer,
    num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    place = row * width + column
    inside = (row < num_rows) & (column < width)
{loads}
{lines}
    tl.store(out_pointer + {place}, {result}, mask={mask})


def {name}({arguments}):
{contiguous}
    out = {out}
    width = {first}.shape[-1]
    num_rows = {first}.numel() // width
    columns = triton.next_power_of_2(width)
    rows = max(1, 2048 // columns)
    grid = (triton.cdiv(num_rows, rows),)
    {name}_kernel[grid]({arguments}, out, num_rows, width, ROWS=rows, COLUMNS=columns)
    return out"""
OUT: dict[Extent, str] = {
    "full": "torch.empty_like({first})",
    "kept": "{first}.new_empty(*{first}.shape[:-1], 1)",
    "row": "{first}.new_empty({first}.shape[:-1])",
}
PLACES: dict[Extent, tuple[str, str]] = {
    "full": ("place", "inside"),
    "kept": ("row", "row < num_rows"),
    "row": ("row", "row < num_rows"),
    "column": ("column", "column < width"),
}
_NORM = re.compile(r"(self\.\w+) = nn\.LayerNorm\(")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Statements from `start` to `end` that are a kernel; `result` is what they leave."""

    start: int
    end: int
    result: str
    terms: Terms


def fuse(
    program: Program, shapes: Sequence[Shapes], forward: Sequence[Statement]
) -> tuple[list[Statement], Extra] | None:
    """The statements with their runs as kernels; None where no run is worth one. `shapes` are those
    before each of the statements."""
    norms = norms_of(program)
    found: list[Statement] = []
    definitions: list[str] = []
    place = 0
    while place < len(forward):
        run = run_at(place, forward, shapes, norms)
        if run is None:
            found.append(forward[place])
            place += 1
            continue
        name = "fused" if not definitions else f"fused_{len(definitions) + 1}"
        definitions.append(written(name, run))
        found += Statement.of(f"{run.result} = {name}({', '.join(in_order(run.terms))})")
        place = run.end
    if not definitions:
        return None
    return found, Extra(imports=IMPORTS, definitions=tuple(definitions))


def norms_of(program: Program) -> dict[str, float]:
    """The layer norms of a program, `self.norm`, and their epsilon, which is torch's default."""
    return {name: 1e-5 for line in program.init for name in _NORM.findall(line)}


def run_at(
    start: int, forward: Sequence[Statement], shapes: Sequence[Shapes], norms: dict[str, float]
) -> Run | None:
    """The longest run of statements from there that is worth a kernel."""
    for end in range(len(forward), start, -1):
        result = only_result(forward[start:end], forward[end:])
        terms = translated(forward[start:end], shapes[start], norms) if result else None
        if result is None or terms is None:
            continue
        extent = terms.known.get(result)
        has_full = ("x", "full") in terms.loads.values()
        num = sum(num_operators(one.node) for one in forward[start:end])
        if extent in OUT and has_full and num >= MIN_OPERATORS:
            return Run(start=start, end=end, result=result, terms=terms)
    return None


def translated(
    statements: Sequence[Statement], shapes: Shapes, norms: dict[str, float]
) -> Terms | None:
    terms = Terms(row_shape=shapes["x"], shapes=shapes, norms=norms)
    if not terms.row_shape:
        return None
    for one in statements:
        match one.node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                try:
                    terms.assign(name, value)
                except Untranslatable:
                    return None
            case _:
                return None
    return terms


def only_result(statements: Sequence[Statement], after: Sequence[Statement]) -> str | None:
    """The one name that is assigned here and read later."""
    assigned = names(statements, ast.Store)
    needed = assigned & ({"x"} | names(after, ast.Load))
    return needed.pop() if len(needed) == 1 else None


def names(statements: Sequence[Statement], context: type[ast.expr_context]) -> set[str]:
    """What is stored or loaded."""
    return {
        node.id
        for one in statements
        for node in ast.walk(one.node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }


def num_operators(node: ast.AST) -> int:
    return sum(isinstance(one, ast.BinOp | ast.Call | ast.Compare) for one in ast.walk(node))


def in_order(terms: Terms) -> dict[str, tuple[str, Extent]]:
    """What is read: `x` first, whose type the result has, then other full tensors."""
    return dict(sorted(terms.loads.items(), key=lambda one: (one[0] != "x", one[1][1] != "full")))


def written(name: str, run: Run) -> str:
    """The kernel and its launcher."""
    terms = run.terms
    loads = in_order(terms)
    names = [local for local, _ in loads.values()]
    extent = terms.known[run.result]
    extents = {one for _, one in loads.values()}
    is_flat = not terms.reduces and extents <= {"full", "number"} and "width" not in words(terms)
    place, mask = PLACES[extent]
    return (FLAT if is_flat else ROWS).format(
        name=name,
        arguments=", ".join(names),
        pointers=", ".join(f"{one}_pointer" for one in names),
        loads="\n".join(f"    {load(local, one)}" for local, one in loads.values()),
        lines="\n".join(f"    {line}" for line in terms.lines),
        contiguous="\n".join(
            f"    {local} = {local}.contiguous()"
            for local, one in loads.values()
            if one in ("full", "kept")
        ),
        first=names[0],
        out=OUT[extent].format(first=names[0]),
        place=place,
        mask=mask,
        result=run.result,
    )


def words(terms: Terms) -> set[str]:
    return set(re.findall(r"\w+", " ".join(terms.lines)))


def load(name: str, extent: Extent) -> str:
    if extent == "number":
        return f"{name} = tl.load({name}_pointer)"
    place, mask = PLACES[extent]
    return f"{name} = tl.load({name}_pointer + {place}, mask={mask}, other=0)"
