"""Convert a module with 2-D convolutions to channels-last order, inputs and weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from cudal1_ci.propose.recorded.purity import definition_of
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import File

NUM_AXES = 4
"""Axes of images: samples, channels, rows, columns."""
ORDER = "memory_format=torch.channels_last"


def find_convolutions(call: Call) -> Iterator[Change]:
    """Find a target that runs 2-D convolutions on the images that its `forward` is given."""
    recording = call.graph.recording
    given = next((one for one in recording.values if one.origin == "input"), None)
    outer = next((one for one in recording.frames if one.caller is None), None)
    file = None if outer is None else call.source.file(outer.file)
    if outer is None or file is None or given is None or len(given.shape) != NUM_AXES:
        return
    forward = definition_of(file, outer)
    is_known = forward is not None and forward.name.value == "forward"
    has_images = any(one.name == "conv2d" for one in call.graph.operations)
    if forward is None or not is_known or not has_images or not call.is_inference:
        return
    constructor = constructor_of(file, forward)
    body = lines_of(forward)[1 if forward.get_docstring() is not None else 0 :]
    parameters = forward.params.params[1:2]
    if not constructor or not body or not parameters or "channels_last" in file.text:
        return
    x, first, last = parameters[0].name.value, body[0], constructor[-1]
    new: dict[cst.CSTNode, str] = {
        first: f"{x} = {x}.contiguous({ORDER})\n{own_code(file, first)}",
        last: f"{own_code(file, last)}\nself.to({ORDER})",
    }
    found = f"`{x}` and the weights of the convolutions in channels-last order"
    yield Change(outer.file, new, found, frozenset(("torch",)))


def constructor_of(file: File, forward: cst.FunctionDef) -> Sequence[cst.BaseStatement]:
    """Return the lines of the constructor next to a method; none if the class has no own one."""
    block = file.parents.get(forward)
    for one in block.body if isinstance(block, cst.IndentedBlock) else ():
        if isinstance(one, cst.FunctionDef) and one.name.value == "__init__":
            return lines_of(one)
    return ()


def lines_of(function: cst.FunctionDef) -> Sequence[cst.BaseStatement]:
    return function.body.body if isinstance(function.body, cst.IndentedBlock) else ()


def own_code(file: File, line: cst.BaseStatement) -> str:
    """Return the code of a statement without the lines above it."""
    return file.code(line.with_changes(leading_lines=())).rstrip()


RULES = (
    RecordedRule(
        name="channels_last",
        family="memory layout",
        why="convolution kernels read channels-last data without repacking it, and every layer "
        "keeps the order",
        precondition="a module that is called for inference with images, which 2-D convolutions "
        "read",
        find=find_convolutions,
        is_small=True,
    ),
)
