"""Keep track of which dimensions of a recurrence's tensors are the same.

Each dimension of a tensor is an axis. Operations that align two dimensions join their axes. In the
end an axis is time, is summed over within a step, or tells the programs of a kernel apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cudal1_ci.propose.recorded.lifted import Refused


class Axis:
    """A dimension, or several that are known to be the same."""

    def __init__(self, size: int):
        self.size = size
        """In the recorded call."""
        self.parent: Axis = self

    def root(self) -> Axis:
        axis = self
        while axis.parent is not axis:
            axis = axis.parent
        return axis

    def join(self, other: Axis) -> None:
        """Make this and another axis one."""
        self.root().parent = other.root()

    def is_same(self, other: Axis) -> bool:
        return self.root() is other.root()


Dims = tuple[Axis | None, ...]
"""The axes of a tensor; None where a dimension has size 1 by the way it was made."""


@dataclass(eq=False)
class Leaf:
    """A tensor or a number that a kernel is given."""

    code: str
    """What it is before the loop."""
    name: str
    """What a kernel calls it."""
    dims: tuple[Axis, ...]
    dtype: str
    offset: int
    """What is added to the index where it is read."""
    is_number: bool = False

    @property
    def token(self) -> str:
        """Return what stands for it in code until its name is known."""
        return f"leaf_{id(self)}_"


@dataclass(frozen=True)
class Tile:
    """An expression of a kernel, for the elements of one program."""

    code: str
    dims: Dims
    dtype: str
    """Of torch; "number" for a number of Python."""
    shape: tuple[int, ...] = ()
    """In the recorded call."""

    @property
    def is_number(self) -> bool:
        return self.dtype == "number"


def fresh_dims(shape: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(Axis(one) for one in shape)


def size_of(axis: Axis | None) -> int:
    return 1 if axis is None else axis.size


def joined_axes(axes: Sequence[Axis | None]) -> Axis | None:
    """Return the axis of dimensions that stand above each other."""
    largest = max(map(size_of, axes))
    chosen: Axis | None = None
    for one in axes:
        if one is None or one.size != largest:
            if size_of(one) != 1:
                raise Refused
            continue
        if chosen is not None:
            one.join(chosen)
        chosen = one
    return chosen


def broadcast(given: Sequence[Dims]) -> Dims:
    """Return the dimensions of an elementwise result."""
    rank = max(len(one) for one in given)
    aligned = [(*[None] * (rank - len(one)), *one) for one in given]
    return tuple(joined_axes(axes) for axes in zip(*aligned, strict=True))


@dataclass
class Reduction:
    """The axes that a step sums over; a kernel has all of them in one program."""

    axes: list[Axis] = field(default_factory=list)

    def add(self, axis: Axis) -> None:
        self.axes.append(axis)

    @property
    def axis(self) -> Axis | None:
        """Return the only one."""
        roots = {one.root() for one in self.axes}
        if len(roots) > 1:
            raise Refused
        return roots.pop() if roots else None
