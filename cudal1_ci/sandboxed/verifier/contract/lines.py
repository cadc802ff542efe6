"""Derive the lines of a contract from what is known of a reference. The important ones are first.

    lines = derive(case, surveyed)

Each line holds uses, in the order in which they are tried on the reference: of several values of an
argument, or several ways to resize inputs, those count that it accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from ...tracer.invariants import invariants_of
from ...wire.runner import Parameter, Plain, Surveyed
from ..cases import Case
from ..inputs import InputSet
from ..states import STATISTICS
from . import sets as made

MOST_TENSORS, MOST_WEIGHTS, MOST_LENGTHS, MOST_WORDS = 4, 8, 4, 6
"""Inputs, parameters, sizes of inputs and words that have lines of their own."""
MOST_STATISTICS = 2
FLOATS = ("bfloat16", "float16", "float64", "float32")
WHOLE = {"int64": "int32", "int32": "int64", "int16": "int64", "uint8": "int64"}
MASK = re.compile(r"mask|bias", re.IGNORECASE)
FINITE = (0.0, 1.0, -1.0, 0.5, -3.0, 8.0, 1000.0, -1000.0)
"""Numbers in the place of NaN, on which an output depends or does not."""
FORMS = ("rows bool", "scores bool", "rows float", "scores float", "elements float")
"""Masks that an argument may take: for each row, for each pair of rows, for each element."""
Sets = Callable[[], list[InputSet]]


@dataclass(frozen=True, kw_only=True)
class Use:
    """One way to use a program: a recipe of the runner, and what it is applied to."""

    recipe: str
    label: str = ""
    target: str = ""
    value: Plain = None
    sets: Sets | None = None
    """The inputs; None is the first set that the workload states."""
    is_new: bool = False
    """Whether the module is constructed for it, because the recipe changes it."""
    finite: tuple[Sets, ...] = ()
    """Of inputs with NaN or infinities: the same with several finite numbers in their place."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the contract."""

    group: str
    aspect: str
    uses: tuple[Use, ...] = ()
    num_wanted: int = 1
    """Uses that the reference must accept to be enough."""
    reason: str = ""
    """Why it is not tried, where there is nothing to try."""
    needs_evidence: str = ""
    """Why a difference is no break unless the project is seen to rely on the line,"""
    failure_needs_evidence: str = ""
    """and why an error is none: it cannot be missed, as a wrong result can."""
    why_stated: str = ""
    """Why what differs is stated and breaks nothing."""
    is_of_checks: bool = False
    """Whether it only asks for the refusals of the reference's own checks."""


def derive(case: Case, surveyed: Surveyed) -> list[Line]:
    """Return the lines of the contract of a reference."""
    made_sets = case.source.made or case.trials[0][1:]
    base = replace(case.usual_inputs(), structure=made_sets[0].structure)
    found = [
        *of_outputs(),
        *of_arguments(surveyed),
        *of_constructor(surveyed),
        *of_masks(base, surveyed.tensors),
        *of_rows(base, surveyed.tensors),
        *of_layouts(base, surveyed.tensors),
        *of_modes(case, surveyed),
        *of_weights(case, surveyed),
        *of_effects(case, surveyed),
        *of_memory(),
        *of_checks(base, surveyed),
        *of_ranges(case, base, surveyed),
        *of_negative_numbers(case, base, surveyed.tensors),
        *of_dtypes(case, base, surveyed.tensors),
        *of_autocast(case),
        *of_values(base, surveyed.tensors),
        *of_subnormals(base, surveyed.tensors),
        *of_lengths(base, surveyed.tensors),
        *of_dimensions(base, surveyed.tensors),
        *of_copies(surveyed),
        *of_devices(case),
        *of_hooks(surveyed),
        *of_large_numbers(base, surveyed.tensors),
        *of_structure(base, surveyed.tensors),
        *of_tracing(),
    ]
    return unchanged(surveyed) + found


def dense(base: InputSet) -> list[tuple[int, torch.Tensor]]:
    """Return the tensors with their numbers but for the structure of others: no line changes it."""
    return [(n, tensor) for n, tensor in enumerate(base.tensors) if n not in base.structure]


