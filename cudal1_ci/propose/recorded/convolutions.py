"""Replace transposed convolutions of stride 1 by convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from cudal1_ci.propose.recorded.patterns import layer_match, written
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule

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
NAMES = frozenset(f"conv_transpose{n}d" for n in (1, 2, 3))


def find_transposed(call: Call) -> Iterator[Change]:
    """Find layers of stride 1 and one group."""
    for operation in call.graph.operations:
        found = layer_match(call, operation) if operation.name in NAMES else None
        stride, groups = operation.literal(3, "stride"), operation.literal(6, "groups")
        if found is None or not isinstance(stride, tuple) or {*stride} != {1} or groups != 1:
            continue
        layer, match = found
        change = written(call, match, f"untransposed({layer}, X)", HELPERS, frozenset(("torch",)))
        if change is not None:
            yield change


RULES = (
    RecordedRule(
        name="transposed_convolution",
        family="algebra",
        why="of stride 1 it is a convolution with its kernel turned around, for which libraries "
        "have faster routines",
        precondition="a layer of stride 1 and one group in the call; others, and layers with "
        "output padding, are called as they are",
        find=find_transposed,
    ),
)
