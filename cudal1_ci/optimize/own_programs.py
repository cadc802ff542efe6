"""Run what a repository runs its own code with, on its tree and on a patched copy of it.

    with contextlib.closing(OwnPrograms(readers, scripts, start)) as programs:
        found = programs.compared(overlay, "Net", deadline_s=time.monotonic() + 120)
        found.num_tests, found.num_blocks, found.lines

A test or a block is compared where it runs on the tree as it is. What differs on the patched copy
is run again on both: what differs between two runs of the tree itself, or only once on the copy, is
chance. Values are compared by samples (sandboxed/harvester), with dropout turned off: a fused
operator draws other random numbers, which is no difference.
"""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cudal1_ci.discover.files import MACHINE_FOLDERS
from cudal1_ci.discover.import_graph import ImportedFile, import_statements
from cudal1_ci.discover.readers import Readers
from cudal1_ci.discover.scripts import Script
from cudal1_ci.errors import CudaL1Error
from cudal1_ci.processes.harvest import Harvester, Limits
from cudal1_ci.records import AcceptanceLine, OverlayFile
from cudal1_ci.sandboxed.wire.harvest import CellRan, Output, ScriptRan

MAX_COPIED_BYTES = 2**30
"""A tree with more is not copied, and so nothing is run."""
MAX_FILE_BYTES = 100 * 2**20
"""Larger files are data: they are left out of the copy."""
LEAST_S = 5.0
"""Less than this is not worth a start."""
TOLERANCES = {"float16": 2e-2, "bfloat16": 5e-2, "float64": 1e-5}
TOLERANCE = 2e-3
"""Of the largest value of a tensor: outputs of whole models, trained or not, for float32."""
NUMBER = re.compile(r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")
SPENT = "its time was spent"


Start = Callable[[Path, tuple[str, ...]], AbstractContextManager[Harvester]]
"""Starts what runs scripts of a checkout, with the folders that its modules are imported from."""


@dataclass
class Compared:
    """What a patch does to the programs of its repository."""

    num_tests: int = 0
    num_blocks: int = 0
    lines: list[AcceptanceLine] = field(default_factory=list)


@dataclass(frozen=True)
class Difference:
    """A test or a block that no longer gives the same."""

    script: Script
    cell: CellRan
    detail: str

    @property
    def key(self) -> tuple[int, str]:
        return self.cell.line, self.cell.name


class OwnPrograms:
    """Run the scripts of one tree."""

    def __init__(self, readers: Readers, scripts: Iterable[Script], start: Start):
        self.readers, self.start = readers, start
        self.scripts = tuple(scripts)
        self.root = readers.discovery.root
        places = readers.modules.places.values()
        self.import_roots = tuple(sorted({one.import_root for one in places})) or (".",)
        self.stack = contextlib.ExitStack()
        self.runner: Harvester | None = None
        self.known: dict[str, ScriptRan] = {}
        """What became of scripts on the tree itself, by their places."""

    def close(self) -> None:
        """End the process that ran scripts of the tree."""
        self.stack.close()

    def compared(
        self, overlay: Sequence[OverlayFile], qualname: str, deadline_s: float
    ) -> Compared:
        """Run the scripts that may reach a changed file on both trees, the nearest first."""
        found = Compared()
        scripts = self.reaching({file.path for file in overlay}, qualname)
        if not scripts:
            return found
        try:
            with (
                patched_copy(self.root, overlay) as copy,
                self.start(copy, self.import_roots) as patched,
            ):
                for number, script in enumerate(scripts):
                    if time.monotonic() + LEAST_S > deadline_s:
                        found.lines += [not_run(one, SPENT) for one in scripts[number:]]
                        break
                    self.compare(script, patched, deadline_s, found)
        except (CudaL1Error, OSError) as error:
            found.lines.append(AcceptanceLine(kind="block", result="not_run", detail=str(error)))
        return found

    def compare(
        self, script: Script, patched: Harvester, deadline_s: float, found: Compared
    ) -> None:
        """Run one script on both trees."""
        before = self.known.get(script.place)
        if before is None:
            before = self.known[script.place] = self.run_here(script, deadline_s)
        works = {key_of(cell): cell for cell in before.cells if cell.outcome == "ran"}
        if not works:
            found.lines.append(not_run(script, why_not(before)))
            return
        after = self.run_on(patched, script, deadline_s)
        differ = list(differences(script, before, after))
        if differ and any(cell_is_decided(one) for one in differ):
            chance = {
                one.key for one in differences(script, before, self.run_here(script, deadline_s))
            }
            twice = {
                one.key
                for one in differences(script, before, self.run_on(patched, script, deadline_s))
            }
            differ = [one for one in differ if one.key in twice and one.key not in chance]
            works = {key: cell for key, cell in works.items() if key not in chance}
        for one in differ:
            if cell_is_decided(one):
                found.lines.append(line_of(one))
            else:
                found.lines.append(not_run(script, one.detail))
        num_same = len(works) - len({one.key for one in differ} & works.keys())
        if script.kind == "test":
            found.num_tests += num_same
        else:
            found.num_blocks += num_same

    def run_here(self, script: Script, deadline_s: float) -> ScriptRan:
        """Run a script on the tree as it is."""
        if self.runner is None:
            self.runner = self.stack.enter_context(self.start(self.root, self.import_roots))
        return self.run_on(self.runner, script, deadline_s)

    def run_on(self, runner: Harvester, script: Script, deadline_s: float) -> ScriptRan:
        """Run a script in the time that is left."""
        left_s = max(1.0, deadline_s - time.monotonic())
        limits = Limits()
        limits = replace(
            limits, cell_s=min(limits.cell_s, left_s), script_s=min(limits.script_s, left_s)
        )
        place = self.readers.modules.places.get(script.path)
        module = place.module if place else ""
        return runner.run(script, module=module, limits=limits, compares=True)

    def reaching(self, changed: set[str], qualname: str) -> list[Script]:
        """Return scripts that import a changed file, those that name the target first."""
        ranked = []
        name = qualname.split(".")[0].encode()
        for number, script in enumerate(self.scripts):
            reached = self.reached(script)
            if reached & changed:
                is_near = name in self.text(script)
                ranked.append((not is_near, len(reached), number))
        return [self.scripts[number] for _, _, number in sorted(ranked)]

    def text(self, script: Script) -> bytes:
        cells = "\n".join(cell.text for cell in script.cells)
        return cells.encode() if cells else self.readers.text(script.path)

    def reached(self, script: Script) -> set[str]:
        """Return the files of the tree that a script imports, and its own."""
        imports = self.readers.discovery.imports
        if not script.cells and script.path in self.readers.facts:
            return imports.closure(script.path)
        file = ImportedFile("", tuple(import_statements(self.text(script))))
        own = imports.closure(script.path) if script.path in self.readers.facts else set()
        return own | imports.closure_of(imports.steps(script.path, file, None))


def key_of(cell: CellRan) -> tuple[int, str]:
    return cell.line, cell.name


def differences(script: Script, before: ScriptRan, after: ScriptRan) -> Iterator[Difference]:
    """Yield what ran before and is not the same after."""
    found = {key_of(cell): cell for cell in after.cells}
    for cell in before.cells:
        if cell.outcome != "ran":
            continue
        other = found.get(key_of(cell))
        if other is None:
            reason = after.ending or "it was not reached"
            # A process that has to be ended may have been too slow: that is not decided.
            other = CellRan(line=cell.line, name=cell.name, outcome="out_of_time", reason=reason)
        if other.outcome != "ran":
            yield Difference(script, other, other.reason or other.outcome)
        elif said := difference_of(cell.outputs, other.outputs):
            yield Difference(script, other, said)
        elif not is_same_text(cell.printed, other.printed):
            yield Difference(script, other, "it prints something else")


def cell_is_decided(one: Difference) -> bool:
    """Return whether a difference is none of time or memory."""
    return one.cell.outcome not in ("out_of_time", "out_of_memory")


def difference_of(before: Sequence[Output], after: Sequence[Output]) -> str | None:
    """Return which value differs; None where all are the same."""
    others = {one.name: one for one in after}
    for one in before:
        other = others.get(one.name)
        if other is None:
            return f"`{one.name}` is no longer a tensor"
        if (other.shape, other.dtype) != (one.shape, one.dtype):
            return (
                f"`{one.name}` is {other.dtype} of {list(other.shape)} and was {one.dtype} of "
                f"{list(one.shape)}"
            )
        pair = farthest(one, other)
        if pair is not None:
            return f"`{one.name}` differs: {pair[1]} and was {pair[0]}"
    return None


def farthest(before: Output, after: Output) -> tuple[str, str] | None:
    """Return a value of a sample and what it became, beyond the tolerance."""
    if before.sample == after.sample:
        return None
    try:
        olds, news = [float(one) for one in before.sample], [float(one) for one in after.sample]
    except ValueError:  # complex numbers and texts have no tolerance
        return next(zip(before.sample, after.sample, strict=False), None)
    finite = [abs(one) for one in olds if math.isfinite(one)]
    least = TOLERANCES.get(before.dtype, TOLERANCE) if "float" in before.dtype else 0.0
    margin = least * max(finite, default=0.0)
    for number, (old, new) in enumerate(zip(olds, news, strict=False)):
        same = old == new or (math.isnan(old) and math.isnan(new)) or abs(old - new) <= margin
        if not same:
            return before.sample[number], after.sample[number]
    return None


def is_same_text(before: str, after: str) -> bool:
    """Return whether two texts are the same, numbers within the tolerance."""
    olds, news = NUMBER.split(before), NUMBER.split(after)
    if len(olds) != len(news):
        return False
    for number, (old, new) in enumerate(zip(olds, news, strict=True)):
        if number % 2 == 0:
            if old.split() != new.split():  # columns are as wide as their numbers
                return False
        elif not math.isclose(float(old), float(new), rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            return False
    return True


def line_of(one: Difference) -> AcceptanceLine:
    """Return a difference as a line that refuses the patch."""
    if one.script.kind == "test":
        name = one.cell.name.partition("::")[2] or "the file"
        detail, line = f"{name} fails with the patch: {one.detail}", None
    else:
        verb = "differs" if one.cell.outcome == "ran" else "fails"
        detail, line = f"{verb} with the patch: {one.detail}", one.cell.line or None
    kind = "test" if one.script.kind == "test" else "block"
    return AcceptanceLine(
        kind=kind, result="broken", detail=detail, path=one.script.path, line=line
    )


def not_run(script: Script, reason: str) -> AcceptanceLine:
    """Return a line for a script that does not show what the patch does."""
    kind = "test" if script.kind == "test" else "block"
    line = script.cells[0].line if script.cells else None
    return AcceptanceLine(kind=kind, result="not_run", detail=reason, path=script.path, line=line)


def why_not(ran: ScriptRan) -> str:
    """Return why nothing of a script can be compared."""
    reasons = [cell.reason for cell in ran.cells if cell.reason]
    first = next(iter(reasons), "") or ran.ending or "it holds no test"
    return f"without the patch: {first}"


@contextlib.contextmanager
def patched_copy(root: Path, overlay: Sequence[OverlayFile]) -> Iterator[Path]:
    """Yield a copy of a tree with other texts in some files. Hidden files at its top are left out,
    and data.

    Raises:
        OSError: The tree is too large, or cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="cudal1-ci-copy-") as folder:
        copy = Path(folder) / root.name
        size = 0

        def left_out(at: str, names: list[str]) -> list[str]:
            nonlocal size
            out = [name for name in names if is_left_out(root, Path(at, name))]
            kept = [Path(at, name) for name in names if name not in out]
            size += sum(one.stat().st_size for one in kept if one.is_file())
            if size > MAX_COPIED_BYTES:
                raise OSError(f"{root} is not copied: it has more than 1 GiB")
            return out

        shutil.copytree(root, copy, ignore=left_out, symlinks=True)
        for file in overlay:
            (copy / file.path).parent.mkdir(parents=True, exist_ok=True)
            (copy / file.path).write_text(file.text, encoding="utf-8")
        yield copy


def is_left_out(root: Path, path: Path) -> bool:
    """Return whether a file or folder does not belong into a copy."""
    if path.name in MACHINE_FOLDERS or (path.parent == root and path.name.startswith(".")):
        return True
    if path.is_dir() and (path / "pyvenv.cfg").is_file():
        return True
    with contextlib.suppress(OSError):
        return path.is_file() and path.stat().st_size > MAX_FILE_BYTES
    return True