def resizable(base: InputSet) -> list[tuple[int, torch.Tensor]]:
    """Return those whose size no structure determines. Values come after their structure."""
    return [(n, tensor) for n, tensor in dense(base) if n - 1 not in base.structure]


def one(group: str, aspect: str, recipe: str, **fields: object) -> Line:
    """Return a line of one use."""
    return Line(group=group, aspect=aspect, uses=(Use(recipe=recipe, **fields),))  # type: ignore[arg-type]


# --- arguments ---------------------------------------------------------------------------------


def of_arguments(surveyed: Surveyed) -> Iterator[Line]:
    """Yield a line for each argument with a plain value, and for each optional one."""
    for parameter in surveyed.arguments:
        name = parameter.name
        if parameter.is_given and parameter.has_default:
            yield one("arguments", f"{name} not given", "omitted", target=name)
        if parameter.value is None and MASK.search(name) and parameter.kind == "plain":
            uses = tuple(
                Use(recipe="masked", label=f"{name} of {form}", target=name, value=form)
                for form in FORMS
            )
            yield Line(group="masks", aspect=f"{name} given", uses=uses)
        elif parameter.kind == "plain":
            yield changed("arguments", name, "argument", parameter, surveyed.words)


def of_constructor(surveyed: Surveyed) -> Iterator[Line]:
    """Yield a line for each argument of the constructor that has a plain value."""
    for parameter in surveyed.init:
        if parameter.kind == "plain":
            aspect = f"{parameter.name} of the constructor"
            yield changed("constructor", aspect, "constructor", parameter, surveyed.words)


def changed(
    group: str, aspect: str, recipe: str, parameter: Parameter, words: Sequence[str]
) -> Line:
    """Return the line of an argument with other values."""
    values = other_values(parameter.value, words)
    if not values:
        reason = "no other value of it is known: a workload that gives it would show one"
        return Line(group=group, aspect=f"{aspect} changed", reason=reason)
    uses = tuple(
        Use(
            recipe=recipe,
            label=f"{parameter.name} = {value!r}",
            target=parameter.name,
            value=value,
            is_new=True,
        )
        for value in values
    )
    return Line(group=group, aspect=f"{aspect} changed", uses=uses, num_wanted=2)


def other_values(value: Plain, words: Sequence[str]) -> Sequence[Plain]:
    """Return values that are tried in the place of one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return list(dict.fromkeys([value + 1, value - 1, 2 * value, value // 2]))
    if isinstance(value, float):
        others = [1.5 * value + 0.125, value / 2, value + 1.0, -value]
        return [one for one in dict.fromkeys(others) if one != value]
    if value is None:
        return [0.5, 2, True]
    if isinstance(value, str):
        return [word for word in words if word != value][:MOST_WORDS]
    return []


def unchanged(surveyed: Surveyed) -> list[Line]:
    """Return lines for inputs that are the same in all trials and that no other line changes:
    what the user's function makes of anything else than numbers."""
    found = []
    for parameter in surveyed.arguments:
        if parameter.is_given and parameter.kind == "other":
            reason = "it is the same object in all trials, and no other value of it is known"
            found.append(Line(group="arguments", aspect=f"{parameter.name} changed", reason=reason))
    return found


# --- values ------------------------------------------------------------------------------------


