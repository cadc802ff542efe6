"""Replace Python loops over a dimension by one batched operation.

`torch.vmap` does so without knowing the operations of the body. It computes for all indices what
the body computed for one, with one kernel instead of one per iteration. The loop variable may only
pick slices, so iterations cannot depend on each other. A tensor may have more slices than the loop
reads: unless the method takes the number of iterations from its size, vmap gets so many of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.rewrites.rewrite import Rewrite, Site, SourceEdit, short
from cudal1_ci.propose.rewrites.terms import code, names_in
from cudal1_ci.propose.rewrites.walk import assigned_name, stored_names

Lines = list[cst.BaseStatement]


@dataclass
class Slices:
    """The tensors that a body reads at the loop's index, and along which dimension."""

    dims: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Text of the sliced expression -> (parameter name, dimension)."""


class TakeSlices(cst.CSTTransformer):
    """Replace `x[i]`, `x[:, i]` by a parameter, and record any other use of the index."""

    def __init__(self, index: str):
        self.index = index
        self.slices = Slices()
        self.is_vectorizable = True

    def visit_Subscript(self, node: cst.Subscript) -> bool:  # noqa: N802
        return self.dimension(node) is None

    def leave_Subscript(  # noqa: N802
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        dim = self.dimension(original_node)
        if dim is None:
            return updated_node
        text = code(original_node.value)
        known = self.slices.dims.get(text)
        if known is not None and known[1] != dim:
            self.is_vectorizable = False
            return updated_node
        name = known[0] if known else self.parameter(original_node.value)
        self.slices.dims[text] = (name, dim)
        return cst.Name(name)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802
        if original_node.value == self.index:
            self.is_vectorizable = False
        return updated_node

    def parameter(self, node: cst.BaseExpression) -> str:
        last = node.attr.value if isinstance(node, cst.Attribute) else code(node)
        base = f"{last}_{self.index}" if last.isidentifier() else f"slice_{self.index}"
        taken = {name for name, _ in self.slices.dims.values()}
        while base in taken:
            base += "_"
        return base

    def dimension(self, node: cst.Subscript) -> int | None:
        """Return the dimension that the index picks, if all dimensions before it are whole."""
        if not isinstance(node.value, cst.Name | cst.Attribute) or self.index in names_in(
            node.value
        ):
            return None
        for dim, element in enumerate(node.slice):
            part = element.slice
            if isinstance(part, cst.Index):
                is_index = isinstance(part.value, cst.Name) and part.value.value == self.index
                rest = node.slice[dim + 1 :]
                return dim if is_index and all(is_whole(e) for e in rest) else None
            if not is_whole(element):
                return None
        return None


def is_whole(element: cst.SubscriptElement) -> bool:
    """Return whether an element is `:`."""
    part = element.slice
    return isinstance(part, cst.Slice) and part.lower is part.upper is part.step is None


def with_slices(
    parts: Sequence[cst.CSTNode], index: str
) -> tuple[list[cst.CSTNode], Slices] | None:
    """Return the parts of a body with a parameter in place of each slice. None without a slice, or
    if the index has another use. None too if an iteration may skip a tensor, as `x[i]` of `x[i] if
    x is not None else 0`: vmap does not accept None.
    """
    taker = TakeSlices(index)
    new = [part.visit(taker) for part in parts]
    read = {
        code(node.value)
        for part in parts
        for node in evaluated(part)
        if isinstance(node, cst.Subscript) and taker.dimension(node) is not None
    }
    if not taker.is_vectorizable or not read or taker.slices.dims.keys() - read:
        return None
    return [part for part in new if isinstance(part, cst.CSTNode)], taker.slices


def evaluated(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a part of a program and those of its parts that are always evaluated with it."""
    yield node
    if isinstance(node, cst.Lambda):
        return
    children: Sequence[cst.CSTNode] = node.children
    if isinstance(node, cst.IfExp):
        children = [node.test]
    elif isinstance(node, cst.BooleanOperation):
        children = [node.left]
    for child in children:
        yield from evaluated(child)


