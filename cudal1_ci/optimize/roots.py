"""Find the outermost calls that contain a target, and the target's part of them.

The text says who may use a target (`discover/references.py`); a recorded call says who does, and
how much of its time the target takes. So the roots are those of the recorded calls, where there are
any: a library has a class for everything that may use a model, and the user has one model. Else a
root is a target with a workload that no other such target uses. One that contains itself only is
its own root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudal1_ci.discover.plan import Plan, Planned, surroundings
from cudal1_ci.discover.references import Key, References
from cudal1_ci.records import Change, InRoot, Target
from cudal1_ci.records.recording import Recording

MOST_ROOTS = 6
"""Roots that a run tries as a whole first, and whose impact it times."""


@dataclass(frozen=True)
class Root:
    """A target whose calls are timed before and after."""

    planned: Planned
    parts: tuple[Target, ...]
    """Targets that it uses, among those with proposals."""

    @property
    def name(self) -> str:
        return self.planned.target.address

    @property
    def contains_others(self) -> bool:
        """Return whether it is the root of more than itself."""
        return any(one != self.planned.target for one in self.parts)


def key_of(target: Target) -> Key:
    return target.path, target.qualname


def roots_of(plan: Plan, targets: Sequence[Target]) -> list[Root]:
    """Return the roots of targets with proposals: those that contain others come first, and then
    those of the most targets."""
    posed = {key_of(one.target): one for one in surroundings(plan) if one.problem is not None}
    parts: dict[Key, list[Target]] = {}
    by_address = {one.target.address: key for key, one in posed.items()}
    for target in targets:
        planned = posed.get(key_of(target))
        names = recorded_roots(planned) if planned is not None else set[str]()
        for key in sorted(by_address[name] for name in names if name in by_address):
            parts.setdefault(key, []).append(target)
    recorded = {target for ones in parts.values() for target in ones}
    targets = [target for target in targets if target not in recorded]
    users = users_among(plan, targets, posed)
    of_users = [posed[key].target for keys in users.values() for key in keys]
    above = users | users_among(plan, of_users, posed)
    for target in targets:
        found = users[key_of(target)]
        if key_of(target) in posed:
            found = found | {key_of(target)}
        for user in found:
            # Two that use each other are roots both.
            others = {one for one in above.get(user, set()) if user not in above.get(one, set())}
            if not others - {user}:
                parts.setdefault(user, []).append(target)
    found_roots = [Root(posed[key], tuple(parts[key])) for key in parts]
    return sorted(found_roots, key=lambda one: (not one.contains_others, -len(one.parts), one.name))


def recorded_roots(planned: Planned) -> set[str]:
    """Return the addresses of the outermost targets in whose recorded calls a target runs."""
    return {one.root for one in planned.workloads if one.root is not None}


def users_among(
    plan: Plan, targets: Sequence[Target], posed: Mapping[Key, Planned]
) -> dict[Key, set[Key]]:
    """Return who uses each target, directly or through others, among targets with workloads."""
    if plan.discovery is None:
        return {key_of(one): set() for one in targets}
    nothing = Change(repository=plan.repository, base_sha="", head_sha=None, files=())
    references = References(plan.discovery, nothing)
    found: dict[Key, set[Key]] = {}
    for key in dict.fromkeys(map(key_of, targets)):
        users = references.users_of([key])
        found[key] = {scope for one in users for scope in scopes_of(one) if scope in posed} - {key}
    return found


def scopes_of(key: Key) -> list[Key]:
    """Return a unit and the classes around it: `Model.forward` is part of `Model`."""
    path, qualname = key
    names = qualname.split(".")
    return [(path, ".".join(names[:count])) for count in range(len(names), 0, -1)]


def parts_of(recording: Recording, root: str, targets: Sequence[Target]) -> dict[Target, InRoot]:
    """Return the parts that targets take of a recorded call of a root; none of those that it does
    not call. Time between operations is divided as that of operations is."""
    every_us = [one.forward_us + (one.backward_us or 0.0) for one in recording.operations]
    total_us = sum(every_us)
    found: dict[Target, InRoot] = {}
    for target in targets:
        inside = frames_in(recording, target)
        its_us = sum(
            time_us
            for one, time_us in zip(recording.operations, every_us, strict=True)
            if one.frame in inside
        )
        if inside and total_us:
            share = min(1.0, its_us / total_us)
            found[target] = InRoot(root=root, share=share, time_us=share * recording.total_us)
    return found


def frames_in(recording: Recording, target: Target) -> set[int]:
    """Return the activations of functions that a target's lines define, and of what they call."""
    inside: set[int] = set()
    for number, frame in enumerate(recording.frames):
        lines = range(target.first_line, target.last_line + 1)
        is_own = frame.file == target.path and frame.first_line in lines
        if is_own or frame.caller in inside:
            inside.add(number)
    return inside
