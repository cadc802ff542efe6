"""Convert modules of 2-D convolutions to channels-last order, inputs and weights.

A class holds convolutions if its own text makes them (`nn.Sequential(nn.Conv2d(...), ...)` too), or
if it makes another class of its file, or calls a function of it, that does. Convolutions from other
files are not seen.
"""

from __future__ import annotations

import functools

import libcst as cst

from cudal1_ci.propose.rewrites.layout import with_first_line, with_last_line
from cudal1_ci.propose.rewrites.ranks import called_with
from cudal1_ci.propose.rewrites.rewrite import Rewrite, Site, SourceEdit, names_of
from cudal1_ci.propose.rewrites.terms import code
from cudal1_ci.propose.rewrites.walk import calls_in
from cudal1_ci.propose.target_file import definitions_in
from cudal1_ci.records import Call

NUM_AXES = 4
"""Axes of images: samples, channels, rows, columns."""


def channels_last(site: Site) -> SourceEdit | None:
    """Convert inputs and weights of a class with 2-D convolutions to channels-last order."""
    definition, constructor = site.definition, site.constructor()
    forward = next((m for m in site.methods() if m.name.value == "forward"), None)
    if constructor is None or forward is None or not site.is_inference:
        return None
    if not {code(call.func) for call in calls_in(definition)} & makers_of_convolutions(site.module):
        return None
    if "channels_last" in code(definition) or site.names.imports.get("torch", "torch") != "torch":
        return None
    if len(forward.params.params) < 2 or not isinstance(forward.body, cst.IndentedBlock):
        return None
    if not isinstance(constructor.body, cst.IndentedBlock):
        return None
    x = forward.params.params[1].name.value
    if not may_be_images(x, forward, site):
        return None
    order = "memory_format=torch.channels_last"
    new_forward = with_first_line(forward, f"{x} = {x}.contiguous({order})")
    new_constructor = with_last_line(constructor, f"self.to({order})")
    return SourceEdit(
        {forward: new_forward, constructor: new_constructor},
        (f"`{x}` and the weights of the convolutions in channels-last order",),
        frozenset({"torch"}),
    )


def may_be_images(parameter: str, forward: cst.FunctionDef, site: Site) -> bool:
    """Return whether no known call has another number of dimensions."""
    calls = [one.call for one in site.workloads]
    is_told = any(isinstance(one, Call) and (one.args or one.kwargs) for one in calls)
    rank = called_with(site, forward).get(parameter)
    return rank == NUM_AXES or (rank is None and not is_told)


@functools.lru_cache(maxsize=16)
def makers_of_convolutions(module: cst.Module) -> frozenset[str]:
    """Return what a file calls to make 2-D convolutions, in the file's spelling: torch's class, and
    the file's classes and functions that make some, directly or through each other.
    """
    names = names_of(module, "")
    makers: set[str] = set()
    called: dict[str, set[str]] = {}
    for item in definitions_in(module):
        spelled = {code(call.func): names.dotted(call.func) for call in calls_in(item)}
        makers |= {text for text, dotted in spelled.items() if dotted == "torch.nn.Conv2d"}
        called[item.name.value] = set(spelled)
    while more := {name for name, calls in called.items() if calls & makers} - makers:
        makers |= more
    return frozenset(makers)


REWRITES = (
    Rewrite(
        name="channels_last",
        family="memory layout",
        precondition="a class that makes nn.Conv2d, in containers and through other classes of its "
        "file too, called for inference with a 4-D input",
        why="convolution kernels read channels-last data without repacking it, and every layer "
        "keeps the order.",
        apply=channels_last,
        is_of_program=True,
    ),
)
