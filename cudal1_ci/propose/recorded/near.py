"""Say which fact was missing where a rule nearly matched, in words a maintainer acts on.

A function returns "" where the core of the pattern is not there: nothing is said of that place.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ci.propose.recorded.certainty import has_inner_casts, is_straight, unstated
from cudal1_ci.propose.recorded.formulas import REDUCTIONS, RESHAPED, Cone, Formula
from cudal1_ci.propose.recorded.graph import CASTS, VIEWS, Graph, Operation
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.source import Source

PRODUCTS = ("matmul", "baddbmm", "einsum")
HARMLESS = CASTS | VIEWS | {"clone", "dropout", "detach"}
MOST_STEPS = 8
"""Operations between the products and the softmax of an attention."""
NUMBER_WORDS = {1: "one dimension", 2: "two dimensions", 3: "three dimensions"}


def line_of(operation: Operation) -> int:
    """Return the line of an operation; 0 where it is not known."""
    span = operation.recorded.span
    return 0 if span is None else span.line


def where(operation: Operation) -> str:
    """Return `at line 12`."""
    return f"at line {line_of(operation)}"


# --- attention -----------------------------------------------------------------------------------


def changed_scores(call: Call, softmax: Operation) -> str:
    """Return what is done to scores that attention in torch does not do to them."""
    graph = call.graph
    if reached_product(graph, softmax) is None:
        return ""
    value = softmax.value(0)
    known = ("mul", "div", "add", "sub", "masked_fill", "where")
    between: list[Operation] = []
    for _ in range(MOST_STEPS):
        maker = graph.maker.get(value) if value is not None else None
        if maker is None:
            return ""
        if maker.name in PRODUCTS:
            odd = [o for o in between if o.name.removesuffix("_") not in (*known, *HARMLESS)]
            if odd:
                return f"the scores go through `{odd[-1].name}` {where(odd[-1])}"
            if any(graph.num_dims(o.output) > graph.num_dims(maker.output) for o in between):
                return "a mask gives the scores another dimension"
            return ""
        between.append(maker)
        value = maker.value(0)
    return ""


def changed_weights(call: Call, reader: Operation) -> str:
    """Return what is done to the weights between the softmax and the product with the values."""
    if reached_product(call.graph, reader) is None:
        return ""
    return f"the softmax output goes through `{reader.name}` {where(reader)}"


def other_reader(call: Call, softmax: Operation, value: int | None, into: Operation | None) -> str:
    """Return who else reads scores or weights, besides what is known to."""
    graph = call.graph
    product = reached_product(graph, softmax)
    if product is None or value is None:
        return ""
    maker = graph.maker.get(value)
    is_before = maker is not None and maker.index < softmax.index
    what = "the scores are" if is_before else "the softmax output is"
    if value in graph.recording.outputs:
        return f"{what} returned to the caller"
    expected = {one.index for one in (into, product) if one is not None}
    readers = graph.readers.get(value, [])
    if into is None and len(readers) > 1:
        expected |= {one.index for one in readers if reached_product(graph, one) is not None}
    others = [one for one in readers if one.index not in expected]
    if not others:
        return ""
    return f"{what} read again {where(others[-1])}, by `{others[-1].name}`"


def reached_product(graph: Graph, operation: Operation) -> Operation | None:
    """Return the first product that reads what an operation made, perhaps after other steps."""
    values = {*operation.recorded.outputs}
    for _ in range(MOST_STEPS):
        readers = [one for v in values for one in graph.readers.get(v, [])]
        for one in readers:
            if one.name in PRODUCTS and one.index > operation.index:
                return one
        values = {made for one in readers for made in one.recorded.outputs} - values
    return operation if operation.name in PRODUCTS else None


# --- algebra -------------------------------------------------------------------------------------


def read_again(
    call: Call, what: str, values: Sequence[int | None], known: Sequence[Operation]
) -> str:
    """Return that one of these values is read by other operations than the known ones."""
    for value in values:
        if value in call.graph.recording.outputs:
            return f"{what} is returned to the caller"
        for one in call.graph.readers.get(value, []) if value is not None else ():
            if all(one.index != each.index for each in known):
                return f"{what} is read again {where(one)}, by `{one.name}`"
    return f"{what} has a name that is read again"


def scattered(what: str, operations: Sequence[Operation]) -> str:
    """Return that operations are in branches or functions of their own."""
    lines = sorted(line_of(one) for one in operations)
    return f"{what} is computed in other branches or functions (lines {lines[0]} to {lines[-1]})"


# --- formulas ------------------------------------------------------------------------------------


def not_the_norm(graph: Graph, operation: Operation) -> str:
    """Return why a formula with a mean and a variance is no normalization of torch's; "" for what
    is no such formula, or only a part of one."""
    output = operation.output
    if output is None or operation.name not in ("div", "mul"):
        return ""
    parts = [graph.made_by(one) for one in graph.parts(operation)]
    names = {one.name for one in parts if one is not None}
    if "sub" not in names or not names & {"sqrt", "rsqrt", "std", "add", "pow", "clamp"}:
        return ""
    near = Cone(graph, output).operations[-12:]
    means = [one for one in near if one.name in REDUCTIONS]
    if len(means) < 2:
        return ""
    first, second = means[-2:]
    dims = [graph.dims(one.literal(1, "dim"), one.value(0)) for one in (first, second)]
    if all(dims) and dims[0] != dims[1]:
        one, two = (NUMBER_WORDS.get(len(d), f"{len(d)} dimensions") for d in dims)
        two = two.partition(" ")[0]
        if len(dims[0]) == len(dims[1]):
            one, two = (f"dimension {', '.join(map(str, d))}" for d in dims)
        name, other = (reduction_word(graph, o) for o in (first, second))
        return f"the {name} {where(first)} is over {one}, the {other} over {two}"
    for each in means:
        is_biased = False in (each.literal(2), each.literal(99, "unbiased"))
        if each.name in ("std", "var") and not is_biased and each.literal(99, "correction") != 0:
            name = reduction_word(graph, each)
            return f"the {name} {where(each)} divides by n - 1: write `unbiased=False`"
    return ""


def reduction_word(graph: Graph, operation: Operation) -> str:
    """Return what a reduction is called."""
    if operation.name == "mean" and graph.made_by(operation.value(0), "pow", "square", "mul"):
        return "variance"
    return {"var": "variance", "std": "standard deviation"}.get(operation.name, operation.name)


def not_guaranteed(
    source: Source,
    formula: Formula,
    operation: Operation,
    name: str,
    known: Sequence[Operation] = (),
) -> str:
    """Return why a formula that gives the numbers of a function of torch is not replaced by it.
    Arguments of `known` operations need not be stated."""
    if has_inner_casts(source, formula):
        return f"the formula of {name} casts a value on its way"
    for one, (position, node, _) in unstated(source, formula.operations):
        if one.name in RESHAPED or one in known:
            continue
        what = "a number" if node is None else f"`{code_of(source, one, node)}`"
        if isinstance(position, str):
            what += f" (`{position}`)"
        return f"the code does not state {what} {where(one)}, which {name} needs"
    if not is_straight(source, formula.operations, operation):
        lines = sorted({line_of(one) for one in formula.operations})
        return f"a branch or a loop is between the lines {lines[0]} and {lines[-1]} of {name}"
    return f"its operands have no code {where(operation)}"


def code_of(source: Source, operation: Operation, node: object) -> str:
    """Return an argument's code."""
    place = source.place(operation)
    file = None if place is None else source.file(place.file)
    return "" if file is None else " ".join(file.code(node).split())  # type: ignore[arg-type]
