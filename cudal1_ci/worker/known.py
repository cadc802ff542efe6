"""What is known of problems that come again: those that were asked for last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch

from .cases import Answer, Case

MOST = 32
MEMORY_SHARE = 8
"""An eighth of the memory for a trial."""
Learned = tuple[dict[str, Case], list[dict[str, Any]]]
"""Cases by workload, and findings on the reference."""


class Known:
    """By the keys of problems."""

    def __init__(self) -> None:
        self.learned: OrderedDict[str, Learned] = OrderedDict()

    def find(self, key: str | None) -> Learned | None:
        if key is None or key not in self.learned:
            return None
        self.learned.move_to_end(key)
        return self.learned[key]

    def keep(self, key: str, learned: Learned, memory_bytes: int) -> None:
        """Beside as many others as there is room for, those that were asked for last."""
        self.learned[key] = learned
        while len(self.learned) > 1 and (
            len(self.learned) > MOST or self.num_bytes > memory_bytes // MEMORY_SHARE
        ):
            self.learned.popitem(last=False)

    @property
    def num_bytes(self) -> int:
        return sum(
            tensor.nbytes
            for cases, _ in self.learned.values()
            for case in cases.values()
            for tensor in tensors_of(case)
        )

    def clear(self) -> None:
        self.learned.clear()


def tensors_of(case: Case) -> Iterator[torch.Tensor]:
    """All that a case holds, wherever it lies."""
    sets = [one for _, one in case.trials] + list(case.source.made)
    answers = [case.expected]
    yield from (*case.state, *case.init_tensors)
    if case.fewer_rows is not None:
        sets.append(case.fewer_rows[0])
        answers.append(case.fewer_rows[1])
    if case.other_state is not None:
        yield from case.other_state[0]
        answers.append(case.other_state[1])
    for one in sets:
        yield from one.tensors
    for answer in answers:
        yield from outputs_of(answer)
    for outputs in case.oracle or ():
        yield from outputs


def outputs_of(answer: Answer | None) -> Iterator[torch.Tensor]:
    if answer is not None:
        for outputs in answer.outputs:
            yield from outputs
        yield from answer.state
