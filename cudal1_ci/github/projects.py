"""Sort reports into projects, and say what of each was expected and is missing.

A project is a folder with a configuration of its own. It has one check, and all projects of a
repository have one comment. Which projects and machines there are to be is declared by the workflow
or by the base, before anything is measured; a report adds nothing to that.

    projects_of(found, Expected(machines=("h100",)), policy_of)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.check import check_name
from cudal1_ci.github.rebase_paths import from_top
from cudal1_ci.github.sanitize import one_line
from cudal1_ci.records import Record, Report
from cudal1_ci.render.merge import merge
from cudal1_ci.stats.gate import Finding, Policy, machine_of, missing_machines

WHY = {
    "success": "the measuring job left no report; see its summary",
    "failure": "the measuring job failed",
    "cancelled": "the measuring job was cancelled, for instance by a newer push",
    "unusable": "no usable report was found",
    "skipped": "the measuring job was skipped, by a label or a condition of the workflow",
}
"""By the result of the measuring job, as GitHub gives it."""
NO_GPU = "no GPU was visible on {name}; run nvidia-smi and cudal1-ci doctor there"


class Found(Record, frozen=True, kw_only=True):
    """Hold a report, and the name of the artifact that it was in."""

    artifact: str
    document: Report


class Expected(Record, frozen=True, kw_only=True):
    """Hold what is declared before anything is measured."""

    projects: tuple[str, ...] = ()
    """Folders; empty where there is one project, wherever it is."""
    machines: tuple[str, ...] = ()
    into: str | None = None
    """Base branch; None for the default branch."""
    measured: str = "success"
    """Result of the measuring job."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the checks."""
        return tuple(check_name(folder, self.into) for folder in self.projects or (".",))

    @property
    def why(self) -> str:
        """Return why there is no report."""
        return WHY.get(self.measured, WHY["failure"])


class Part(Record, frozen=True, kw_only=True):
    """Hold one project's report, with paths from the top, and what is missing of it."""

    folder: str
    name: str
    policy: Policy
    document: Report | None
    missing: tuple[Finding, ...] = ()


def projects_of(
    found: Sequence[Found], expected: Expected, policy_of: Callable[[str], Policy]
) -> tuple[Part, ...]:
    """Return the projects, those without a report too.

    Raises:
        ReportError: Reports of one project are of several commits.
        ForgeError: A report is of a project that was not declared.
    """
    folders = dict.fromkeys(one.document.folder for one in found)
    if strange := [folder for folder in folders if folder not in (expected.projects or folders)]:
        raise ForgeError(
            f"expected reports of the projects {', '.join(expected.projects)}, got one of "
            f"{strange[0][:200]!r}"
        )
    wanted = expected.projects or tuple(folders) or (".",)
    parts = []
    for folder in wanted:
        ours = [one for one in found if one.document.folder == folder]
        policy = policy_of(folder)
        machines = (*(policy.gate.machines or expected.machines), *policy.gate.gpus)
        missing = missing_machines(machines, (one.artifact for one in ours), expected.why)
        blind = [without_gpu(one, machines, policy) for one in ours]
        missing = (*missing, *dict.fromkeys(filter(None, blind)))
        ours = [one for one, lack in zip(ours, blind, strict=True) if lack is None]
        is_alone = not expected.projects and len(wanted) == 1
        name = check_name("." if is_alone else folder, expected.into)
        if not ours and not blind:
            missing = (Finding(state="no_report", name=name, detail=expected.why),)
        document = from_top(merge([one.document for one in ours])) if ours else None
        parts.append(
            Part(folder=folder, name=name, policy=policy, document=document, missing=missing)
        )
    return tuple(parts)


def without_gpu(found: Found, machines: Sequence[str], policy: Policy) -> Finding | None:
    """Return what is to be said of a report of CPU times where a GPU was to measure."""
    machine = machine_of(found.artifact, machines)
    devices = found.document.devices
    if machine not in policy.gate.gpus or any(one.kind != "cpu" for one in devices) or not devices:
        return None
    name = one_line(machine or "", 100)
    return Finding(state="unmeasured", name=name, detail=NO_GPU.format(name=name))


def whole_of(found: Sequence[Found]) -> Report:
    """Return one report of all that a run has left, with paths from the top.

    Raises:
        ReportError: They do not fit together.
        ForgeError: One has a folder that cannot be one.
    """
    return merge([from_top(one.document) for one in found])


def whole(parts: Sequence[Part]) -> Report | None:
    """Return one report of all projects; None where there is none."""
    documents = [part.document for part in parts if part.document is not None]
    return merge(documents) if documents else None
