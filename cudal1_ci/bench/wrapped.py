"""A reference as a whole, compiled or as a CUDA graph: a class on top of it, in its own text.

The class has the reference's parameters, so that its checkpoints load. What torch writes into the
memory of a CUDA graph is overwritten by the next call, so every output is cloned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

COMPILED = """

class ModelNew(Model):
    \"\"\"The same, its forward compiled.\"\"\"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compiled = torch.compile(super().forward{mode})

    def forward(self, *args, **kwargs):
        return {answer}
"""
PLAIN = "self.compiled(*args, **kwargs)"
CLONED = (
    "tree_map(\n"
    "            lambda one: one.clone() if isinstance(one, torch.Tensor) else one,\n"
    "            self.compiled(*args, **kwargs),\n"
    "        )"
)
IN_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that record CUDA graphs."""

GRAPHED = """

class ModelNew(Model):
    \"\"\"The same as one CUDA graph, recorded again where an input has another form.

    Inputs are copied in and outputs are cloned: no call sees memory of another. In training, and
    for what is not on a GPU, it is the plain forward.\"\"\"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.graph = None

    def forward(self, *inputs, **named):
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        if (
            named
            or self.training
            or torch.is_grad_enabled()
            or not tensors
            or not all(one.is_cuda for one in tensors)
        ):
            return super().forward(*inputs, **named)
        form = [
            (one.shape, one.stride(), one.dtype, one.device)
            if isinstance(one, torch.Tensor)
            else one
            for one in inputs
        ]
        if self.graph is None or form != self.form:
            self.record(inputs, form)
        for kept, given in zip(self.kept, tensors):
            kept.copy_(given)
        self.graph.replay()
        return tree_map(
            lambda one: one.clone() if isinstance(one, torch.Tensor) else one, self.answer
        )

    def record(self, inputs, form):
        self.graph = None
        own = [one.clone() if isinstance(one, torch.Tensor) else one for one in inputs]
        self.kept = [one for one in own if isinstance(one, torch.Tensor)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                super().forward(*own)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.answer = super().forward(*own)
        self.graph, self.form = graph, form

    def _apply(self, *args, **kwargs):
        self.graph = None
        return super()._apply(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        self.graph = None
        return super().load_state_dict(*args, **kwargs)
"""


def compiled(reference: str, mode: str | None) -> str:
    """The reference's text and a `ModelNew` that compiles it, in a mode of torch.compile."""
    is_in_graphs = mode in IN_GRAPHS
    body = COMPILED.format(
        mode=f', mode="{mode}"' if mode else "", answer=CLONED if is_in_graphs else PLAIN
    )
    return on_top(reference, body, clones=is_in_graphs)


def graphed(reference: str) -> str:
    """The reference's text and a `ModelNew` that replays it as a CUDA graph."""
    return on_top(reference, GRAPHED, clones=True)


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    """A way to wrap a program as a whole."""

    technique: str
    wrap: Callable[[str], str]
    """From the text of a program, whose class is `Model`, to that of a `ModelNew` on top of it."""
    needs_gpu: bool = False


WRAPPERS = {
    "compile": Wrapper(technique="compilation", wrap=lambda text: compiled(text, None)),
    "compile-reduce-overhead": Wrapper(
        technique="compilation", wrap=lambda text: compiled(text, "reduce-overhead")
    ),
    "compile-max-autotune": Wrapper(
        technique="compilation", wrap=lambda text: compiled(text, "max-autotune")
    ),
    "cuda-graph": Wrapper(technique="CUDA graph", wrap=graphed, needs_gpu=True),
}
"""By the column that they are; each is text in, text out."""


def on_top(reference: str, body: str, *, clones: bool) -> str:
    imports = "\n\nimport torch\n"
    if clones:
        imports += "from torch.utils._pytree import tree_map\n"
    return reference.rstrip() + imports + body