def vectorized(site: Site) -> SourceEdit | None:
    """Replace `outs.append(f(x[:, i]))` over a range, and `torch.stack` of them, by one vmap."""
    functions: dict[cst.FunctionDef, cst.FunctionDef] = {}
    found: list[str] = []
    if site.names.imports.get("torch") != "torch":
        return None
    for method in site.methods():
        sizes = sizes_of(method)
        changed = method.visit(Comprehensions(found, sizes))
        assert isinstance(changed, cst.FunctionDef)
        if isinstance(changed.body, cst.IndentedBlock):
            lines = with_vmapped_loops(list(changed.body.body), found, sizes)
            changed = changed.with_changes(body=changed.body.with_changes(body=lines))
        if code(changed) != code(method):
            functions[method] = changed
    return SourceEdit(functions, tuple(found)) if functions else None


def sizes_of(method: cst.FunctionDef) -> dict[str, str]:
    """Return the text of the size that a local holds: `x.shape[1]` of `B, T = x.shape`. Neither the
    local nor the tensor may be assigned again.
    """
    found: dict[str, str] = {}
    lines = method.body.body
    for line in lines:
        value = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        if not isinstance(value, cst.Assign) or len(value.targets) != 1:
            continue
        target, text = value.targets[0].target, code(value.value)
        if isinstance(target, cst.Tuple) and re.fullmatch(r"\w+\.(shape|size\(\))", text):
            tensor = text.partition(".")[0]
            names = [code(element.value) for element in target.elements]
            found |= {name: f"{tensor}.shape[{dim}]" for dim, name in enumerate(names)}
        elif isinstance(target, cst.Name):
            found[target.value] = text
    stored = Counter(name for line in lines for name in stored_names(line))
    return {
        name: text
        for name, text in found.items()
        if stored[name] == 1 and not stored[re.split(r"\W", text)[0]]
    }


class Comprehensions(cst.CSTTransformer):
    """Replace `torch.stack([f(x[i]) for i in range(n)], dim=d)`."""

    def __init__(self, found: list[str], sizes: Mapping[str, str]):
        self.found = found
        self.sizes = sizes

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if code(original_node.func) != "torch.stack" or not original_node.args:
            return updated_node
        comprehension = original_node.args[0].value
        if not isinstance(comprehension, cst.ListComp | cst.GeneratorExp):
            return updated_node
        loop = comprehension.for_in
        if loop.ifs or loop.inner_for_in or not isinstance(loop.target, cst.Name):
            return updated_node
        dim = stack_dim(original_node)
        count = count_of(loop.iter)
        if dim is None or count is None:
            return updated_node
        taken = with_slices([comprehension.elt], loop.target.value)
        if taken is None:
            return updated_node
        (body,), slices = taken
        parameters = ", ".join(name for name, _ in slices.dims.values())
        function = f"lambda {parameters}: {code(body)}"
        self.found.append(f"`{short(code(original_node))}`")
        tensors = read_parts(slices, count, self.sizes)
        return cst.parse_expression(vmap_call(function, slices, dim, tensors))


def read_parts(slices: Slices, count: str, sizes: Mapping[str, str]) -> list[str]:
    """Return the parts of the tensors that a loop of so many iterations reads."""
    size = sizes.get(count, count)

    def part(tensor: str, dim: int) -> str:
        whole = {f"{tensor}.shape[{dim}]", f"{tensor}.size({dim})"}
        whole |= set() if dim else {f"len({tensor})"}
        return tensor if size in whole else f"{tensor}.narrow({dim}, 0, {count})"

    return [part(tensor, dim) for tensor, (_, dim) in slices.dims.items()]


def vmap_call(function: str, slices: Slices, dim: str, tensors: Sequence[str]) -> str:
    """Return `torch.vmap(function, in_dims=..., out_dims=...)(tensors)`."""
    dims = [d for _, d in slices.dims.values()]
    in_dims = str(dims[0]) if len(set(dims)) == 1 else str(tuple(dims))
    options = [function]
    if in_dims != "0":
        options.append(f"in_dims={in_dims}")
    if dim != "0":
        options.append(f"out_dims={dim}")
    return f"torch.vmap({', '.join(options)})({', '.join(tensors)})"


