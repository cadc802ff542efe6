"""List better ways to write the steps that tasks are made of, a table for each file of families or
part of one."""

from model_training.variants.rule import Rule
from model_training.variants.rules import (
    distance,
    image,
    layers,
    loops,
    losses,
    norms,
    pointwise,
    rows,
    sequence,
)

RULES: tuple[Rule, ...] = (
    *rows.RULES,
    *layers.RULES,
    *distance.RULES,
    *pointwise.RULES,
    *norms.RULES,
    *losses.RULES,
    *loops.RULES,
    *sequence.RULES,
    *image.RULES,
)
AROUND: tuple[Rule, ...] = (*pointwise.RULES, *norms.RULES)
"""Those of the steps that may stand before and after a family's own (tasks/generate.py)."""
