"""Find results that nothing reads, and reductions that reduce nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.editing.layout import with_argument
from cudal1_ci.propose.recorded.certainty import unstated
from cudal1_ci.propose.recorded.graph import Graph, Operation, literal
from cudal1_ci.propose.recorded.patterns import Leaf, Match, code_at, given, written
from cudal1_ci.propose.recorded.reads import loads_of
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File, Place
from cudal1_ci.records.recording import Argument

SAME_SIZE = frozenset(
    (
        *("relu", "gelu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "neg"),
        *("square", "silu", "mish", "softplus", "log1p", "contiguous", "clone", "detach"),
    )
)
"""Operations of one tensor whose result has its shape."""
VALUES = {"max": "amax", "min": "amin"}
SPECTRA = {"svd": (1, "S", "svdvals"), "eigh": (0, "eigenvalues", "eigvalsh")}
"""Of a decomposition: which result holds the values, its name, and what computes it alone."""
OPTIONS = frozenset(("full_matrices", "some"))
REDUCING = frozenset(("sum", "mean", "logsumexp", "amax", "amin", "max", "min"))
POOLS = frozenset(f"{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3))
FEW = 6
"""Most tensors that are added one after the other."""
POSITIONS = frozenset(("argmax", "argmin"))
DEFAULTS = (
    ("padding", "0"),
    ("dilation", "1"),
    ("ceil_mode", "False"),
    ("return_indices", "False"),
)


def leaf(operation: Operation, position: int) -> Leaf:
    """Return an argument of an operation as what a variable stands for."""
    argument = operation.argument(position)
    return Leaf(argument or Argument(kind="other"), operation, position)


def find_extrema(call: Call) -> Iterator[Change]:
    """Find `x.max(dim=1)[0]`, whose indices are not read."""
    source, graph = call.source, call.graph
    for operation in graph.operations:
        place, arguments = source.place(operation), given(operation)
        file = None if place is None else source.file(place.file)
        known = graph.of(operation.value(0))
        is_alone = {"input", "dim"} <= arguments.keys() <= {"input", "dim", "keepdim"}
        if operation.name not in VALUES or place is None or file is None or not is_alone:
            continue
        node = first_of(file, place)
        leaves = {
            "X": leaf(operation, 0),
            "K": Leaf(*arguments["dim"][:1], operation, arguments["dim"][1]),
        }
        if node is None or known is None or "float" not in known.dtype:
            continue
        kept = ", keepdim=True" if "keepdim" in arguments else ""
        keys = {key for name, (_, key) in arguments.items() if name == "keepdim"}
        if any(key in keys for _, (key, _, _) in unstated(source, [operation])):
            continue
        template = f"torch.{VALUES[operation.name]}(X, dim=K{kept})"
        code, modules = code_at(source, Match(graph, (operation,), leaves), template, operation)
        if code is not None:
            yield Change(place.file, {node: code}, shown(operation, source), modules)


def first_of(
    file: File, place: Place, number: int = 0, attribute: str = "values"
) -> cst.BaseExpression | None:
    """Return the expression of the first one of several results, or of another one, where that
    alone is read."""
    parent = file.parents.get(place.node)
    if isinstance(parent, cst.Subscript) and parent.value is place.node:
        return parent if file.code(parent).endswith(f"[{number}]") else None
    is_first = isinstance(parent, cst.Attribute) and parent.attr.value == attribute
    return parent if isinstance(parent, cst.Attribute) and is_first else None


def find_weights(call: Call) -> Iterator[Change]:
    """Find `y, _ = self.attention(x, x, x)`, whose weights are not read."""
    source, graph = call.source, call.graph
    for operation in graph.operations:
        recorded = operation.recorded
        if operation.name != "multi_head_attention_forward" or len(recorded.outputs) != 2:
            continue
        last = graph.in_one_call(operation)[-1]
        place, weights = source.place(last), recorded.outputs[1]
        file = None if place is None else source.file(place.file)
        if place is None or file is None or weights in graph.recording.outputs:
            continue
        node = place.node
        if graph.readers.get(weights) or not isinstance(node, cst.Call):
            continue
        parent = file.parents.get(node)
        is_first = isinstance(parent, cst.Subscript) and first_of(file, place) is parent
        options = {one.keyword.value for one in node.args if one.keyword}
        is_plain = not any(one.star for one in node.args) and len(node.args) - len(options) <= 4
        if options & {"need_weights", "average_attn_weights"} or not is_plain:
            continue
        if is_first or is_second_unread(file, place):
            new = with_argument(node, "need_weights", cst.Name("False"))
            yield Change(place.file, {node: file.code(new)}, shown(last, source))


def is_second_unread(file: File, place: Place) -> bool:
    """Return whether an expression is assigned to two names, and the second one is not read."""
    parent = file.parents.get(place.node)
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return False
    target = parent.targets[0].target
    pair = [one.value for one in target.elements] if isinstance(target, cst.Tuple) else []
    if len(pair) != 2 or not isinstance(pair[1], cst.Name):
        return False
    return loads_of(file, place, pair[1].value) == []


def find_spectra(call: Call) -> Iterator[Change]:
    """Find `u, s, v = torch.svd(x)` where u and v are not read."""
    source, graph = call.source, call.graph
    for operation in graph.operations:
        place = source.place(operation)
        number, attribute, function = SPECTRA.get(operation.name, (0, "", ""))
        file = None if place is None else source.file(place.file)
        if not function or place is None or file is None or len(operation.recorded.args) != 1:
            continue
        others = [one for n, one in enumerate(operation.recorded.outputs) if n != number]
        if any(graph.readers.get(one) or one in graph.recording.outputs for one in others):
            continue
        if any(one.name not in OPTIONS for one in operation.recorded.kwargs):
            continue
        matrix = source.argument_code(operation, 0, operation)
        code = f"torch.linalg.{function}({matrix})"
        part = first_of(file, place, number, attribute)
        target = only_read(file, place, number) if part is None else None
        if matrix is None or (part is None and target is None):
            continue
        new: dict[cst.CSTNode, str] = {place.statement: f"{target} = {code}\n"}
        new = new if part is None else {part: code}
        yield Change(place.file, new, shown(operation, source), frozenset(("torch",)))


def only_read(file: File, place: Place, number: int) -> str | None:
    """Return the name of one of several results, if the line assigns each to a name and the other
    names are not read."""
    parent = file.parents.get(place.node)
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return None
    target = parent.targets[0].target
    found = [one.value for one in target.elements] if isinstance(target, cst.Tuple) else []
    names = [one.value for one in found if isinstance(one, cst.Name)]
    if len(names) < len(found) or number >= len(names):
        return None
    others = (one for n, one in enumerate(names) if n != number)
    is_alone = all(loads_of(file, place, one) == [] for one in others)
    return names[number] if is_alone else None


def find_stacked(call: Call) -> Iterator[Change]:
    """Find `torch.stack([a, b, c]).mean(0)`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        stack, arguments = graph.made_by(operation.value(0), "stack"), given(operation)
        if operation.name not in ("sum", "mean") or stack is None or len(arguments) != 2:
            continue
        listed, place = stack.argument(0), source.place(stack)
        node = place.node.args[0].value if place and isinstance(place.node, cst.Call) else None
        if listed is None or not isinstance(node, cst.List | cst.Tuple) or "dim" not in arguments:
            continue
        known = [graph.of(one.value) for one in listed.items]
        is_written = len(known) == len(node.elements) and None not in known
        if not is_written or len(known) > FEW or not all("float" in o.dtype for o in known if o):
            continue
        dims = graph.dims(stack.literal(1, "dim") or 0, stack.output)
        if dims != graph.dims(literal(arguments["dim"][0]), stack.output):
            continue
        if any(True for _ in unstated(source, [operation])):
            continue
        leaves = {f"X{n}": Leaf(one, stack, n) for n, one in enumerate(listed.items)}
        total = " + ".join(leaves)
        template = f"({total}) / {len(leaves)}" if operation.name == "mean" else total
        change = written(call, Match(graph, (operation, stack), leaves, is_layer=True), template)
        if change is not None:
            yield change


