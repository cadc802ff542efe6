"""The history that scans of one checkout have left in its archive.

The archive knows no commits: it knows, of each proposal, the hash of the file that it replaces, and
when it was judged. So an evaluation belongs to the commit that was the newest then, if the file was
as that commit has it; what was measured in a working tree that was never committed belongs to none.
Targets of which no candidate was judged are not in an archive, nor are the two sides of a
comparison, whose files it does not name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from cudal1_ci.records import (
    Device,
    Entry,
    Evaluation,
    OverlayFile,
    Report,
    Target,
    TreeProgram,
    content_hash,
)
from cudal1_ci.render.published import published, with_patch
from cudal1_ci.stats import speedups

NewestAt = Callable[[float], str | None]
"""The commit that was the newest at a moment, in seconds since the epoch."""
TextAt = Callable[[str, str], str | None]
"""The text of a file at a commit."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """An evaluation with the commit that it is of."""

    commit: str
    recorded_at: float
    device: Device
    evaluation: Evaluation
    program: TreeProgram


def archived_reports(
    recorded: Iterable[tuple[float, Evaluation]],
    repository: str,
    newest_at: NewestAt,
    text_at: TextAt,
) -> tuple[list[Report], int]:
    """A report for each commit and device, the oldest first; and how many evaluations are of no
    commit."""
    groups: dict[tuple[str, str], list[Placed]] = {}
    num_placeless = 0
    for recorded_at, evaluation in recorded:
        program, device = evaluation.candidate.program, evaluation.device
        if not isinstance(program, TreeProgram) or not program.overlay or device is None:
            continue
        commit = newest_at(recorded_at)
        if commit is None or not _is_of(program, commit, text_at):
            num_placeless += 1
            continue
        one = Placed(
            commit=commit,
            recorded_at=recorded_at,
            device=device,
            evaluation=evaluation,
            program=program,
        )
        groups.setdefault((commit, device.key), []).append(one)
    return [_report(placed, repository, text_at) for placed in groups.values()], num_placeless


def _is_of(program: TreeProgram, commit: str, text_at: TextAt) -> bool:
    return all(
        file.base_digest == (None if text is None else content_hash(text))
        for file in program.overlay
        for text in [text_at(commit, file.path)]
    )


def _report(placed: list[Placed], repository: str, text_at: TextAt) -> Report:
    last = placed[-1]
    problems: dict[str, list[Placed]] = {}
    for one in placed:
        problems.setdefault(one.evaluation.candidate.problem_id, []).append(one)
    report = Report(
        repository=repository,
        head_sha=last.commit,
        device=last.device,
        entries=tuple(map(_entry, problems.values())),
        generated_at=datetime.fromtimestamp(int(last.recorded_at), UTC),
    )
    patches = {
        one.evaluation.candidate.id: "".join(
            _patch(file, text_at(one.commit, file.path)) for file in one.program.overlay
        )
        for one in placed
    }
    return _with_patches(published(report), patches)


def _entry(same: list[Placed]) -> Entry:
    # Judged again is measured again: the newest counts, as it does for a scan.
    newest = {one.evaluation.candidate.id: one for one in same}
    evaluations = tuple(one.evaluation for one in newest.values())
    program = same[-1].program
    return Entry(
        target=Target(
            path=_file_of(program).path,
            qualname=program.import_path.partition(":")[2],
            kind="torch_module",
            first_line=1,
            last_line=1,
        ),
        evaluations=evaluations,
        best=speedups.best(evaluations, ()),
    )


def _file_of(program: TreeProgram) -> OverlayFile:
    """The file of the target itself, where several are changed."""
    module = program.import_path.partition(":")[0].replace(".", "/")
    named = (f for f in program.overlay if f.path.removesuffix(".py").endswith(module))
    return next(named, program.overlay[0])


def _patch(file: OverlayFile, before: str | None) -> str:
    old = [] if before is None else before.splitlines(keepends=True)
    new = file.text.splitlines(keepends=True)
    lines = difflib.unified_diff(old, new, f"a/{file.path}", f"b/{file.path}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _with_patches(shown: Report, patches: dict[str, str]) -> Report:
    """The checkout may have moved on, so patches are made of what its commit had."""
    entries = tuple(
        msgspec.structs.replace(
            entry,
            evaluations=tuple(
                msgspec.structs.replace(
                    one, candidate=with_patch(one.candidate, patches[one.candidate.id] or None)
                )
                for one in entry.evaluations
            ),
        )
        for entry in shown.entries
    )
    return msgspec.structs.replace(shown, entries=entries)
