"""Describe how a runner gets a callable, and the Problem that a reference poses."""

from __future__ import annotations

from typing import Any

import msgspec

from cudal1_ci.records.record import Published, Record, content_hash
from cudal1_ci.records.target import Target
from cudal1_ci.records.workload import Workload


class TextProgram(Published, frozen=True, kw_only=True, tag="text"):
    """A KernelBench-form file: a class `entry` and the functions that make its arguments."""

    source: str
    entry: str


class OverlayFile(Published, frozen=True, kw_only=True):
    """A file of the checkout as the candidate would have it."""

    path: str
    text: str
    base_digest: str | None = None
    """`content_hash` of the text that it replaces; None for a file that did not exist."""


class TreeProgram(Published, frozen=True, kw_only=True, tag="tree"):
    """A class or function of a checkout, with the changed files laid over it."""

    root: str
    """Absolute path of the checkout. Not part of the content hash."""
    import_root: str
    """Folder relative to `root` that must be on sys.path: `.`, `src`."""
    import_path: str
    """`pkg.mod:Qual.Name`"""
    digest: str
    """Hash of the target's file and of all files of the checkout that it imports."""
    overlay: tuple[OverlayFile, ...] = ()


Program = TextProgram | TreeProgram


def program_identity(program: Program) -> Any:
    """Return what decides a program's behavior: everything except the checkout's location."""
    builtins = msgspec.to_builtins(program)
    builtins.pop("root", None)
    return builtins


class Problem(Record, frozen=True, kw_only=True):
    """A reference program and the workloads under which it matters."""

    reference: Program
    workloads: tuple[Workload, ...]
    target: Target | None = None

    @property
    def id(self) -> str:
        """Return the content hash of the reference and of the calls of its workloads. A kernel's
        own name is included: its launcher is also the reference of other problems, where another
        answer wins.
        """
        calls = [(w.init, w.call, w.mode, w.atol, w.rtol) for w in self.workloads]
        parts: list[Any] = [program_identity(self.reference), calls]
        # Added only where there are some: a problem keeps the id that it had without them.
        if any(w.dtype or w.default_dtype for w in self.workloads):
            parts.append([(w.dtype, w.default_dtype) for w in self.workloads])
        if any(w.autocast for w in self.workloads):
            parts.append(["autocast", *(w.autocast for w in self.workloads)])
        if self.target is not None and self.target.is_kernel:
            parts.append((self.target.path, self.target.qualname))
        return content_hash(parts)

    @property
    def share(self) -> float | None:
        """Share (0..1) of the traced time of a root that its calls took by themselves, without that
        of other traced calls inside of them, where that is largest; None where none was traced."""
        shares: dict[str | None, float] = {}
        for one in self.workloads:
            if one.share is not None:
                shares[one.root] = shares.get(one.root, 0.0) + one.share
        return max(shares.values(), default=None)
