"""Measure whether a change is slower and what could be faster (action.yml).

Writes a report, posts nothing.

    event, inputs -> may it run here? -> base -> compare -> scan --changed -> one report -> outputs

A summary and the outputs are written in every case. The exit code is that of `fail-on`, as
`compare` gives it, or of the tool's own failure. A spent budget is neither.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from cudal1_ci.config import load_settings
from cudal1_ci.config.model_keys import keep_model_keys_apart
from cudal1_ci.errors import ConfigError, CudaL1Error, ReportError
from cudal1_ci.git import common_ancestor, head_sha, run_git
from cudal1_ci.github.action.admission import configuration_changed, configuration_is_new, refusal
from cudal1_ci.github.action.children import GRACE_S, TIMED_OUT, Runner, run_verb, scrubbed
from cudal1_ci.github.action.event import Event, read_event
from cudal1_ci.github.action.inputs import Inputs, SweepInputs, measure_inputs, seconds_of
from cudal1_ci.github.action.outcome import (
    Outcome,
    device_notices,
    headline,
    outcome_of,
    output_lines,
    summary,
    tell,
)
from cudal1_ci.records import Report
from cudal1_ci.render import render
from cudal1_ci.render.merge import merge
from cudal1_ci.render.patch import best_patches
from cudal1_ci.render.reading import read_report
from cudal1_ci.render.wording import count_text

EVERYTHING = "all"
"""Value of `base`: compare with nothing, and scan the whole tree."""

ANSWERS = (0, 1, 3, 6)
"""Exit codes with a report: done, a regression, inconclusive, the budget was spent."""


INTRODUCED = (
    "This change brings the settings of cudal1-ci. They count for what is shown here; what fails a "
    "job, and the keys of models, follow the base from the merge on."
)

EXIT_CODES = {6: 0, TIMED_OUT: 4}
"""The step's code, where it is not the verb's: a spent budget is no failure, a hang is."""


class Place(NamedTuple):
    """Name the folders and files of this job."""

    tree: Path
    reports: Path
    state: Path


class Measured(NamedTuple):
    """Hold the reports and exit codes of the verbs."""

    code: int
    reports: list[Report]
    notices: list[str]


def measure(environment: Mapping[str, str], run: Runner = run_verb) -> int:
    """Measure the change of this event; return the exit code of the step."""
    outcome, notices, document = Outcome(verdict="error"), list[str](), None
    try:
        inputs, event = measure_inputs(environment), read_event(environment)
        reason = refusal(event, environment.get("RUNNER_ENVIRONMENT", ""), inputs.allow_fork_code)
        if reason is not None:
            outcome, notices = Outcome(verdict="skipped"), [reason]
            return 0
        place = place_of(environment, inputs.path)
        keep_keys_from_children(place.tree, inputs.model)
        measured = measured_on(event, inputs, place, environment, run)
        notices = measured.notices
        if measured.reports:
            document, more = joined(measured.reports)
            notices = [*notices, *more, *device_notices(document)]
            outcome = written(document, place.reports)
        elif measured.code == 0:
            outcome = Outcome(verdict="skipped")
        if measured.code not in ANSWERS:
            outcome = msgspec.structs.replace(outcome, verdict="error")
        return EXIT_CODES.get(measured.code, measured.code)
    except CudaL1Error as error:
        notices = [*notices, str(error)]
        raise
    finally:
        tell(output_lines(outcome), summary(headline(outcome), notices, document), environment)


def place_of(environment: Mapping[str, str], path: str) -> Place:
    """Return the job's folders; output is outside of the checkout, which the change controls."""
    workspace = Path(environment.get("GITHUB_WORKSPACE") or ".").resolve()
    own = Path(environment.get("RUNNER_TEMP") or workspace / ".cudal1-ci").resolve() / "cudal1-ci"
    reports = own / "report"
    reports.mkdir(parents=True, exist_ok=True)
    for old in reports.glob("*"):
        old.unlink()
    return Place(workspace / path, reports, own / "state")


