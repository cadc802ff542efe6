"""Ask a repository about a patch before it is proposed: who relies on what the patch leaves out,
and whether its own tests and examples give the same.

    acceptor = Acceptor(root, discovery_config, archive)
    evaluation = acceptor.accepted(evaluation, left_s=600)
    evaluation.acceptance.broken   # what refuses it, each with its place

A verifier compares calls of one target. It does not see a hook on a submodule that a fused operator
replaces, nor a subclass that overrides it. The search (discover/readers.py) runs nothing; where it
refuses nothing, the programs of the repository run (own_programs.py), confined, for a limited time.
What was found holds for one state of the tree, and is kept under that state's hash.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from cudal1_ci.discover.discovery import discover
from cudal1_ci.discover.file_reader import Reader
from cudal1_ci.discover.files import DiscoveryConfig
from cudal1_ci.discover.readers import Readers
from cudal1_ci.discover.scripts import Script, scripts_of
from cudal1_ci.optimize.own_programs import SPENT, Compared, OwnPrograms, Start
from cudal1_ci.records import (
    Acceptance,
    AcceptanceLine,
    Evaluation,
    OverlayFile,
    TreeProgram,
    content_hash,
)
from cudal1_ci.records.archive import Archive

NOTE = "acceptance"
"""The kind of note under which what was found is kept."""
ORDER = {"broken": 0, "stated": 1, "not_run": 2}
MAX_LINES = 60
"""Of a report; a tree may have hundreds of examples that need a download."""
ELSEWHERE = "tests and examples run with `--executor local` only"
NO_SCRIPT = "`{command}`: of a trace command, a Python file of the checkout is run"
RULES = 2
"""Raised when the search finds more: what was kept by an earlier version is not used."""


class Acceptor:
    """Ask one repository. Slots of a pool share it."""

    def __init__(
        self,
        root: Path,
        config: DiscoveryConfig,
        archive: Archive,
        *,
        start: Start | None = None,
        limit_s: float = 0.0,
        trace: str | None = None,
        top: Path | None = None,
    ):
        self.archive = archive
        # Readers, tests and pages may lie above the folder that is scanned.
        self.root = (top or root).resolve()
        self.prefix = root.resolve().relative_to(self.root)
        self.command = trace or ""
        is_at_top = self.root == root.resolve()
        self.trace = script_of_command(self.command, self.root) if is_at_top else None
        self.start, self.limit_s = start, limit_s
        # Where a hook or a test is, is not for `include` to say. Globs are those of the folder.
        exclude = config.exclude if is_at_top else ()
        self.config = msgspec.structs.replace(config, tests=True, include=(), exclude=exclude)
        self.lock, self.running = threading.Lock(), threading.Lock()
        """What reads the tree, and what runs its programs: a search waits for no program."""

    @cached_property
    def readers(self) -> Readers:
        """Read the tree, when it is asked for the first time."""
        return Readers(discover(self.root, self.config))

    @cached_property
    def programs(self) -> OwnPrograms | None:
        """Return the repository's programs; None where they are not to be run."""
        if self.start is None or self.limit_s <= 0:
            return None
        scripts = scripts_of(self.root, self.config)
        if self.trace is not None:
            scripts = (self.trace, *(one for one in scripts if one.path != self.trace.path))
        return OwnPrograms(self.readers, scripts, self.start)

    def close(self) -> None:
        """End the processes that ran programs."""
        if "programs" in self.__dict__ and self.programs is not None:
            self.programs.close()

    @cached_property
    def state(self) -> str:
        """Return a hash of all files of the tree that may say something."""
        paths = [*self.readers.facts, *self.readers.documents]
        return content_hash([RULES, [(path, self.digest(path)) for path in sorted(paths)]])

    def digest(self, path: str) -> str:
        return content_hash(self.readers.text(path).decode("utf-8", "replace"))

    def searched(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation with what refuses it, if code of the tree relies on what it leaves
        out; the same where none does."""
        began_s = time.monotonic()
        with self.lock:
            lines = self.lines_of(evaluation)
            if evaluation.acceptance or not any(one.result == "broken" for one in lines):
                return evaluation
            found = Acceptance(
                num_files=self.readers.num_files,
                lines=lines,
                elapsed_s=time.monotonic() - began_s,
            )
            return msgspec.structs.replace(evaluation, acceptance=found)

    def accepted(self, evaluation: Evaluation, left_s: float, qualname: str = "") -> Evaluation:
        """Return an evaluation with what the repository says of it; the same where that is known
        already. Its programs have a quarter of the time that is left at most."""
        began_s = time.monotonic()
        program = evaluation.candidate.program
        if evaluation.acceptance is not None or not isinstance(program, TreeProgram):
            return evaluation
        with self.lock:
            limit_s = self.limit_s if self.start else 0.0
            overlay = msgspec.to_builtins(program.overlay)
            never = [one.detail for one in self.never_run()]
            key = content_hash([self.state, overlay, limit_s, never])
            found = self.archive.noted(NOTE, key, Acceptance)
            lines = self.lines_of(evaluation) if found is None else ()
        if found is None:
            searched = Acceptance(num_files=self.readers.num_files, lines=lines)
            deadline_s = began_s + min(limit_s, max(left_s, 0.0) / 4)
            found = (
                searched if searched.broken else self.ran(searched, program, qualname, deadline_s)
            )
            found = msgspec.structs.replace(found, elapsed_s=time.monotonic() - began_s)
            if not any(one.detail == SPENT for one in found.lines):
                self.archive.note(NOTE, key, found)
        return msgspec.structs.replace(evaluation, acceptance=found)

    def ran(
        self, searched: Acceptance, program: TreeProgram, qualname: str, deadline_s: float
    ) -> Acceptance:
        """Return what the search says of a patch, with what the programs say."""
        ran = Compared()
        with self.running:
            if self.programs is not None:
                overlay = [self.placed(one) for one in program.overlay]
                ran = self.programs.compared(overlay, qualname, deadline_s)
        lines = (*ran.lines, *searched.lines, *self.never_run())
        return msgspec.structs.replace(
            searched,
            num_tests=ran.num_tests,
            num_blocks=ran.num_blocks,
            lines=tuple(sorted(lines, key=lambda one: ORDER[one.result])[:MAX_LINES]),
        )

    def never_run(self) -> Iterator[AcceptanceLine]:
        """Yield lines for what is not run of any patch."""
        if self.limit_s <= 0:
            return
        if self.start is None:
            yield AcceptanceLine(kind="test", result="not_run", detail=ELSEWHERE)
        elif self.command and self.trace is None and not runs_pytest(self.command):
            detail = NO_SCRIPT.format(command=self.command)
            yield AcceptanceLine(kind="block", result="not_run", detail=detail)

    def lines_of(self, evaluation: Evaluation) -> tuple[AcceptanceLine, ...]:
        """Return what the search finds about the files that a candidate changes."""
        program = evaluation.candidate.program
        if not isinstance(program, TreeProgram):
            return ()
        readers = [
            one
            for file in map(self.placed, program.overlay)
            if file.base_digest is not None
            for one in self.readers.of(file.path, self.before(file), file.text)
        ]
        return tuple(line_of(one) for one in sorted(readers, key=lambda one: not one.refuses))

    def placed(self, file: OverlayFile) -> OverlayFile:
        """Return a file with its path below the top of the repository."""
        path = (self.prefix / file.path).as_posix()
        return msgspec.structs.replace(file, path=path)

    def before(self, file: OverlayFile) -> str:
        return self.readers.text(file.path).decode("utf-8", "replace")


def script_of_command(command: str, root: Path) -> Script | None:
    """Return the configured trace command as a script, where it runs a Python file of the tree. One
    that runs pytest runs tests, which are found as such."""
    words = shlex.split(command)
    if runs_pytest(command):
        return None
    place = next((n for n, word in enumerate(words) if word.endswith(".py")), None)
    if place is None or not (root / words[place]).is_file():
        return None
    path = (root / words[place]).resolve()
    if not path.is_relative_to(root):
        return None
    return Script(
        kind="main",
        path=path.relative_to(root).as_posix(),
        arguments=tuple(words[place + 1 :]),
    )


def runs_pytest(command: str) -> bool:
    """Return whether a command runs tests: `pytest -q`, `python -m pytest`."""
    return any(Path(word).name in ("pytest", "py.test") for word in shlex.split(command))


def line_of(reader: Reader) -> AcceptanceLine:
    """Return a reader as a line of a report."""
    return AcceptanceLine(
        kind=reader.how,
        result="broken" if reader.refuses else "stated",
        detail=reader.said,
        path=reader.path,
        line=reader.line,
    )
