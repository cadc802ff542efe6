"""A program as a whole, compiled or as a CUDA graph: a class on top of it, in its own text.

The class has the program's parameters, so that its checkpoints load, and no state of its own, so
that it is copied and saved as before. What torch writes into the memory of a CUDA graph is
overwritten by the next call, so every output is a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from cudal1_ci.propose.rewrites.graphs import HELPERS

COMPILED = """

class ModelNew({base}):
    \"\"\"The same, its forward compiled.\"\"\"

    forward = torch.compile({base}.forward{how})
"""
COPIED = """

class ModelNew({base}):
    \"\"\"The same, its forward compiled; the next call writes over nothing that it returned.\"\"\"

    compiled = torch.compile({base}.forward{how})

    def forward(self, *args, **kwargs):
        answer = self.compiled(*args, **kwargs)
        if isinstance(answer, torch.Tensor):
            return answer.clone()
        return tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, answer)
"""
IN_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that record CUDA graphs."""

GRAPHED = """

class ModelNew({base}):
    \"\"\"The same as CUDA graphs.\"\"\"

    forward = cuda_graphed({forward})
"""


IN_CHANNELS_LAST = """

class {name}({base}):
    \"\"\"The same with channels-last order inside; what it returns is in the usual order.\"\"\"

    orders = {{4: torch.channels_last, 5: torch.channels_last_3d}}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        convolutions = (
            torch.nn.Conv2d,
            torch.nn.Conv3d,
            torch.nn.ConvTranspose2d,
            torch.nn.ConvTranspose3d,
        )
        for part in self.modules():
            if isinstance(part, convolutions):
                part.to(memory_format=self.orders[part.weight.dim()])

    def forward(self, *args, **kwargs):
        args = [
            one.contiguous(memory_format=self.orders[one.dim()])
            if isinstance(one, torch.Tensor) and one.dim() in self.orders
            else one
            for one in args
        ]
        answer = super().forward(*args, **kwargs)
        if isinstance(answer, torch.Tensor):
            return answer.contiguous()
        return tree_map(
            lambda one: one.contiguous() if isinstance(one, torch.Tensor) else one, answer
        )
"""


TUNED = """

class {name}({base}):
    \"\"\"The same, its convolutions by the fastest of cuDNN's algorithms, which the first call with
    each shape looks for.\"\"\"

    def forward(self, *args, **kwargs):
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            return super().forward(*args, **kwargs)
        finally:
            torch.backends.cudnn.benchmark = before
"""


def compiled(
    text: str, mode: str | None = None, *, lays_out: bool = True, base: str = "Model"
) -> str:
    """The text and a `ModelNew` that compiles its class, in a mode of torch.compile, or with its
    convolutions in the order in which they are where it does not `lays_out`."""
    how = asked(mode, lays_out)
    if mode in IN_GRAPHS:
        return on_top(text, TREE_MAP, COPIED.format(base=base, how=how))
    return on_top(text, "", COMPILED.format(base=base, how=how))


def graphed(text: str, *, base: str = "Model") -> str:
    """The text and a `ModelNew` that replays its class's forward as CUDA graphs."""
    return on_top(
        text, GRAPHS, HELPERS_APART + GRAPHED.format(base=base, forward=f"{base}.forward")
    )


def compiled_and_graphed(
    text: str, mode: str | None = None, *, lays_out: bool = True, base: str = "Model"
) -> str:
    """The text and a `ModelNew` that records its class's compiled forward as CUDA graphs: the
    compiler's kernels without what it asks before each call. `mode` records none itself.
    Convolutions stay in the order in which they are where it does not `lays_out`."""
    forward = f"torch.compile({base}.forward{asked(mode, lays_out)})"
    return on_top(text, GRAPHS, HELPERS_APART + GRAPHED.format(base=base, forward=forward))


