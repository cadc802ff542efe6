"""Post the reports that other jobs have left (actions/publish).

Runs nothing of the pull request. The files are hostile data. They are only counted here; `cudal1-ci
publish` reads them as hostile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.action.children import Runner, run_verb, scrubbed
from cudal1_ci.github.action.inputs import PublishInputs, publish_inputs
from cudal1_ci.github.action.outcome import tell
from cudal1_ci.github.projects import WHY

# One for each GPU. A matrix has at most 256 jobs; more files than that are no measurements.
MAX_REPORTS = 256
MAX_TOTAL_BYTES = 512 * 2**20
"""Of all reports together: a hosted runner has 16 GiB. One of a scan of 405 targets has 2.6 MiB,
and takes 7 MiB once it is read."""
LIMIT_S = 420.0
"""Of the ten minutes of its job, so that the check can still be ended."""
END_LIMIT_S = 120.0
SETTLED = (0, 2, 5)
"""Exit codes after which a second try ends no check: the verb ended it, for a report that it could
not read too (2), or GitHub refused (5)."""

NOTHING = "**cudal1-ci: there is no report to publish.** Nothing was measured: {why}.\n"


def publish(environment: Mapping[str, str], run: Runner = run_verb) -> int:
    """Post the reports; without any, print that and succeed: measuring was refused or failed."""
    inputs = publish_inputs(environment)
    workspace = Path(environment.get("GITHUB_WORKSPACE") or os.curdir)
    refused: ConfigError | None = None
    try:
        files = [] if inputs.start else reports_of(workspace, inputs.reports)
    except ConfigError as error:
        files, refused = [], error
        inputs = msgspec.structs.replace(inputs, measured="unusable")
    has_check = inputs.check and not inputs.sweep and bool(environment.get("GITHUB_TOKEN"))
    if not files and not inputs.start:
        tell({}, NOTHING.format(why=WHY[inputs.measured]), environment)
        if not has_check and refused is not None:
            raise refused
        if not has_check:
            return 0
    # The verb calls GitHub and starts nothing. Of the job's environment it needs the token, the
    # event and where to write the summary, and no other secret.
    state = Path(environment.get("RUNNER_TEMP") or workspace) / "cudal1-ci" / "state"
    known = scrubbed(environment, state, keys=tuple(publisher_names(environment)))
    words = publish_words(inputs, files)
    code = run(words, cwd=workspace, environment=known, limit_s=LIMIT_S)
    if files and has_check and code not in SETTLED:
        # It crashed or took too long: the report may be made for that. The check ends in any case.
        unusable = msgspec.structs.replace(inputs, measured="unusable")
        words = publish_words(unusable, [])
        run(words, cwd=workspace, environment=known, limit_s=END_LIMIT_S)
    if refused is not None:
        raise refused
    return code


def publisher_names(environment: Mapping[str, str]) -> list[str]:
    """Return the job's variables that `cudal1-ci publish` reads: GitHub's, and the token."""
    return [name for name in environment if name.startswith("GITHUB_")]


def reports_of(workspace: Path, pattern: str) -> list[Path]:
    """Return the files that the glob matches, sorted; links are not followed.

    Raises:
        ConfigError: There are more than any matrix makes, or they are too large together.
    """
    try:
        found = sorted(workspace.glob(pattern))
    except (NotImplementedError, ValueError) as error:
        raise ConfigError(
            f"input `reports`: expected a glob relative to the workspace, got {pattern!r}: {error}"
        ) from error
    files = [file for file in found if file.is_file() and not file.is_symlink()]
    if len(files) > MAX_REPORTS:
        raise ConfigError(
            f"input `reports`: expected at most {MAX_REPORTS} files, {pattern!r} names {len(files)}"
        )
    size = sum(file.stat().st_size for file in files)
    if size > MAX_TOTAL_BYTES:
        raise ConfigError(
            f"input `reports`: expected at most {MAX_TOTAL_BYTES // 2**20} MiB in all, the "
            f"{len(files)} files that {pattern!r} names have {size // 2**20} MiB"
        )
    return files


def publish_words(inputs: PublishInputs, files: list[Path]) -> list[str]:
    """Return the verb for what is there: reports, or a check run to begin or to end."""
    plain = PublishInputs()
    gate = [
        word
        for name in ("fail_on", "on_missing", "on_inconclusive", "measured")
        if getattr(inputs, name) != getattr(plain, name)
        for word in (f"--{name.replace('_', '-')}", getattr(inputs, name))
    ]
    gate += [word for name in inputs.machine_names for word in ("--machine", name)]
    gate += [word for name in inputs.gpus for word in ("--gpu-machine", name)]
    gate += [word for name in inputs.projects for word in ("--project", name)]
    gate += ["--workflow", inputs.workflow] if inputs.workflow else []
    dry = ["--dry-run"] if inputs.dry_run else []
    if not files:
        return ["publish", "--start" if inputs.start else "--abandon", *gate, *dry]
    if inputs.sweep:
        most = ["--max-items", str(inputs.max_items), "--max-open-prs", str(inputs.max_open_prs)]
        return ["publish", "--sweep", *most, *dry, "--", *map(str, files)]
    words = ["publish", *gate, "--comment", inputs.comment]
    words += [] if inputs.check else ["--no-check"]
    words += ["--commands"] if inputs.commands else []
    words += ["--artifact-url", inputs.artifact_url] if inputs.artifact_url else []
    return [*words, *dry, "--", *map(str, files)]