def measured_on(
    event: Event, inputs: Inputs, place: Place, environment: Mapping[str, str], run: Runner
) -> Measured:
    """Run the verbs, one after the other: both measure on the same machine."""
    notices = []
    base = merge_base_of(place.tree, inputs.base, event)
    checked_out = head_sha(place.tree)
    if event.head_sha is not None and checked_out != event.head_sha:
        notices.append(
            f"What is checked out ({checked_out}) is not the head of the event "
            f"({event.head_sha}): the checkout needs "
            "`ref: ${{ github.event.pull_request.head.sha }}`."
        )
    code, reports = 0, []
    compared = base if inputs.compare else None
    introduces = base is not None and configuration_is_new(place.tree, base)
    if introduces:
        notices.append(INTRODUCED)
    known = scrubbed(environment, place.state)
    if compared is not None:
        file = place.reports / "compare.json"
        words = compare_words(inputs, compared, file, traces_of(environment, inputs))
        words += ["--config-from", "head", "--fail-on", "never"] if introduces else []
        code = run(
            words, cwd=place.tree, environment=known, limit_s=limit_s("budget", inputs.budget)
        )
        reports += found_in(file, code)
        notices += ended_badly("compare", code)
    if inputs.traces and not inputs.compare and not inputs.optimize:
        return recorded(inputs, place, environment, known, run)
    if inputs.optimize and code in ANSWERS:
        if base is not None and not introduces and configuration_changed(place.tree, base):
            notices.append(
                "No faster code was looked for: this change edits the configuration of cudal1-ci, "
                "and settings hold from the merge on."
            )
            return Measured(code, reports, notices)
        file = place.reports / "scan.json"
        words, limit = (
            scan_words(inputs, compared, file),
            limit_s("optimize_budget", inputs.optimize_budget),
        )
        keyed = known if introduces else with_model_keys(place, environment, run, limit)
        scanned = run(words, cwd=place.tree, environment=keyed, limit_s=limit)
        reports += found_in(file, scanned)
        notices += ended_badly("scan", scanned)
        # The step's result is whether the change is slower. Proposals are extra.
        code = scanned if compared is None and scanned not in ANSWERS else code
    return Measured(code, reports, notices)


def traces_of(environment: Mapping[str, str], inputs: Inputs) -> Path | None:
    """Return the folder of traces of an earlier commit, relative to the job's temporary files."""
    if not inputs.traces:
        return None
    folder = Path(environment.get("RUNNER_TEMP") or ".") / inputs.traces
    return folder if any(folder.glob("trace-*.jsonl")) else None


def recorded(
    inputs: Inputs,
    place: Place,
    environment: Mapping[str, str],
    known: Mapping[str, str],
    run: Runner,
) -> Measured:
    """Record the traces of this commit, for later pull requests, and measure nothing."""
    limit = seconds_of("budget", inputs.budget)
    words = ["trace", ".", "--python", inputs.python, "--timeout", f"{limit:g}"]
    code = run(words, cwd=place.tree, environment=known, limit_s=limit + GRACE_S)
    found = sorted((Path(known["CUDAL1_CI_STATE_DIR"]) / "traces").glob("trace-*.jsonl"))
    folder = Path(environment.get("RUNNER_TEMP") or ".") / str(inputs.traces)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in found:
        shutil.copy(file, folder)
    said = f"Recorded for later pull requests: {count_text(len(found), 'file')} of traces."
    # A project without a `trace` command has nothing to record.
    return Measured(0 if found or code == 2 else code, [], [said])


def merge_base_of(tree: Path, asked: str | None, event: Event) -> str | None:
    """Return the commit that the tree left its base at; None where nothing can be compared.

    Raises: DiscoveryError when the base is not here, as in a shallow clone.
    """
    base = asked or event.base_sha
    if base is None or base == EVERYTHING:
        return None
    if asked is None and event.name == "pull_request" and _is_merge_of(tree, event.head_sha):
        # GitHub's own merge of the two: the base's later commits are on both sides of this.
        base = "HEAD^1"
    return common_ancestor(tree, base)


def _is_merge_of(tree: Path, head: str | None) -> bool:
    parents = run_git(tree, "rev-list", "--parents", "--max-count=1", "HEAD").split()[1:]
    return len(parents) == 2 and parents[1] == head