def in_channels_last(text: str, *, base: str = "Model", name: str = "ModelNew") -> str:
    """The text and a class of that name that computes images and volumes channel by channel."""
    return on_top(text, TREE_MAP, IN_CHANNELS_LAST.format(base=base, name=name))


def tuned(text: str, *, base: str = "Model", name: str = "ModelNew") -> str:
    """The text and a class of that name whose convolutions cuDNN chooses by trying."""
    return on_top(text, "", TUNED.format(base=base, name=name))


def tuned_in_channels_last(text: str, *, base: str = "Model", name: str = "ModelNew") -> str:
    """The text and a class of that name that does both."""
    below = LAYERS["channels-last"].name
    return tuned(in_channels_last(text, base=base, name=below), base=below, name=name)


TREE_MAP = "from torch.utils._pytree import tree_map\n"
GRAPHS = "import functools\nimport threading\nimport weakref\n"
HELPERS_APART = f"\n\n{HELPERS}"


def asked(mode: str | None, lays_out: bool) -> str:
    """Of torch.compile, which takes a mode or options."""
    if not lays_out:
        return ', options={"layout_optimization": False}'
    return f', mode="{mode}"' if mode else ""


def on_top(text: str, imports: str, body: str) -> str:
    return f"{text.rstrip()}\n\n{imports}import torch\n{body}"


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    """A way to wrap a program as a whole."""

    techniques: tuple[str, ...]
    wrap: Callable[..., str]
    """From the text of a program, whose class is `base`, to that of a `ModelNew` on top of it."""
    needs_gpu: bool = False


COMPILATION, GRAPH = "compilation", "CUDA graph"
WRAPPERS = {
    "compile": Wrapper(techniques=(COMPILATION,), wrap=compiled),
    "compile-reduce-overhead": Wrapper(
        techniques=(COMPILATION,), wrap=functools.partial(compiled, mode="reduce-overhead")
    ),
    "compile-max-autotune": Wrapper(
        techniques=(COMPILATION,), wrap=functools.partial(compiled, mode="max-autotune")
    ),
    "cuda-graph": Wrapper(techniques=(GRAPH,), wrap=graphed, needs_gpu=True),
}
"""By the column that they are."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Another way for the convolutions of a program, which may be wrapped in its turn."""

    technique: str
    lay: Callable[..., str]
    """From a text, whose class is `base`, to that of a class `name` on top of it."""
    name: str
    """Of the class where it is wrapped."""


LAYERS = {
    "channels-last": Layer(technique="memory layout", lay=in_channels_last, name="ChannelsLast"),
    "cudnn-benchmark": Layer(technique="library selection", lay=tuned, name="Tuned"),
    "channels-last+cudnn-benchmark": Layer(
        technique="memory layout", lay=tuned_in_channels_last, name="TunedChannelsLast"
    ),
}
"""For references with convolutions, on a GPU."""
IN_A_GRAPH = {
    "compile+cuda-graph": Wrapper(
        techniques=(COMPILATION, GRAPH), wrap=compiled_and_graphed, needs_gpu=True
    ),
    "compile-max-autotune+cuda-graph": Wrapper(
        techniques=(COMPILATION, GRAPH),
        wrap=functools.partial(compiled_and_graphed, mode="max-autotune-no-cudagraphs"),
        needs_gpu=True,
    ),
}
"""Two columns in one, by both."""
AS_LAID_OUT = {
    "compile-as-laid-out": Wrapper(
        techniques=(COMPILATION,), wrap=functools.partial(compiled, lays_out=False)
    ),
    "compile-as-laid-out+cuda-graph": Wrapper(
        techniques=(COMPILATION, GRAPH),
        wrap=functools.partial(compiled_and_graphed, lays_out=False),
        needs_gpu=True,
    ),
}
"""For references with convolutions that are less precise when they are compiled: the compiler puts
their tensors in channels-last order, in which cuDNN presumably computes in TF32 what it computes in
float32 otherwise."""
