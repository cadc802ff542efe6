"""Compute convolutions by a faster routine, and with one what is a convolution."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cudal1_ci.propose.recorded.certainty import written_arguments
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.matrices import leaf
from cudal1_ci.propose.recorded.patterns import Leaf, Match, layer_match, written
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.records.recording import Argument

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
PATCHES = '''

def patch_product(layer, x):
    """A convolution whose kernel covers the whole input, as the product that it is."""
    is_whole = x.dim() == layer.weight.dim() and x.shape[1:] == layer.weight.shape[1:]
    if not is_whole or any(layer.padding):
        return layer(x)
    flat = torch.nn.functional.linear(x.flatten(1), layer.weight.flatten(1), layer.bias)
    return flat.reshape(*flat.shape, *[1] * len(layer.kernel_size))
'''
OPTIONS = ("dilation", "padding", "stride")
"""Of an unfolding, after the kernel's size; Tensor.unfold has none of them."""
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


def find_patches(call: Call) -> Iterator[Change]:
    """Find layers whose kernels cover the whole input."""
    graph = call.graph
    for operation in graph.operations:
        is_convolution = operation.name in ("conv2d", "conv3d")
        found = layer_match(call, operation) if is_convolution else None
        x, weight = (graph.of(operation.value(position)) for position in (0, 1))
        if found is None or x is None or weight is None or len(graph.in_one_call(operation)) > 1:
            continue
        if x.shape[1:] != weight.shape[1:] or operation.literal(4) != (0,) * len(x.shape[2:]):
            continue
        layer, match = found
        change = written(call, match, f"patch_product({layer}, X)", PATCHES, frozenset(("torch",)))
        if change is not None and math.prod(x.shape[2:]) > 1:
            yield change


def find_unfolded(call: Call) -> Iterator[Change]:
    """Find `weight.view(out, -1) @ F.unfold(x, 3)`, also turned, and with a linear layer."""
    graph = call.graph
    for operation in graph.operations:
        if operation.name not in ("matmul", "linear"):
            continue
        is_first = graph.num_dims(operation.value(1)) == 2
        windows, weight = (0, 1) if is_first else (1, 0)
        value, turned = operation.value(windows), None
        if is_first:
            turned = graph.made_by(value, "transpose", "mT")
            value = None if turned is None else turned.value(0)
        unfold = graph.made_by(value, "unfold")
        is_plain = unfold is not None and graph.num_dims(unfold.value(0)) == 4
        if unfold is None or not is_plain or graph.num_dims(operation.value(weight)) != 2:
            continue
        operations = tuple(one for one in (operation, turned, unfold) if one is not None)
        change = convolved(call, operations, weight)
        if change is not None:
            yield change


def convolved(call: Call, operations: tuple[Operation, ...], weight: int) -> Change | None:
    """Return the convolution that a product with unfolded windows is."""
    graph, (product, *_, unfold) = call.graph, operations
    options = {one.name: one for one in unfold.recorded.kwargs}
    leaves = {"X": leaf(unfold, 0), "W": leaf(product, weight)}
    layer = layer_match(call, unfold)
    codes = {}
    names = ("kernel_size", *OPTIONS)
    nodes = {key: node for key, node, _ in written_arguments(call.source, unfold)}
    for name in names:
        key = 1 if name == "kernel_size" and name not in options else name
        if layer is not None:
            codes[name] = f"{layer[0]}.{name}"
        elif nodes.get(key) is not None:
            argument = options[name].argument if name in options else unfold.argument(1)
            leaves[f"K{name}"] = Leaf(argument or Argument(kind="other"), unfold, key)
            codes[name] = f"K{name}"
    size = unfold.literal(1, "kernel_size")
    if "kernel_size" not in codes or not options.keys() >= {*OPTIONS} or size is None:
        return None
    kernel = codes.pop("kernel_size")
    sizes = f"*{kernel}" if isinstance(size, tuple) else f"{kernel}, {kernel}"
    is_turned = product.name == "matmul" and weight == 1
    rows = f"W{'.t()' if is_turned else ''}.unflatten(1, (-1, {sizes}))"
    view = graph.made_by(product.value(weight), "view", "reshape", "flatten")
    whole = None if view is None else graph.of(view.value(0))
    known = graph.of(product.value(weight))
    if view is not None and whole is not None and known is not None and not is_turned:
        pair = size if isinstance(size, tuple) else (size, size)
        if whole.shape[:1] == known.shape[:1] and whole.shape[2:] == pair:
            leaves["W"], rows = leaf(view, 0), "W"
    if product.name == "linear" and product.value(2, "bias") is not None:
        leaves["B"] = leaf(product, 2)
        rows += ", B"
    given = "".join(f", {name}={code}" for name, code in codes.items())
    turn = ".transpose(1, 2)" if weight == 1 else ""
    found = Match(graph, operations, leaves, is_layer=True)
    return written(call, found, f"F.conv2d(X, {rows}{given}).flatten(2){turn}")


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
    RecordedRule(
        name="patch_product",
        family="library call",
        why="a convolution that covers its whole input is one product of matrices, which has no "
        "windows to set up",
        precondition="a layer without padding whose kernel has the size of the input; other calls "
        "run the layer",
        find=find_patches,
    ),
    RecordedRule(
        name="unfolded_convolution",
        family="library call",
        why="a convolution reads its windows where they are, and unfold copies each pixel once for "
        "each window that it is in",
        precondition="a product of a matrix with the windows of a batch of images, and nothing "
        "else reads the windows",
        find=find_unfolded,
    ),
)