def compare_words(inputs: Inputs, base: str, file: Path, traces: Path | None = None) -> list[str]:
    """Return `cudal1-ci compare` of the checked out tree with its merge base. `traces` holds what
    was recorded on an earlier commit.
    """
    return [
        *("compare", base, "--json", str(file), "--budget", inputs.budget),
        *("--fail-on", inputs.fail_on),
        *(("--traces", str(traces)) if traces is not None else ()),
        *shared_words(inputs),
    ]


def scan_words(inputs: Inputs, base: str | None, file: Path) -> list[str]:
    """Return `cudal1-ci scan` of what changed since the merge base, or of everything."""
    return [
        *("scan", "--json", str(file), "--budget", inputs.optimize_budget, "--fail-on", "never"),
        *(("--changed", base) if base else ()),
        *(("--model", inputs.model) if inputs.model else ()),
        *shared_words(inputs),
    ]


def shared_words(inputs: Inputs | SweepInputs) -> list[str]:
    """Return the options that all measuring verbs have."""
    words = ["--python", inputs.python]
    for name in ("device", "executor", "container_image"):
        value = getattr(inputs, name)
        if value:
            words += [f"--{name.replace('_', '-')}", value]
    for glob in inputs.include:
        words += ["--include", glob]
    return [*words, "--require-sandbox"] if inputs.require_sandbox else words


def limit_s(name: str, budget: str) -> float:
    """Return a limit a little above the verb's budget, after which a verb ends by itself."""
    return seconds_of(name, budget) + GRACE_S


def keep_keys_from_children(tree: Path, model: str | None) -> None:
    """Start this program again without the keys of models: all that runs here descends from it.
    The keys stay in a relay, which forwards to a URL of the workflow alone."""
    settings = None
    with contextlib.suppress(ConfigError):  # said where the settings are used
        settings = load_settings(tree, overrides={"model.model": model} if model else {})
    keep_model_keys_apart(settings)


def with_model_keys(
    place: Place, environment: Mapping[str, str], run: Runner, limit: float
) -> dict[str, str]:
    """Return the environment of a verb that calls models, with the keys of the models.

    A verb that would also run the project's tests gets no keys. The tests are first recorded
    without the keys.
    """
    without = scrubbed(environment, place.state)
    settings = load_settings(place.tree, overrides={})
    names = (settings.model.api_key_env, settings.opinion.api_key_env)
    if not any(environment.get(name) for name in names):
        return without
    traces = Path(without["CUDAL1_CI_STATE_DIR"]) / "traces"
    if settings.trace and not any(traces.glob("trace-*.jsonl")):
        run(["trace", "."], cwd=place.tree, environment=without, limit_s=limit)
        if not any(traces.glob("trace-*.jsonl")):
            return without
    return scrubbed(environment, place.state, keys=names)


def found_in(file: Path, code: int) -> list[Report]:
    """Return the report of a verb; empty where the verb failed before it wrote one."""
    return [read_report(file)] if code in (*ANSWERS, TIMED_OUT) and file.is_file() else []


def ended_badly(verb: str, code: int) -> list[str]:
    """Return what the summary's reader must know of a verb's end."""
    if code == 6:
        return [f"`{verb}` spent its budget: targets missing from the report were not measured."]
    if code == TIMED_OUT:
        return [f"`{verb}` did not end within its budget and was stopped; see the log."]
    if code not in ANSWERS:
        return [f"`{verb}` failed with exit code {code} (docs/exit-codes.md); see the log."]
    return []


def joined(reports: list[Report]) -> tuple[Report, list[str]]:
    """Return comparison and proposals as one report; the comparison alone where they do not fit."""
    try:
        return merge(reports), []
    except ReportError as error:
        return reports[0], [f"Proposals are not in the report: {error}"]


def written(document: Report, folder: Path) -> Outcome:
    """Write the report for the artifact, and remove the verbs' own files."""
    for part in folder.glob("*.json"):
        part.unlink()
    files = {}
    for form in ("json", "md", "sarif", "html"):
        files[f"report_{form}"] = folder / f"report.{form}"
        files[f"report_{form}"].write_text(render(document, form), encoding="utf-8")
    for name, text in best_patches(document).items():
        (folder / name).write_text(text, encoding="utf-8")
    return msgspec.structs.replace(outcome_of(document), **files)
