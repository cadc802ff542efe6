"""Variants of a whole program: compiled, or as a CUDA graph.

A graph is recorded at the first call and where a shape changes; inputs are copied into it, and what
it computes is cloned, so that no call sees memory of another.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from model_training.variants.rule import Match
from model_training.variants.source import Extra, Program, Statement
from model_training.variants.written import Subject, Variant, exchanged, said, techniques_of

REPLAY = """inputs = ({arguments},)
if self.graph is None or any(a.shape != b.shape for a, b in zip(self.inputs, inputs)):
    self.record(inputs)
for kept, given in zip(self.inputs, inputs):
    kept.copy_(given)
self.graph.replay()"""
REPLAYED = "self.out.clone()"
RECORD = """def record(self, inputs):
    self.inputs = [one.clone() for one in inputs]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        self.compute(*self.inputs)
    torch.cuda.current_stream().wait_stream(side)
    self.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(self.graph):
        self.out = self.compute(*self.inputs)"""


def compiled(subject: Subject, chosen: Sequence[Match]) -> Variant:
    """By torch.compile, after those steps are exchanged."""
    program = subject.program
    forward, extra = exchanged(program, chosen, 0)
    return Variant(
        text=program.rendered(
            (),
            Extra(init=(*extra.init, "self.compiled = torch.compile(self.compute)")),
            methods=(compute(program, forward),),
            returned=f"self.compiled({', '.join(program.arguments)})",
        ),
        kind="compile",
        techniques=("compilation", *techniques_of(chosen, 0)),
        analysis=said(
            [
                "Each operator is a kernel of its own, with its reads and writes of memory.",
                *(one.rule.why for one in chosen),
            ]
        ),
        design=said(
            [
                "The compiler fuses what lies between products.",
                *(one.form(0).design for one in chosen),
            ]
        ),
    )


def graphed(subject: Subject, chosen: Sequence[Match]) -> Variant:
    """As a CUDA graph, after those steps are exchanged."""
    program = subject.program
    forward, extra = exchanged(program, chosen, 0)
    replay = REPLAY.format(arguments=", ".join(program.arguments))
    return Variant(
        text=program.rendered(
            Statement.of(replay),
            Extra(init=(*extra.init, "self.graph = None")),
            methods=(RECORD, compute(program, forward)),
            returned=REPLAYED,
        ),
        kind="graph",
        techniques=("CUDA graph", *techniques_of(chosen, 0)),
        analysis=said(
            [
                "Launching its kernels takes longer than they run.",
                *(one.rule.why for one in chosen),
            ]
        ),
        design=said(
            [
                "All kernels are one launch of a graph, with inputs copied in and the result "
                "cloned.",
                *(one.form(0).design for one in chosen),
            ]
        ),
    )


def compute(program: Program, forward: Sequence[Statement]) -> str:
    """What `forward` was, as a method."""
    body = "\n".join([*(one.text for one in forward), "return x"])
    arguments = ", ".join(("self", *program.arguments))
    return f"def compute({arguments}):\n{textwrap.indent(body, '    ')}"
