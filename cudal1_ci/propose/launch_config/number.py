"""Describe a number of a kernel launch and all its places in a text.

    (block, warps) = triton_numbers(text, "silu_kernel", text)
    written(text, {block: 2048, warps: 8})

This module knows numbers and places, but no kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

Growth = Literal["by doubling", "by one"]


@dataclass(frozen=True)
class Place:
    """A number's place in a text, in UTF-8 bytes; empty where the number is to be added."""

    first: int
    end: int
    before: str = ""
    """Text in front of the number."""
    behind: str = ""
    """Text behind the number."""
    less: int = 0
    """Difference at this place: 1 for the 255 of `(n + 255) / 256`."""

    def text(self, value: int) -> bytes:
        return f"{self.before}{value - self.less}{self.behind}".encode()


@dataclass(frozen=True)
class LaunchNumber:
    """A number's name, value and other possible values."""

    name: str
    value: int
    places: tuple[Place, ...]
    grows: Growth
    least: int
    most: int

    def after(self, steps: int) -> int | None:
        """Return the value so many steps up, or down if negative; None outside the possible
        values.
        """
        if self.grows == "by one":
            value = self.value + steps
        elif steps >= 0:
            value = self.value << steps
        else:
            value = self.value >> -steps
        return value if self.least <= value <= self.most else None


def written(text: str, values: Mapping[LaunchNumber, int]) -> str:
    """Return the text with other numbers."""
    places = sorted(
        ((place, place.text(value)) for number, value in values.items() for place in number.places),
        key=lambda one: one[0].first,
    )
    source, pieces, at = text.encode(), [], 0
    for place, new in places:
        pieces += [source[at : place.first], new]
        at = place.end
    return b"".join((*pieces, source[at:])).decode()


def merged(numbers: Iterable[LaunchNumber]) -> tuple[LaunchNumber, ...]:
    """Return the numbers of several launches as one. A name with one value changes in all launches;
    a name with several values is excluded. If names share a number, the first name is kept. Names
    that share only some of their places are excluded.
    """
    found: dict[str, LaunchNumber | None] = {}
    for one in numbers:
        before = found.get(one.name, one)
        if before is None or before.value != one.value:
            found[one.name] = None
            continue
        places = tuple(dict.fromkeys((*before.places, *one.places)))
        found[one.name] = replace(one, places=places)
    by_places = {one.places: one for one in reversed(found.values()) if one is not None}
    # Several insertions may share one place.
    taken = Counter(place for places in by_places for place in places if place.end > place.first)
    kept = [one for one in by_places.values() if all(taken[place] < 2 for place in one.places)]
    return tuple(sorted(kept, key=list(found.values()).index))
