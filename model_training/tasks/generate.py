"""Generate tasks in KernelBench form, composed of torch operators.

    generate(seed=0, family="attention").source

A task is one step of its family, perhaps with a pointwise step before it and up to two after it.
The same seed gives the same text; what it computes is deterministic, finite and depends on all of
its inputs (probe.py finds out, and what does not is thrown away). Most steps leave something to
gain. Text only: nothing is run here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from model_training.tasks.draft import Draft, Scale
from model_training.tasks.families import FAMILIES, Family
from model_training.tasks.families.pointwise import ACTIVATION, LEARNED, NORMALIZATION
from model_training.tasks.fingerprint import form
from model_training.tasks.record import Task

WIDTHS = {"rows": (64, 128, 256, 512, 1024), "sequence": (64, 128, 256), "image": (16, 32, 64)}
LENGTHS = (16, 32, 64, 128)
SIDES = (16, 32, 64)
IN_A_ROW = ("recurrence",)
"""Families that loop along the sequence: it is as long as a loop in Python may be."""


def generate(seed: int, family: str, scale: Scale | None = None) -> Task:
    """Return the task of a seed."""
    rng = random.Random(f"{family} {seed}")
    draft = Draft(rng, scale or Scale())
    members = FAMILIES[family]
    begin(draft, members, is_loop=family in IN_A_ROW)
    if rng.random() < 0.3:
        pointwise(draft)
    name = rng.choice(sorted(members.steps))
    members.steps[name](draft)
    draft.steps.append(name)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        pointwise(draft)
    return Task(source="generated", name=f"{family}-{seed}", family=family, text=draft.text())


def begin(draft: Draft, family: Family, *, is_loop: bool) -> None:
    """Add the first input, within the scale."""
    rng, scale = draft.rng, draft.scale
    elements = 2 ** rng.uniform(
        *(bound.bit_length() - 1 for bound in (scale.min_elements, scale.max_elements))
    )
    width = rng.choice(WIDTHS[family.layout])
    while width > 8 and width * width > elements * 4:
        width //= 2
    if family.layout == "rows":
        rows = max(8, int(elements / width) // 8 * 8)
        sizes = {"rows": rows, "width": width}
    elif family.layout == "sequence":
        length = min(rng.choice(LENGTHS), scale.max_loop if is_loop else LENGTHS[-1])
        sizes = {"batch": max(1, int(elements / width / length)), "length": length, "width": width}
    else:
        side = rng.choice(SIDES) if scale.max_elements > 2**12 else 4
        batch = max(1, int(elements / width / side / side))
        sizes = {"batch": batch, "channels": width, "height": side, "breadth": side}
    draft.dims = tuple(draft.size(name, value) for name, value in sizes.items())
    draft.input("x", f"torch.randn({', '.join(draft.dims)})")


def pointwise(draft: Draft) -> None:
    """Add a step that keeps the shape, where the last dimension is worth one."""
    if draft.value(draft.dims[-1]) < 8 and len(draft.dims) < 4:
        return
    if len(draft.dims) == 4:  # parameters and norms of the last dimension would be of columns
        table = {name: one for name, one in ACTIVATION.items() if name not in LEARNED}
    else:
        table = ACTIVATION if draft.rng.random() < 0.7 or len(draft.dims) == 1 else NORMALIZATION
    name = draft.rng.choice(sorted(table))
    table[name](draft)
    draft.steps.append(name)


def distinct(families: list[str], scale: Scale | None = None, start: int = 0) -> Iterator[Task]:
    """Return tasks of these families in turn, each of another form than all before it."""
    seen: set[str] = set()
    seed = start
    while True:
        for family in families:
            task = generate(seed, family, scale)
            key = form(task.text)
            if key not in seen:
                seen.add(key)
                yield task
        seed += 1
