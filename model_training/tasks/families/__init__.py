"""List the families of work that tasks are made of, each a table of steps.

A family has a layout, the form of the tensor that its steps expect in `x`: `rows` (number, width),
`sequence` (batch, length, width), `image` (batch, channels, height, width). Steps are written as
people write them: some well, most in a way that leaves something to gain, such as a product with a
diagonal matrix, a loop over rows, an unused intermediate.

A split by family holds out whole tables, so that what is held out is another kind of work and not
the same with other numbers (splits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from model_training.tasks.draft import Draft
from model_training.tasks.families import image, loops, losses, pointwise, rows, sequence

Layout = Literal["rows", "sequence", "image"]
Step = Callable[[Draft], None]


@dataclass(frozen=True, kw_only=True)
class Family:
    """Hold the steps of one kind of work, by their name in words."""

    layout: Layout
    steps: Mapping[str, Step]


FAMILIES: dict[str, Family] = {
    "diagonal": Family(layout="rows", steps=rows.DIAGONAL),
    "reduction": Family(layout="rows", steps=rows.REDUCTION),
    "mlp": Family(layout="rows", steps=rows.MLP),
    "indexing": Family(layout="rows", steps=rows.INDEXING),
    "distance": Family(layout="rows", steps=rows.DISTANCE),
    "activation": Family(layout="rows", steps=pointwise.ACTIVATION),
    "normalization": Family(layout="rows", steps=pointwise.NORMALIZATION),
    "softmax": Family(layout="rows", steps=pointwise.SOFTMAX),
    "loss": Family(layout="rows", steps=losses.LOSS),
    "loop": Family(layout="rows", steps=loops.LOOP),
    "recurrence": Family(layout="sequence", steps=loops.RECURRENCE),
    "attention": Family(layout="sequence", steps=sequence.ATTENTION),
    "positions": Family(layout="sequence", steps=sequence.POSITIONS),
    "convolution": Family(layout="image", steps=image.CONVOLUTION),
    "pooling": Family(layout="image", steps=image.POOLING),
}
