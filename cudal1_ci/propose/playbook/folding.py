"""Batch normalizations with fixed statistics, folded into the layer before them.

What is folded is computed at every call: a copy that is kept would be wrong as soon as somebody
changes the weights (a tensor's `_version` does not see what is written through its `data`). That is
a pass over the weights for one over the output; where the weights are larger than the input, the
layer and the normalization are called as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from cudal1_ci.propose.playbook.rewrite import Edit, Replacement, Rewrite, Rule, Site, expressions
from cudal1_ci.propose.playbook.terms import Term

SIZES = (1, 2, 3)
CONVOLUTIONS = ", ".join(f"torch.nn.Conv{n}d" for n in SIZES)
NORMS = ", ".join(f"torch.nn.BatchNorm{n}d" for n in SIZES)
FUNCTION = '''

def {name}(layer, norm, x):
    """norm(layer(x)); where norm's statistics are fixed, with them in the layer's weights."""
    if norm.training or norm.running_var is None or {unless}:
        return norm(layer(x))
    if x.numel() < layer.weight.numel():
        return norm(layer(x))  # the weights would take longer than the output
    scale = torch.rsqrt(norm.running_var + norm.eps)
    bias = -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
    if norm.affine:
        scale = scale * norm.weight
        bias = torch.addcmul(norm.bias, bias, scale)
    else:
        bias = bias * scale
    weight = (layer.weight * scale.view({sizes})).to(layer.weight.dtype)
    bias = bias.to(weight.dtype)
    return {call}
'''
SEQUENCE = f'''

def sequence_and_norms(layers, x):
    """layers(x), with normalizations whose statistics are fixed in the convolutions before them."""
    norms = {NORMS}
    layers = list(layers)
    while layers:
        layer = layers.pop(0)
        if layers and type(layers[0]) in norms:
            x = conv_and_norm(layer, layers.pop(0), x)
        else:
            x = layer(x)
    return x
'''
TRANSPOSED = """torch.nn.functional.conv_transpose{n}d(
        x,
        weight,
        bias,
        layer.stride,
        layer.padding,
        layer.output_padding,
        layer.groups,
        layer.dilation,
    )"""
COMPUTED_WEIGHTS = ("weight_norm", "spectral_norm", "parametrize", "register_forward")
"""Where a file says one of these, a call of a layer may do more than compute it."""


def function(kind: str, unless: str, sizes: str, call: str) -> str:
    """The text of a function of a layer, the normalization after it, and x: when it must not be
    folded, how the scale lies in the weight, and how the layer is computed."""
    return FUNCTION.format(name=f"{kind}_and_norm", unless=unless, sizes=sizes, call=call)


CONV = function(
    "conv",
    f"type(layer) not in (\n        {CONVOLUTIONS}\n    )",
    "-1, *[1] * (layer.weight.dim() - 1)",
    "layer._conv_forward(x, weight, bias)",
)
LINEAR = function(  # its channels come last, where a normalization's come second
    "linear",
    "x.dim() != 2 or type(layer) is not torch.nn.Linear",
    "-1, 1",
    "torch.nn.functional.linear(x, weight, bias)",
)


def conv_transpose(n: int) -> str:
    """Its channels come second in the weight, and those of groups are no dimension there."""
    kind = f"conv_transpose{n}d"
    unless = f"type(layer) is not torch.nn.ConvTranspose{n}d or layer.groups > 1"
    return function(kind, unless, "1, -1" + ", 1" * n, TRANSPOSED.format(n=n))


def rules() -> Iterator[Rule]:
    """One for each kind of layer, and one for a sequence of them."""
    yield folding("conv", "conv_module", CONV)
    yield folding("linear", "linear_module", LINEAR)
    yield folding("linear", "other_linear_module", LINEAR)
    for n in SIZES:
        yield folding(f"conv_transpose{n}d", f"conv_transpose{n}d_module", conv_transpose(n))
    yield sequence


def folding(kind: str, op: str, text: str) -> Rule:
    """`self.norm(self.conv(x))` as a call of a function."""

    def applied(term: Term) -> Replacement | None:
        if term.op != "batch_norm_module" or term.args[0].op != op:
            return None
        layer = term.args[0]
        template = f"{kind}_and_norm({layer.value}, {term.value}, X)"
        return Replacement(template, {"X": layer.args[0]}, (text,))

    return applied


def sequence(term: Term) -> Replacement | None:
    """`self.block(x)`, where a normalization follows a convolution in an nn.Sequential."""
    layers = term.get("layers")
    if term.op != "sequential_module" or layers is None:
        return None
    classes = [str(layer.value).removeprefix("torch.nn.") for layer in layers.args]
    pairs = {(f"Conv{n}d", f"BatchNorm{n}d") for n in SIZES}
    if not pairs & set(itertools.pairwise(classes)):
        return None
    template = f"sequence_and_norms({term.value}, X)"
    return Replacement(template, {"X": term.args[0]}, (CONV, SEQUENCE))


def folded(site: Site) -> Edit | None:
    """All of a target, unless weights may be computed when a layer is called."""
    if any(word in site.module.code for word in COMPUTED_WEIGHTS):
        return None
    return expressions(*rules())(site)


REWRITES = (
    Rewrite(
        name="folded_batch_norm",
        family="algebra",
        precondition="a batch normalization of what a convolution or linear layer has computed, "
        "outside of training; hooks of the two are not called",
        why="with fixed statistics it is a factor and a summand for each channel, which can be "
        "part of the layer's weights: a pass over its whole output less.",
        apply=folded,
    ),
)
