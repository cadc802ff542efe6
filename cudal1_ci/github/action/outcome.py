"""Build the workflow's outputs, the step's summary and notices; write them at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from cudal1_ci.records import ComparisonVerdict, Report
from cudal1_ci.render import render
from cudal1_ci.render.digest import worth
from cudal1_ci.render.wording import count_text
from cudal1_ci.stats.gate import is_acknowledged, is_missing
from cudal1_ci.stats.regression import worst

Verdict = Literal[
    "regression", "inconclusive", "improvement", "pass", "incomplete", "skipped", "error"
]

VERDICTS: dict[ComparisonVerdict, Verdict] = {
    "regression": "regression",
    "inconclusive": "inconclusive",
    "improvement": "improvement",
    "same": "pass",
}
"""Of the worst target; where all are new, removed or skipped, nothing was compared."""

# A summary of more than 1 MiB is dropped as a whole; other steps of the job have their own.
MAX_SUMMARY_BYTES = 1_000_000
CUT = "\n_The rest is in report.md: a summary may have 1 MiB._\n"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the outputs of action.yml."""

    verdict: Verdict
    regressions: int = 0
    improvements: int = 0
    inconclusive: int = 0
    proposals: int = 0
    best_speedup: float | None = None
    """Of the best proposal: the geometric mean over its workloads of what is certain at least."""
    report_json: Path | None = None
    report_md: Path | None = None
    report_sarif: Path | None = None
    report_html: Path | None = None


def outcome_of(document: Report) -> Outcome:
    """Return a report's counts and its verdict: that of its worst target, never a mean.

    An acknowledged regression does not count. What was not measured makes a good verdict
    `incomplete`.
    """
    compared = [entry.comparison for entry in document.entries if entry.comparison is not None]
    found = ["same" if is_acknowledged(one) else one.verdict for one in compared]
    verdict = VERDICTS.get(worst(found), "skipped")
    if verdict in ("pass", "improvement") and any(map(is_missing, compared)):
        verdict = "incomplete"
    best = [entry.evaluations[entry.best] for entry in document.entries if entry.best is not None]
    return Outcome(
        verdict=verdict,
        regressions=found.count("regression"),
        improvements=found.count("improvement"),
        inconclusive=found.count("inconclusive"),
        proposals=len(best),
        best_speedup=max(map(worth, best), default=None),
    )


def output_lines(outcome: Outcome) -> dict[str, str]:
    """Return the outputs by name, as text; an absent one is empty."""
    speedup = outcome.best_speedup
    return {
        "verdict": outcome.verdict,
        "regressions": str(outcome.regressions),
        "improvements": str(outcome.improvements),
        "inconclusive": str(outcome.inconclusive),
        "proposals": str(outcome.proposals),
        "best-speedup": "" if speedup is None else f"{speedup:.3g}",
        "report-json": str(outcome.report_json or ""),
        "report-md": str(outcome.report_md or ""),
        "report-sarif": str(outcome.report_sarif or ""),
        "report-html": str(outcome.report_html or ""),
    }


def headline(outcome: Outcome) -> str:
    """Return the verdict in words, for the first line of the summary."""
    match outcome.verdict:
        case "regression":
            said = f"{count_text(outcome.regressions, 'target')} got slower"
        case "inconclusive":
            said = f"{count_text(outcome.inconclusive, 'target')} inconclusive"
        case "improvement":
            said = f"{count_text(outcome.improvements, 'target')} got faster, none slower"
        case "pass":
            said = "nothing got slower"
        case "incomplete":
            said = "no measured target got slower; some were not measured"
        case "skipped":
            said = "nothing was compared"
        case "error":
            said = "nothing could be measured; see the log"
    if outcome.proposals:
        said += f"; {count_text(outcome.proposals, 'faster version')} proven"
    return f"**cudal1-ci: {said}**"


def device_notices(document: Report) -> list[str]:
    """Return what a reader must know of the machine to interpret the numbers."""
    if document.devices and all(device.kind == "cpu" for device in document.devices):
        return ["Times are CPU times: no GPU was used. They do not predict a GPU's."]
    return []


def summary(headline: str, notices: Iterable[str], document: Report | None) -> str:
    """Return the Markdown of the step's summary."""
    parts = [headline, *(f"> {notice}" for notice in notices)]
    if document is not None:
        parts.append(render(document, "md"))
    return limited("\n\n".join(parts) + "\n")


def limited(text: str) -> str:
    """Cut a text that is too long for a summary after a whole line."""
    encoded = text.encode()
    if len(encoded) <= MAX_SUMMARY_BYTES:
        return text
    kept = encoded[: MAX_SUMMARY_BYTES - len(CUT.encode())].rpartition(b"\n")[0]
    return kept.decode() + "\n" + CUT


def tell(lines: Mapping[str, str], text: str, environment: Mapping[str, str]) -> None:
    """Append outputs and summary to the files that the runner reads."""
    _append(environment.get("GITHUB_STEP_SUMMARY"), text)
    # One line each: a name or a path with a line feed in it would be another output.
    _append(
        environment.get("GITHUB_OUTPUT"),
        "".join(f"{name}={' '.join(value.splitlines())}\n" for name, value in lines.items()),
    )


def _append(file: str | None, text: str) -> None:
    if file:
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(text)
