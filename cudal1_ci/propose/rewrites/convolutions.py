"""Replace transposed convolutions of stride 1 by convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.rewrites.rewrite import Replacement, Rewrite, Site, SourceEdit, expressions
from cudal1_ci.propose.rewrites.terms import Term

HELPERS = '''

def untransposed(layer, x):
    """A transposed convolution, of stride 1 as the convolution that it is."""
    weight, num_axes = layer.weight, len(layer.kernel_size)
    sizes = zip(layer.kernel_size, layer.dilation, layer.padding)
    padding = [(kernel - 1) * dilation - cut for kernel, dilation, cut in sizes]
    is_plain = layer.groups == 1 and x.dim() == weight.dim() and min(padding) >= 0
    if not is_plain or any(one != 1 for one in layer.stride) or any(layer.output_padding):
        return layer(x)
    convolve = getattr(torch.nn.functional, f"conv{num_axes}d")
    flipped = weight.flip(tuple(range(2, weight.dim()))).transpose(0, 1)
    return convolve(x, flipped, layer.bias, padding=padding, dilation=layer.dilation)
'''
STRIDE = 3
"""Index of the stride among the constructors' arguments."""


def untransposed(site: Site) -> SourceEdit | None:
    """Replace calls of layers whose stride may be 1."""

    def applied(term: Term) -> Replacement | None:
        if term.op != "transposed_module" or not may_be_of_one(term, site):
            return None
        return Replacement(f"untransposed({term.value}, X)", {"X": term.args[0]}, (HELPERS,))

    return expressions(applied)(site)


def may_be_of_one(term: Term, site: Site) -> bool:
    """Return whether the text excludes neither stride 1 nor one group."""
    made = site.names.attributes[str(term.value).removeprefix("self.")]
    return all(is_one_or_unknown(value) for value in stride_and_groups(made))


def stride_and_groups(made: cst.Call) -> Iterator[cst.BaseExpression]:
    """Yield a constructor's arguments for stride and groups."""
    for place, arg in enumerate(made.args):
        name = None if arg.keyword is None else arg.keyword.value
        if name in ("stride", "groups") or (name is None and place == STRIDE):
            yield arg.value


def is_one_or_unknown(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.Tuple):
        return all(is_one_or_unknown(one.value) for one in value.elements)
    return not isinstance(value, cst.Integer) or value.evaluated_value == 1


REWRITES = (
    Rewrite(
        name="transposed_convolution",
        family="algebra",
        precondition="a call of an nn.ConvTranspose layer whose stride is not written as another "
        "number than 1; others, and layers with groups or output padding, are called as they are",
        why="of stride 1 it is a convolution with its kernel turned around, for which libraries "
        "have faster routines.",
        apply=untransposed,
    ),
)