def stack_dim(call: cst.Call) -> str | None:
    """Return the text of a stack's dimension; None if it is not understood."""
    if len(call.args) == 1:
        return "0"
    if len(call.args) == 2 and (
        call.args[1].keyword is None or call.args[1].keyword.value == "dim"
    ):
        return code(call.args[1].value)
    return None


def count_of(node: cst.BaseExpression) -> str | None:
    """Return the text of n in `range(n)`; None if a node is something else."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name):
        return None
    return code(node.args[0].value) if node.func.value == "range" and len(node.args) == 1 else None


def with_vmapped_loops(lines: Lines, found: list[str], sizes: Mapping[str, str]) -> Lines:
    """Return a block with every list-and-stack loop replaced."""
    new: Lines = []
    for position, line in enumerate(lines):
        replaced = vmapped(lines, position, new, sizes) if isinstance(line, cst.For) else None
        if replaced is None:
            new.append(line)
            continue
        found.append(f"the loop `{short(code(line).strip())}`")
        rest, kept = replaced
        return [*kept, *with_vmapped_loops(rest, found, sizes)]
    return new


def vmapped(
    lines: Lines, position: int, before: Lines, sizes: Mapping[str, str]
) -> tuple[Lines, Lines] | None:
    """Return the lines after the loop (with its stack replaced) and those up to it (without the
    empty list). None if the loop does more than fill a list that is stacked once.
    """
    loop = lines[position]
    assert isinstance(loop, cst.For)
    count = count_of(loop.iter)
    if loop.orelse or not isinstance(loop.target, cst.Name) or count is None:
        return None
    body = list(loop.body.body)
    appended = appended_to(body[-1]) if body else None
    if appended is None or not before or not is_empty_list(before[-1], appended[0]):
        return None
    outs, value = appended
    inner = [line for line in body[:-1] if isinstance(line, cst.SimpleStatementLine)]
    if len(inner) != len(body) - 1 or any(assigned_name(line) is None for line in inner):
        return None
    uses = [i for i, line in enumerate(lines[position + 1 :]) if outs in names_in(line)]
    if len(uses) != 1 or carries_state(inner, value):
        return None
    taken = with_slices([*inner, value], loop.target.value)
    if taken is None:
        return None
    (*new_inner, new_value), slices = taken
    call = StackCall(outs, slices, read_parts(slices, count, sizes))
    rest = list(lines[position + 1 :])
    rest[uses[0]] = rest[uses[0]].visit(call)  # type: ignore[assignment]
    if not call.is_replaced:
        return None
    parameters = ", ".join(name for name, _ in slices.dims.values())
    text = "".join(code(line) for line in new_inner)
    each = cst.parse_statement(
        f"def each({parameters}):\n"
        + "".join(f"    {row}\n" for row in text.strip().splitlines())
        + f"    return {code(new_value)}\n"
    )
    assert isinstance(each, cst.FunctionDef)
    first = before[-1]
    leading = getattr(first, "leading_lines", ())
    each = each.with_changes(leading_lines=[*leading, *loop.leading_lines])
    return rest, [*before[:-1], each]


class StackCall(cst.CSTTransformer):
    """Replace `torch.stack(outs, dim=d)` by the vmap."""

    def __init__(self, outs: str, slices: Slices, tensors: Sequence[str]):
        self.outs = outs
        self.slices = slices
        self.tensors = tensors
        self.is_replaced = False

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if code(original_node.func) != "torch.stack" or not original_node.args:
            return updated_node
        dim = stack_dim(original_node)
        if code(original_node.args[0].value) != self.outs or dim is None:
            return updated_node
        self.is_replaced = True
        return cst.parse_expression(vmap_call("each", self.slices, dim, self.tensors))


def appended_to(line: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """Return list and value of `outs.append(value)`."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    statement = line.body[0]
    call = statement.value if isinstance(statement, cst.Expr) else None
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        return None
    function = call.func
    if not isinstance(function, cst.Attribute) or not isinstance(function.value, cst.Name):
        return None
    if function.attr.value != "append":
        return None
    return function.value.value, call.args[0].value


