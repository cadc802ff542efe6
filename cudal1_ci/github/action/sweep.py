"""Search the whole repository until the budget ends (actions/sweep).

Writes a report, posts nothing. A sweep's state must be there at the next sweep, on this machine. It
is kept in the runner's cache of tools, which no job removes, or in the configured folder. The
project's own command whose calls are workloads (`trace`) is run again for another commit, because
an earlier recording does not call newer code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cudal1_ci.config import load_settings
from cudal1_ci.errors import ConfigError, CudaL1Error
from cudal1_ci.git import head_sha
from cudal1_ci.github.action.children import Runner, run_verb, scrubbed
from cudal1_ci.github.action.event import Event, read_event
from cudal1_ci.github.action.inputs import SweepInputs, sweep_inputs
from cudal1_ci.github.action.measure import (
    EXIT_CODES,
    Place,
    ended_badly,
    found_in,
    keep_keys_from_children,
    limit_s,
    place_of,
    shared_words,
    with_model_keys,
    written,
)
from cudal1_ci.github.action.outcome import Outcome, device_notices, summary, tell
from cudal1_ci.records import Report, content_hash
from cudal1_ci.render.wording import count_text

EVENTS = ("push", "repository_dispatch", "schedule", "workflow_dispatch")
"""Events whose code is the repository's own."""
TRACED_AT = "traced-at"
"""File of the state with the commit at which calls were recorded."""


def sweep(environment: Mapping[str, str], run: Runner = run_verb) -> int:
    """Sweep this checkout once; return the exit code of the step."""
    outcome, notices, document = Outcome(verdict="error"), list[str](), None
    try:
        inputs, event = sweep_inputs(environment), read_event(environment)
        refuse_pull_requests(event)
        place = place_of(environment, inputs.path)
        keep_keys_from_children(place.tree, inputs.model)
        place = place._replace(state=state_of(environment, place, event.repository, inputs.path))
        code, reports = swept(inputs, place, environment, run)
        notices = ended_badly("sweep", code)
        if reports:
            (document,) = reports
            notices = [*notices, *device_notices(document)]
            outcome = written(document, place.reports)
        return EXIT_CODES.get(code, code)
    except CudaL1Error as error:
        notices = [*notices, str(error)]
        raise
    finally:
        text = summary(headline(document), notices, document)
        tell(sweep_lines(outcome, document), text, environment)


def refuse_pull_requests(event: Event) -> None:
    """Raise ConfigError for an event whose code may be anyone's."""
    if event.name not in EVENTS or event.number is not None:
        raise ConfigError(
            f"sweep: expected one of the events {', '.join(EVENTS)}, got {event.name}; pull "
            "requests are measured by the action at the top of the repository"
        )


def state_of(environment: Mapping[str, str], place: Place, repository: str, path: str) -> Path:
    """Return where this project's sweeps keep their state."""
    settings = load_settings(place.tree, overrides={}, environ=environment)
    (origin,) = (origin for key, _, origin in settings.origins() if key == "state-dir")
    if origin != "default":
        return place.tree / settings.state_dir
    name = re.sub(r"[^\w.-]", "-", repository) + f"-{content_hash((repository, path))[:8]}"
    cache = environment.get("RUNNER_TOOL_CACHE")
    folder = Path(cache) / "cudal1-ci" / "state" / name if cache else place.state
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return place.state  # for this job alone
    return folder


def swept(
    inputs: SweepInputs, place: Place, environment: Mapping[str, str], run: Runner
) -> tuple[int, list[Report]]:
    """Record calls where that is due, and sweep."""
    limit = limit_s("budget", inputs.budget)
    child = {**environment, "CUDAL1_CI_STATE_DIR": str(place.state)}
    if load_settings(place.tree, overrides={}, environ=child).trace:
        record(place, child, run, limit)
    file = place.reports / "sweep.json"
    words = ["sweep", "--json", str(file), "--budget", inputs.budget, "--fail-on", "never"]
    words += ["--model", inputs.model] if inputs.model else []
    code = run(
        [*words, *shared_words(inputs)],
        cwd=place.tree,
        environment=with_model_keys(place, child, run, limit),
        limit_s=limit,
    )
    return code, found_in(file, code)


def record(place: Place, environment: Mapping[str, str], run: Runner, limit: float) -> None:
    """Run the project's `trace` command, without any key, unless this commit was recorded."""
    sha, noted = head_sha(place.tree) or "", place.state / TRACED_AT
    if noted.is_file() and noted.read_text(encoding="utf-8") == sha:
        return
    known = scrubbed(environment, place.state)
    code = run(["trace", "."], cwd=place.tree, environment=known, limit_s=limit)
    if code in (0, 1):
        noted.parent.mkdir(parents=True, exist_ok=True)
        noted.write_text(sha, encoding="utf-8")


def sweep_lines(outcome: Outcome, document: Report | None) -> dict[str, str]:
    """Return the outputs by name."""
    speedup = outcome.best_speedup
    return {
        "proposals": str(outcome.proposals),
        "best-speedup": "" if speedup is None else f"{speedup:.3g}",
        "complete": str(document is not None and document.ended == "done").lower(),
        "report-json": str(outcome.report_json or ""),
        "report-md": str(outcome.report_md or ""),
    }


def headline(document: Report | None) -> str:
    """Return the first line of the summary."""
    if document is None:
        return "**cudal1-ci sweep: nothing was measured; see the log**"
    totals = document.totals
    known = f"{totals.num_judged} of {count_text(totals.num_targets, 'target')} measured"
    return f"**cudal1-ci sweep: {count_text(totals.num_proposals, 'faster version')}, {known}**"