def find_positions(call: Call) -> Iterator[Change]:
    """Find argmax over a dimension that is not the last one, on a CPU."""
    graph = call.graph
    for operation in graph.operations:
        known, arguments = graph.of(operation.value(0)), given(operation)
        if operation.name not in POSITIONS or known is None or known.device != "cpu":
            continue
        if "dim" not in arguments or graph.is_last_dim(operation) or "float" not in known.dtype:
            continue
        argument, key = arguments["dim"]
        leaves = {"X": leaf(operation, 0), "K": Leaf(argument, operation, key)}
        kept = ", keepdim=True" if "keepdim" in arguments else ""
        template = f"torch.{operation.name[3:]}(X, dim=K{kept}).indices"
        change = written(call, Match(graph, (operation,), leaves), template)
        if change is not None:
            yield change


def find_of_one(call: Call) -> Iterator[Change]:
    """Find `logsumexp(x.sum(1, keepdim=True), dim=1)`: one number is its own sum."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        value = operation.value(0)
        made = graph.made_by(value)
        if operation.name not in REDUCING or made is None:
            continue
        if graph.sole_reader(value) is not operation:
            continue
        while made is not None and made.name in SAME_SIZE and len(given(made)) == 1:
            made = graph.made_by(made.value(0))
        if made is None or made.name not in REDUCING or "keepdim" not in given(made):
            continue
        inner, outer = dims_of(graph, made), dims_of(graph, operation)
        is_number = made.name in ("amax", "amin", "max", "min")
        if (
            not outer
            or not outer <= inner
            or (is_number and operation.name in ("sum", "logsumexp"))
        ):
            continue
        if any(True for _ in unstated(source, [made, operation])):
            continue
        argument, key = given(operation)["dim"]
        leaves = {"X": leaf(operation, 0), "K": Leaf(argument, operation, key)}
        template = "X" if "keepdim" in given(operation) else "X.squeeze(K)"
        change = written(call, Match(graph, (operation,), leaves), template)
        place = source.place(operation)
        file = None if place is None else source.file(place.file)
        if change is None or place is None or file is None:
            continue
        if operation.name in VALUES:  # only its values are read
            node = first_of(file, place)
            code = change.new.get(place.node)
            if node is None or code is None:
                continue
            change = replace(change, new={node: code})
        yield change


def dims_of(graph: Graph, operation: Operation) -> set[int]:
    """Return the dimensions of a reduction."""
    arguments = given(operation)
    if not arguments.keys() <= {"input", "dim", "keepdim"} or "dim" not in arguments:
        return set()
    return {*graph.dims(literal(arguments["dim"][0]), operation.value(0))}


def find_pools(call: Call) -> Iterator[Change]:
    """Find `F.max_pool2d(F.max_pool2d(x, 2), 3)`: neither overlaps, and neither pads."""
    graph, source = call.graph, call.source
    for outer in graph.operations:
        inner = graph.made_by(outer.value(0), outer.name)
        if outer.name not in POOLS or inner is None:
            continue
        sizes = [window(one) for one in (inner, outer)]
        if None in sizes or any(True for _ in unstated(source, [inner, outer])):
            continue
        whole = (sizes[0] or 0) * (sizes[1] or 0)
        found = Match(graph, (outer, inner), {"X": leaf(inner, 0)})
        change = written(call, found, f"F.{outer.name}(X, {whole})")
        if change is not None:
            yield change


def window(operation: Operation) -> int | None:
    """Return the size of windows that are as wide in each direction and as far apart."""
    size = operation.literal(1, "kernel_size")
    recorded = operation.recorded
    texts = {one.name: one.argument.text for one in recorded.kwargs}
    if not isinstance(size, int) or texts.pop("stride", None) not in (None, "None", str(size)):
        return None
    texts.pop("kernel_size", None)
    others = [one for one in texts.items() if one[1] != "None" and one not in DEFAULTS]
    places = [one.text for one in recorded.args[2:]]
    is_plain = places[:1] in ([], [str(size)], ["None"]) and {*places[1:]} <= {"0", "1", "False"}
    return size if is_plain and len(places) < 2 and not others else None


RULES = (
    RecordedRule(
        name="extremum",
        family="algebra",
        why="amax and amin look for no index: less arithmetic, and no tensor of 64-bit integers "
        "next to the values",
        precondition="the values alone of max or min over a dimension; where several are the "
        "largest they share the gradient, which max gives to one of them",
        find=find_extrema,
    ),
    RecordedRule(
        name="positions_of_max",
        family="library call",
        why="on a CPU, max and min look for positions along several rows at a time, and argmax and "
        "argmin do not",
        precondition="floating-point numbers on a CPU, over a dimension that is not the last one",
        find=find_positions,
    ),
    RecordedRule(
        name="sum_of_stack",
        family="algebra",
        why="a few tensors are added where they are; stacked, they are all copied first",
        precondition=f"at most {FEW} tensors in a list that is written out, summed or averaged "
        "along the new dimension",
        find=find_stacked,
    ),
    RecordedRule(
        name="values_alone",
        family="algebra",
        why="singular values and eigenvalues take half of the time where no vectors are computed",
        precondition="the vectors are not read",
        find=find_spectra,
    ),
    RecordedRule(
        name="attention_weights",
        family="operation fusion",
        why="attention that need not return its weights is computed in tiles, and the queries x "
        "keys matrix is never written to memory, nor its mean over the heads",
        precondition="an nn.MultiheadAttention whose weights are not read where it is called, nor "
        "by a hook",
        find=find_weights,
    ),
    RecordedRule(
        name="reduction_of_one",
        family="algebra",
        why="over one number each of them is that number: nothing is launched",
        precondition="a sum, mean, logsumexp or extremum over a dimension that an earlier one has "
        "reduced and kept",
        find=find_of_one,
    ),
    RecordedRule(
        name="pools_in_a_row",
        family="algebra",
        why="windows that do not overlap make one larger window: the input is read once, and "
        "nothing is written in between",
        precondition="two max or two average pools with nothing but a kernel size, a number, one "
        "after the other",
        find=find_pools,
    ),
)