def is_empty_list(line: cst.CSTNode, name: str) -> bool:
    """Return whether a line is `outs = []`."""
    if assigned_name(line) != name:
        return False
    assign = cst.ensure_type(cst.ensure_type(line, cst.SimpleStatementLine).body[0], cst.Assign)
    value = assign.value
    return code(value) == "list()" or (isinstance(value, cst.List) and not value.elements)


def carries_state(inner: list[cst.SimpleStatementLine], value: cst.BaseExpression) -> bool:
    """Return whether an iteration reads what an earlier one assigned: such a loop is a
    recurrence.
    """
    assigned: set[str] = set()
    stored: set[str] = set()
    for line in inner:
        stored |= stored_names(line)
    for line in inner:
        assign = cst.ensure_type(line.body[0], cst.Assign)
        if (names_in(assign.value) & stored) - assigned:
            return True
        assigned |= stored_names(line)
    return bool((names_in(value) & stored) - assigned)


# --- cat in a loop ------------------------------------------------------------------------------


def collected(site: Site) -> SourceEdit | None:
    """Replace `out = torch.cat([out, y], dim)` in a loop, which copies all earlier parts in every
    iteration.
    """
    functions: dict[cst.FunctionDef, cst.FunctionDef] = {}
    found: list[str] = []
    for method in site.methods():
        if not isinstance(method.body, cst.IndentedBlock):
            continue
        lines: Lines = []
        for line in method.body.body:
            new = collected_loop(line) if isinstance(line, cst.For | cst.While) else None
            lines += new or [line]
            if new:
                found.append(f"the loop `{short(code(line).strip())}`")
        if len(lines) != len(method.body.body):
            body = method.body.with_changes(body=lines)
            functions[method] = method.with_changes(body=body)
    return SourceEdit(functions, tuple(found)) if functions else None


def collected_loop(loop: cst.For | cst.While) -> Lines | None:
    """Return the loop with a list, and one cat after it."""
    body = list(loop.body.body)
    for position, line in enumerate(body):
        name = assigned_name(line)
        if name is None:
            continue
        assign = cst.ensure_type(cst.ensure_type(line, cst.SimpleStatementLine).body[0], cst.Assign)
        parts = cat_of(assign.value, name)
        if parts is None:
            continue
        others = [*body[:position], *body[position + 1 :]]
        if any(name in names_in(other) for other in others) or name in names_in(parts[0]):
            return None
        collected_name = f"{name}_parts"
        body[position] = cst.parse_statement(f"{collected_name}.append({code(parts[0])})")
        block = cst.ensure_type(loop.body, cst.IndentedBlock)
        first = cst.parse_statement(f"{collected_name} = [{name}]")
        assert isinstance(first, cst.SimpleStatementLine)
        return [
            first.with_changes(leading_lines=loop.leading_lines),
            loop.with_changes(body=block.with_changes(body=body), leading_lines=[]),
            cst.parse_statement(f"{name} = torch.cat({collected_name}{parts[1]})"),
        ]
    return None


def cat_of(node: cst.BaseExpression, name: str) -> tuple[cst.BaseExpression, str] | None:
    """Return what is appended, and the text of the other arguments, of `torch.cat([name, new],
    ...)`.
    """
    if not isinstance(node, cst.Call) or code(node.func) not in ("torch.cat", "torch.concat"):
        return None
    pair = node.args[0].value if node.args else None
    if not isinstance(pair, cst.List | cst.Tuple) or len(pair.elements) != 2:
        return None
    if code(pair.elements[0].value) != name:
        return None
    rest = "".join(
        f", {code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT))}" for arg in node.args[1:]
    )
    return pair.elements[1].value, rest


REWRITES = (
    Rewrite(
        name="loop_to_vmap",
        family="loops",
        precondition="a loop over range(n) whose iterations only read slices of tensors at the "
        "index, each of them in every iteration, stacked into one tensor",
        why="one batched operation runs where the loop launched one per iteration, each on a "
        "small slice.",
        apply=vectorized,
    ),
    Rewrite(
        name="cat_in_loop",
        family="loops",
        precondition="a tensor that grows by torch.cat in every iteration and is read only "
        "after the loop",
        why="every cat copies all that came before: one cat at the end makes it linear.",
        apply=collected,
    ),
)
