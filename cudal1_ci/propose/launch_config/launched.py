"""Know how a recorded call launched a kernel, and which other numbers can help there.

A block that is longer than all that the kernel is given only masks more of it out, and warps
without elements of a block idle. Where the device waits for programs the block gets smaller first;
where there are many, it grows first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudal1_ci.propose.launch_config.number import LaunchNumber
from cudal1_ci.propose.recorded.graph import Graph, Operation, literal, values_in
from cudal1_ci.records.recording import Launch

WARP = 32
FEW_PROGRAMS = 2 * 132
"""Programs that do not fill a large GPU. Source: an H100 has 132 multiprocessors."""
GROW_FIRST = (1, -1, 2, -2)
SHRINK_FIRST = (-1, 1, -2, 2)


@dataclass(frozen=True)
class Launched:
    """The launches of one kernel in a recorded call."""

    num_programs: int
    """The most of a launch; 0 if not known."""
    most_elements: int
    """Of the largest tensor that it is given."""
    blocks: Mapping[str, int]
    """Sizes that it is compiled for, in the launch with the most programs."""

    @property
    def steps(self) -> Sequence[int]:
        """Return the steps of a number, in the order to try."""
        return SHRINK_FIRST if 0 < self.num_programs < FEW_PROGRAMS else GROW_FIRST

    def is_useful(self, values: Mapping[LaunchNumber, int]) -> bool:
        """Return whether a launch with other numbers has work for all its warps, and no block that
        is longer than all of its work."""
        new = {one.name: value for one, value in values.items()}
        grown = {one.name for one, value in values.items() if value > one.value}
        blocks = {name: new.get(name, size) for name, size in self.blocks.items()}
        if any(blocks[name] >= 2 * self.most_elements for name in grown & {*blocks}):
            return False
        is_idle = WARP * new.get("num_warps", 0) > math.prod(blocks.values())
        return not (blocks and is_idle and "num_warps" in grown)


def launched(graph: Graph, operations: Sequence[Operation]) -> Launched:
    """Return what a recording knows of the launches of one kernel."""
    known = [launch for one in operations if (launch := one.recorded.launch) is not None]
    largest = max(known, key=num_programs)
    values = [graph.recording.values[n] for one in operations for n in values_in(one.recorded)]
    constants = {one.name: literal(one.argument) for one in largest.constants}
    return Launched(
        num_programs=num_programs(largest),
        most_elements=max((math.prod(one.shape) for one in values), default=1),
        blocks={
            name: value
            for name, value in constants.items()
            if isinstance(value, int) and value > 1 and not value & (value - 1)
        },
    )


def num_programs(launch: Launch) -> int:
    """Return the size of a grid; 0 if it is not known."""
    return math.prod(launch.grid) if launch.grid else 0
