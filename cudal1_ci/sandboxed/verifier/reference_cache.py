"""Keep what is known of recent problems that may return.

Training uses some hundred tasks in turn. Learning a reference takes as long as verifying three
candidates. So what the device has no room for is moved to the host's memory, unless it is faster to
learn again than to copy. That holds for outputs of a gigabyte, in all trials.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import torch

from ..wire.verdicts import Finding
from .cases import Answer, Case

MOST = 256
MEMORY_SHARE = 8
"""An eighth of the memory for a trial."""
HOST_SHARE = 8
"""An eighth of the host's memory that others have not taken. Of sixteen verifiers, four that
time and twelve on the CPU, each takes a seventh of what the others leave, and three tenths stay
free."""
COPIED_PER_S = 1e9
"""Bytes, away and back: some 3 GB/s each way where memory is not pinned, and its pages are new."""
Learned = tuple[dict[str, Case], list[Finding]]
"""Cases by workload, and findings on the reference."""


class Known:
    """Learned problems by their keys."""

    def __init__(self, has_gpu: bool = True) -> None:
        self.has_gpu = has_gpu
        self.learned: OrderedDict[str, Learned] = OrderedDict()
        self.aside: dict[str, list[tuple[torch.Tensor, torch.device]]] = {}
        """Tensors of problems that were moved to the host, each with the device that it was on."""
        self.near_bytes = self.far_bytes = 0
        """Room on the device and in the host's memory."""
        self.took_s: dict[str, float] = {}
        """Seconds that it took to learn each problem."""

    def find(self, key: str | None) -> Learned | None:
        if key is None or key not in self.learned:
            return None
        self.learned.move_to_end(key)
        for tensor, device in self.aside.pop(key, ()):
            tensor.data = tensor.data.to(device)
        self.make_room()
        return self.learned[key]

    def keep(
        self,
        key: str,
        learned: Learned,
        memory_bytes: int,
        host_bytes: int = 0,
        took_s: float = math.inf,
    ) -> None:
        """Keep a problem, together with as many recent ones as there is room for. `host_bytes`
        of the host's memory are free; `took_s` is the time that it took to learn it."""
        self.learned[key], self.took_s[key] = learned, took_s
        self.near_bytes = memory_bytes // MEMORY_SHARE
        self.far_bytes = (host_bytes + self.num_far(self.learned)) // HOST_SHARE
        while len(self.learned) > MOST:
            self.drop(next(iter(self.learned)))
        self.make_room()

    def make_room(self) -> None:
        """Move the least recently used problems to the host, as there is room."""
        for key in list(self.learned)[:-1]:
            if self.num_far([key]) > self.far_bytes:
                self.drop(key)
        for key in list(self.learned)[:-1]:
            if key in self.aside or key not in self.learned:
                continue
            if self.num_near() <= self.near_bytes:
                break
            if self.is_worth_a_copy(key):
                self.put_aside(key)
                self.make_far_room()
            else:
                self.drop(key)
        self.make_far_room()

    def make_far_room(self) -> None:
        """Forget what the host's memory has no room for, except the last one."""
        for key in list(self.learned)[:-1]:
            if self.num_far(list(self.learned)[:-1]) <= self.far_bytes:
                return
            if self.num_far([key]):
                self.drop(key)

    def is_worth_a_copy(self, key: str) -> bool:
        """Return whether there is room for it, and copying is faster than learning it again."""
        tensors = list(self.tensors(key))
        copied = sum(tensor.nbytes for tensor in tensors if tensor.is_cuda)
        is_sooner = copied <= COPIED_PER_S * self.took_s[key]
        return is_sooner and sum(tensor.nbytes for tensor in tensors) <= self.far_bytes

    def put_aside(self, key: str) -> None:
        """Move tensors to the host. Tensors with gaps stay: a copy has none, and the layout of
        the elements is part of a case."""
        moved = self.aside[key] = []
        for one in self.tensors(key):
            if one.is_cuda and (copy := one.cpu()).stride() == one.stride():
                moved.append((one, one.device))
                one.data = copy

    def drop(self, key: str) -> None:
        """Forget it."""
        for table in (self.learned, self.aside, self.took_s):
            table.pop(key, None)

    def num_near(self) -> int:
        """Return the bytes on the device; where that is the processor, of what was not moved."""
        return sum(
            tensor.nbytes
            for key in self.learned
            if key not in self.aside
            for tensor in self.tensors(key)
            if tensor.is_cuda or not self.has_gpu
        )

    def num_far(self, keys: Iterable[str]) -> int:
        """Return the bytes of some problems in the host's memory next to the device: of what was
        moved there, and of what was too large for the device."""
        return sum(
            tensor.nbytes
            for key in keys
            for tensor in self.tensors(key)
            if key in self.aside or (self.has_gpu and not tensor.is_cuda)
        )

    def tensors(self, key: str) -> Iterator[torch.Tensor]:
        """Yield all tensors that are held for a problem."""
        cases, _ = self.learned[key]
        for case in cases.values():
            yield from tensors_of(case)

    def clear(self) -> None:
        for table in (self.learned, self.aside, self.took_s):
            table.clear()


def tensors_of(case: Case) -> Iterator[torch.Tensor]:
    """Yield all tensors that a case holds, on any device."""
    sets = [one for _, one in case.trials] + list(case.source.made)
    answers = [case.expected]
    yield from (*case.state, *case.init_tensors)
    if case.fewer_rows is not None:
        sets.append(case.fewer_rows[0])
        answers.append(case.fewer_rows[1])
    if case.other_state is not None:
        yield from case.other_state[0]
        answers.append(case.other_state[1])
    if case.source.pool is not None:
        yield case.source.pool.flat
    for one in sets:
        yield from one.tensors
    for answer in answers:
        yield from outputs_of(answer)
    for outputs in (*case.oracle, *case.lost.values()):
        yield from outputs or ()
    for budgets in case.tolerances:
        yield from (budget.local for budget in budgets if budget.local is not None)
    if case.contract is not None:
        yield from case.contract.tensors()


def outputs_of(answer: Answer | None) -> Iterator[torch.Tensor]:
    if answer is not None:
        for outputs in answer.outputs:
            yield from outputs
        yield from answer.state