def of_masks(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for masks and lengths."""
    for number, tensor in dense(base):
        if made.is_mask(tensor):
            uses = tuple(
                Use(recipe="call", label=label, sets=on(base, number, change))
                for label, change in (
                    ("a part at the end is masked", made.with_masked_end),
                    ("some are masked", made.with_masked_some),
                )
            )
            yield Line(
                group="masks", aspect=f"{names[number]} not trivial", uses=uses, num_wanted=2
            )
        elif made.is_lengths(base, number):
            yield one(
                "masks",
                f"{names[number]} not full",
                "call",
                label="half as long",
                sets=on(base, number, made.halved),
            )


def on(base: InputSet, number: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Sets:
    """Return what makes a set in which one tensor is another one."""

    def make() -> list[InputSet]:
        tensors = [tensor.clone() for tensor in base.tensors]
        tensors[number] = change(tensors[number])
        return [InputSet(tensors, base.data)]

    return make


def of_values(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for NaN and infinities in the inputs."""
    for number, tensor in floats(base):
        finite = [on(base, number, made.with_some(value)) for value in FINITE]
        finite.append(on(base, number, torch.clone))
        uses = tuple(
            Use(
                recipe="call",
                label=label,
                sets=on(base, number, made.with_some(value)),
                finite=tuple(finite),
            )
            for label, value in (
                ("NaN", float("nan")),
                ("inf", float("inf")),
                ("-inf", float("-inf")),
            )
        )
        if tensor.numel() and not made.is_sorted(tensor):
            aspect = f"NaN and infinities in {names[number]}"
            yield Line(group="values", aspect=aspect, uses=uses, num_wanted=3)


def of_subnormals(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for inputs so small that many compilers and devices take them for zeros. torch's
    own operators keep them, and torch.compile loses them in some (`elu`, `erf` on a CPU)."""
    for number, tensor in floats(base):
        if tensor.count_nonzero() and not made.is_mask(tensor):
            line = one(
                "values",
                f"subnormal numbers in {names[number]}",
                "subnormal",
                sets=lambda number=number: [
                    *on(base, number, made.subnormal)(),
                    *on(base, number, torch.zeros_like)(),
                ],
            )
            yield replace(line, why_stated="compilers and devices may drop them")


def of_checks(base: InputSet, surveyed: Surveyed) -> Iterator[Line]:
    """Yield lines for values that the reference's own code may refuse (`raise`, `assert`)."""
    if not surveyed.mentions_checks:
        return
    for number, tensor in [*floats(base), *whole(base)]:
        uses = tuple(
            Use(recipe="checked", label=label, sets=on(base, number, change))
            for label, change in made.OUT_OF_RANGE.items()
        )
        if tensor.numel() and not made.is_mask(tensor):
            aspect = f"checks of {surveyed.tensors[number]}"
            yield Line(
                group="values",
                aspect=aspect,
                uses=uses,
                num_wanted=len(uses),
                is_of_checks=True,
            )


def floats(base: InputSet) -> list[tuple[int, torch.Tensor]]:
    """Return the first tensors of floats with their numbers."""
    found = [(n, t) for n, t in dense(base) if t.is_floating_point()]
    return found[:MOST_TENSORS]


def whole(base: InputSet) -> list[tuple[int, torch.Tensor]]:
    """Return the first tensors of whole numbers with their numbers."""
    kinds = (torch.int64, torch.int32, torch.int16, torch.uint8)
    found = [(n, t) for n, t in dense(base) if t.dtype in kinds and t.numel()]
    return found[:MOST_TENSORS]


def of_ranges(case: Case, base: InputSet, surveyed: Surveyed) -> Iterator[Line]:
    """Yield lines for whole numbers up to the size of each table that they may be rows of."""
    tables = {one.num_rows for one in surveyed.submodules}
    if case.accelerator.kind == "cpu":  # a wrong guess ends a process of a GPU
        tables |= {slot.shape[0] for slot in case.state_slots if slot.shape}
        tables |= {tensor.shape[0] for _, tensor in dense(base) if tensor.dim()}
    for number, tensor in whole(base):
        if made.is_mask(tensor):
            continue
        most = int(tensor.max())
        larger = sorted((size for size in tables if size > most + 1), reverse=True)
        uses = tuple(
            Use(
                recipe="call",
                label=f"{surveyed.tensors[number]} up to {size - 1}",
                sets=on(base, number, made.drawn_below(size)),
            )
            for size in larger
        )
        if uses:
            aspect = f"range of {surveyed.tensors[number]}"
            yield Line(group="ranges", aspect=aspect, uses=uses)


def of_negative_numbers(case: Case, base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for whole numbers below zero: rounding of quotients, places counted from the end,
    labels that are ignored."""
    for number, tensor in whole(base):
        is_usual = tensor.dtype != torch.uint8 and not made.is_mask(tensor)
        if not is_usual or int(tensor.min()) < 0 or made.is_lengths(base, number):
            continue
        if made.is_sorted(tensor):
            continue
        aspect = f"range of {names[number]} below zero"
        if case.accelerator.kind != "cpu":
            reason = "a number that is no place in a table ends a process of a GPU"
            yield Line(group="ranges", aspect=aspect, reason=reason)
            continue
        uses = tuple(
            Use(recipe="call", label=f"{names[number]} {label}", sets=on(base, number, change))
            for label, change in made.BELOW_ZERO.items()
        )
        evidence = "whether callers pass any is not known"
        line = Line(group="ranges", aspect=aspect, uses=uses, num_wanted=len(uses))
        yield replace(line, failure_needs_evidence=evidence)


def of_structure(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for inputs without the structure that all known ones have and trials keep."""
    for number, tensor in resizable(base)[:MOST_TENSORS]:
        for name in invariants_of(tensor):
            if name in made.UNSTRUCTURED or (name == "offsets" and not are_starts(tensor)):
                words, change = made.UNSTRUCTURED.get(name, made.UNSTRUCTURED["sorted"])
                aspect = f"{names[number]} {words}"
                line = one("values", aspect, "call", sets=on(base, number, change))
                yield replace(line, needs_evidence="all inputs that are known are otherwise")


def of_large_numbers(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for whole numbers beyond those that float32 holds."""
    for number, tensor in whole(base):
        if tensor.dtype in (torch.int64, torch.int32) and not made.is_mask(tensor):
            yield one(
                "ranges",
                f"range of {names[number]} beyond 2**24",
                "call",
                label=f"{names[number]} up to 2**27",
                sets=on(base, number, made.beyond_floats),
            )


# --- shapes, layouts and dtypes ----------------------------------------------------------------


def of_rows(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for other numbers of rows."""
    first = next((n for n, t in resizable(base) if t.dim()), None)
    if first is None:
        return
    count = base.tensors[first].shape[0]
    wanted = {
        "one row": 1,
        "fewer rows": made.fewer(count),
        "more rows": made.more(count),
        "no row": 0,
    }
    for label, size in wanted.items():
        if size != count and not (label == "fewer rows" and size < 2):
            yield resized("sizes", f"{label} of {names[first]}", base, names, count, first, size)


def of_lengths(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for other sizes of the dimensions after the first."""
    seen: set[int] = set()
    for number, tensor in resizable(base):
        for dim, size in enumerate(tensor.shape):
            if (dim == 0 and number == 0) or size in seen or len(seen) >= MOST_LENGTHS:
                continue
            seen.add(size)
            for new in (made.fewer(size), made.more(size)):
                aspect = f"{names[number]}.shape[{dim}] = {new}"
                if new > 0 and new != size:
                    yield resized("sizes", aspect, base, names, size, number, new, dim)


def of_dimensions(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for another number of dimensions, of all tensors that have the most or of the
    first alone."""
    found = resizable(base)
    most = max((tensor.dim() for _, tensor in found), default=0)
    largest = [number for number, tensor in found if tensor.dim() == most and tensor.numel()]
    if not most or not largest:
        return
    for more in (True, False):
        ways = [largest, largest[:1]] if len(largest) > 1 else [largest]
        uses = tuple(
            Use(
                recipe="call",
                label=f"{', '.join(names[n] for n in way)} of {most + 1 if more else most - 1}",
                sets=lambda way=way, more=more: [made.ranked(base, way, more)],  # type: ignore[misc]
            )
            for way in ways
        )
        word = "more" if more else "fewer"
        line = Line(group="sizes", aspect=f"{word} dimensions of {names[largest[0]]}", uses=uses)
        evidence = "no call with another number of dimensions is known"
        yield replace(line, needs_evidence=evidence)


def resized(
    group: str,
    aspect: str,
    base: InputSet,
    names: Sequence[str],
    size: int,
    number: int,
    new: int,
    dim: int = 0,
) -> Line:
    """Return the line of inputs in which a size is another one: in the dimensions at the same place
    that have it, in one tensor alone, or in all dimensions. (A size of 1 everywhere is a
    broadcast, which a reference may accept by chance.)"""
    starts = [n for n, t in resizable(base) if are_starts(t)]
    every = [(n, d) for n, t in resizable(base) for d, s in enumerate(t.shape) if s == size]
    ways = [[one for one in every if one[1] == dim], [(number, dim)], every if new != 1 else []]
    ways = [way for place, way in enumerate(ways) if way and way not in ways[:place]]
    uses = tuple(
        Use(
            recipe="call",
            label=", ".join(f"{names[n]}.shape[{d}] = {new}" for n, d in way),
            sets=lambda way=way: [made.resized(base, way, new, starts)],  # type: ignore[misc]
        )
        for way in ways
    )
    return Line(group=group, aspect=aspect, uses=uses)


def are_starts(tensor: torch.Tensor) -> bool:
    """Return whether whole numbers say where groups begin: they go with the sizes of others."""
    return "offsets" in invariants_of(tensor) and not made.are_groups(tensor)


def of_layouts(base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for inputs that lie otherwise in memory."""
    for number, tensor in resizable(base)[:MOST_TENSORS]:
        if not tensor.numel() or not tensor.dim():
            continue
        forms = {
            "transposed": ["transposed"] if tensor.dim() > 1 else [],
            "sliced": ["sliced", "cut"],
            "unaligned": ["unaligned"],
            "expanded": ["expanded"] if tensor.shape[0] > 1 and not are_starts(tensor) else [],
            "conjugated": ["conjugated"] if tensor.is_complex() else [],
        }
        if tensor.dim() > 2:
            forms["transposed"].append("turned")
        if tensor.dim() in (4, 5):
            forms["transposed"].append("channels last")
        for name, values in forms.items():
            uses = tuple(
                Use(
                    recipe="layout",
                    label=f"{names[number]} {value}",
                    target=str(number),
                    value=value,
                )
                for value in values
            )
            if uses:
                yield Line(
                    group="layouts",
                    aspect=f"layout of {names[number]}: {name}",
                    uses=uses,
                    num_wanted=len(uses),
                )


def of_dtypes(case: Case, base: InputSet, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines for other dtypes that the reference may take."""
    dtypes = {str(t.dtype).removeprefix("torch.") for _, t in floats(base)}
    dtypes |= {slot.dtype for slot in case.state_slots if slot.is_parameter}
    if any(name in FLOATS for name in dtypes):
        for name in FLOATS:
            if dtypes != {name}:
                yield one("dtypes", f"dtype {name}", "dtype", value=name, is_new=True)
    for number, tensor in whole(base):
        own = str(tensor.dtype).removeprefix("torch.")
        aspect = f"dtype of {names[number]}: {WHOLE[own]}"
        yield one("dtypes", aspect, "dtype", target=str(number), value=WHOLE[own])


def of_autocast(case: Case) -> Iterator[Line]:
    """Yield lines for the same call without autocast, and under that of another dtype."""
    if case.autocast is not None:
        yield one("dtypes", "without autocast", "autocast", is_new=True)
        for name in ("bfloat16", "float16"):
            if name != case.autocast:
                yield one("dtypes", f"autocast to {name}", "autocast", value=name, is_new=True)


def of_devices(case: Case) -> Iterator[Line]:
    """Yield the line of another device."""
    if case.accelerator.kind == "cpu":
        yield Line(group="devices", aspect="device", reason="there is only the CPU here")
    else:
        yield one("devices", "device: on the CPU and back", "device", target="cpu", is_new=True)


# --- modules -----------------------------------------------------------------------------------


def of_outputs() -> Iterator[Line]:
    """Yield lines for what callers do with outputs."""
    yield one("outputs", "outputs used by numpy, autograd and in place", "outputs", is_new=True)
    line = one("outputs", "strides of the outputs", "views")
    evidence = "whether callers flatten it by `view` is not known"
    yield replace(line, needs_evidence=evidence)


def of_modes(case: Case, surveyed: Surveyed) -> Iterator[Line]:
    """Yield lines for gradients and for the other mode."""
    if surveyed.is_module:
        other = "eval" if case.train else "train"
        yield one("training", f"{other} mode and back", "mode", is_new=True)
    yield one("training", "inference mode and back", "inference", is_new=True)
    yield one("training", "gradients", "gradients", is_new=True)
    uses = tuple(
        Use(recipe="gradients", label=label, value=label, is_new=True)
        for label in ("of a sum", "transposed")
    )
    aspect = "gradients that lie otherwise in memory"
    yield Line(group="training", aspect=aspect, uses=uses, num_wanted=len(uses))
    yield one("training", "gradients of two calls", "accumulated", sets=others(case), is_new=True)
    line = one("training", "second derivatives", "gradients", value="second", is_new=True)
    evidence = "" if surveyed.mentions_graphs else "nothing here is seen to take any"
    yield replace(line, failure_needs_evidence=evidence)


def of_weights(case: Case, surveyed: Surveyed) -> Iterator[Line]:
    """Yield lines for each parameter changed alone, and for all together; also for running
    statistics, which averages of models change as they change parameters."""
    keys = [slot.key for slot in case.state_slots if slot.is_parameter]
    statistics = [slot.key for slot in case.state_slots if slot.key.endswith(STATISTICS)]
    if not (keys or statistics) or not surveyed.is_module:
        return
    yield one("weights", "load_state_dict", "load", is_new=True)
    for key in (*spread(keys), *statistics[:MOST_STATISTICS]):
        yield one("weights", f"{key} changed alone", "weight", target=key, is_new=True)
    if len(keys) > MOST_WEIGHTS:
        reason = f"{MOST_WEIGHTS} of {len(keys)} parameters were changed alone"
        yield Line(group="weights", aspect="the other parameters", reason=reason)
    yield one("weights", "load_state_dict(assign=True)", "load", value="assign", is_new=True)
    yield one("weights", "a step of an optimizer", "optimizer", is_new=True)
    yield one("weights", "cast to float64 and back", "cast", is_new=True)


def spread(keys: list[str]) -> list[str]:
    """Return some keys, evenly spread."""
    if len(keys) <= MOST_WEIGHTS:
        return keys
    return [keys[n * (len(keys) - 1) // (MOST_WEIGHTS - 1)] for n in range(MOST_WEIGHTS)]


def of_effects(case: Case, surveyed: Surveyed) -> Iterator[Line]:
    """Yield lines for what calls leave with the caller."""
    yield one("side effects", "outputs that are kept", "kept", sets=others(case), is_new=True)
    held = [p.name for p in surveyed.arguments if p.is_given and p.kind in ("container", "other")]
    if held:
        yield one("side effects", f"contents of {', '.join(held)}", "containers", is_new=True)
    if surveyed.attributes:
        names = ",".join(surveyed.attributes)
        aspect = f"attributes {', '.join(surveyed.attributes)}"
        yield one("side effects", aspect, "attributes", target=names, is_new=True)


def others(case: Case) -> Sets:
    """Return what gives the sets that the workload states."""
    shapes = [t.shape for t in case.trials[0][1].tensors]

    def make() -> list[InputSet]:
        alike = [s for _, s in case.trials if [t.shape for t in s.tensors] == shapes]
        return alike[:3]

    return make


def of_memory() -> Iterator[Line]:
    """Yield lines for memory."""
    yield one("memory", "what calls keep", "memory", is_new=True)
    yield one("memory", "peak", "peak", is_new=True)


def of_copies(surveyed: Surveyed) -> Iterator[Line]:
    """Yield lines for copies of a module, and calls from elsewhere."""
    yield one("use", "a call in another thread", "thread", is_new=True)
    if surveyed.is_module:
        yield one("use", "deepcopy", "deepcopy", is_new=True)
        yield one("use", "pickle", "pickled", is_new=True)
        yield one("use", "state_dict after a call", "state_dict", is_new=True)


def of_hooks(surveyed: Surveyed) -> Iterator[Line]:
    """Yield lines for hooks."""
    if not surveyed.is_module:
        return
    yield one("use", "hooks of the module", "own_hooks", is_new=True)
    names = [sub.name for sub in surveyed.submodules if sub.name]
    if names:
        line = one("use", "hooks of the submodules", "hooks", target=",".join(names), is_new=True)
        evidence = "" if surveyed.mentions_hooks else "nothing here is seen to register any"
        yield replace(line, needs_evidence=evidence)
        leaves = [name for name in names if not any(one.startswith(f"{name}.") for one in names)]
        aspect = "submodules replaced by others"
        line = one("use", aspect, "replaced", target=",".join(leaves), is_new=True)
        evidence = "" if surveyed.replaces_submodules else "nothing here is seen to replace any"
        yield replace(line, needs_evidence=evidence)


def of_tracing() -> Iterator[Line]:
    """Yield the line of torch.compile."""
    yield one("use", "torch.compile of it", "traced", is_new=True)
