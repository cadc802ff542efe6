"""Write a KernelBench-form program: sizes, parameters and statements, then its text.

    draft = Draft(random.Random(0), Sizes(rows=4096, width=512))
    x = draft.input("x", "rows", "width")

Steps (families/) write into a draft: each takes the tensor that the steps before have left in `x`,
adds what it needs to `__init__` and `forward`, and says which sizes `x` has then. Sizes go by their
names, as in code that a person writes. Knows text, and never runs any of it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

TEMPLATE = '''"""{summary}"""

{imports}import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__(){init}

    def forward(self{arguments}):
{forward}
        return x


{constants}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{given}]
'''
INDENT = " " * 8


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Bound how large tensors are: the number of elements of the first input lies between these."""

    min_elements: int = 2**18
    max_elements: int = 2**22
    max_loop: int = 32
    """Iterations of a loop in Python."""


@dataclass
class Draft:
    """Hold a program while it is written. `dims` are the names of the sizes of `x` as it is now."""

    rng: random.Random
    scale: Scale
    sizes: dict[str, int] = field(default_factory=dict)
    dims: tuple[str, ...] = ()
    steps: list[str] = field(default_factory=list)
    """Names of what was written, for the summary and to tell tasks apart."""
    _given: list[str] = field(default_factory=list)
    _inputs: dict[str, str] = field(default_factory=dict)
    _init: list[str] = field(default_factory=list)
    _forward: list[str] = field(default_factory=list)
    _imports: set[str] = field(default_factory=set)

    def size(self, name: str, value: int) -> str:
        """Add a named size; return the name, with a number where it is taken by another value."""
        chosen, number = name, 2
        while self.sizes.get(chosen, value) != value:
            chosen, number = f"{name}_{number}", number + 1
        self.sizes[chosen] = value
        return chosen

    def value(self, *names: str) -> int:
        """Return the product of sizes."""
        product = 1
        for name in names:
            product *= int(name) if name.isdigit() else self.sizes[name]
        return product

    def parameter(self, name: str) -> str:
        """Add a size that `__init__` takes; return its name."""
        if name not in self._given:
            self._given.append(name)
        return name

    def input(self, name: str, expression: str) -> None:
        """Add an argument of `forward`, and how `get_inputs` makes it."""
        self._inputs[name] = expression

    def init(self, *lines: str) -> None:
        """Add statements of `__init__`, each once."""
        self._init += [line for line in lines if line not in self._init]

    def forward(self, *lines: str) -> None:
        """Add statements of `forward`."""
        self._forward += lines

    def module(self, name: str, expression: str) -> str:
        """Add a submodule or parameter under a name of its own: `self.fc`, `self.fc_2`."""
        taken = {line.split(" = ")[0] for line in self._init}
        chosen, number = f"self.{name}", 2
        while chosen in taken:
            chosen, number = f"self.{name}_{number}", number + 1
        self._init.append(f"{chosen} = {expression}")
        return chosen

    def needs(self, module: str) -> None:
        """Add an import beyond torch."""
        self._imports.add(module)

    def choice(self, *among: str) -> str:
        return self.rng.choice(among)

    def text(self) -> str:
        """Return the program."""
        used = sorted(self.sizes, key=list(self.sizes).index)
        return TEMPLATE.format(
            summary=summary_of(self.steps),
            imports="".join(f"import {name}\n\n" for name in sorted(self._imports)),
            parameters="".join(f", {name}" for name in self._given),
            init="".join(f"\n{INDENT}{line}" for line in self._init),
            arguments="".join(f", {name}" for name in self._inputs),
            forward="\n".join(INDENT + line for line in self._forward),
            constants="\n".join(f"{name} = {self.sizes[name]}" for name in used),
            inputs=", ".join(self._inputs.values()),
            given=", ".join(self._given),
        )


def summary_of(steps: Sequence[str]) -> str:
    """Return `Rows: softmax by hand, then a gate.`"""
    first, *others = steps
    said = f"{first[0].upper()}{first[1:]}"
    return "".join([said, *(f", then {one}" for one in others), "."])
