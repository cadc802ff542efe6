"""Render a report as SARIF 2.1.0, for code scanning: a result for each proposal, with its fix.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0, sections 3.27 (result) and 3.55
(fix). One rule, because consumers group by rule and what they would show is the same: this code
can be faster. The technique is a tag of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import Any
from urllib.parse import quote

import msgspec

from cudal1_ci import __version__
from cudal1_ci.records import Entry, Report, Target
from cudal1_ci.render.digest import Proposal, digest
from cudal1_ci.render.hunks import Hunk, files_of
from cudal1_ci.render.markup import cleaned
from cudal1_ci.render.wording import device_text, speedup_text, technique_text

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
BASE = "SRCROOT"
"""Paths are relative to the top of the repository, as code scanning reads them."""
FASTER_RULE: dict[str, Any] = {
    "id": "faster-version",
    "name": "FasterVersion",
    "shortDescription": {"text": "A faster version of this code was proven."},
    "fullDescription": {
        "text": "A rewrite computed the same on every input that was tried and was faster in "
        "paired measurements."
    },
    "help": {
        "text": "Apply the fix of the result, or the patch of the report, and run your tests. The "
        "message has the speedup with its interval and the device it was measured on.",
    },
    "defaultConfiguration": {"level": "note"},
    "properties": {"tags": ["performance"]},
}
SKIPPED_RULE: dict[str, Any] = {
    "id": "not-judged",
    "name": "NotMeasured",
    "shortDescription": {"text": "This code could not be measured."},
    "help": {
        "text": "Declare a workload, or record one with `cudal1-ci trace`; the message has the "
        "reason.",
    },
    "defaultConfiguration": {"level": "note"},
    "properties": {"tags": ["performance"]},
}


def render_sarif(document: Report, *, skipped: bool = False) -> str:
    """Render the log; with `skipped`, include what could not be verified."""
    folder = "" if document.folder == "." else f"{document.folder.strip('/')}/"
    results = [_proposed(proposal, folder) for proposal in digest(document).proposals]
    rules: list[dict[str, Any]] = [FASTER_RULE]
    if skipped:
        rules.append(SKIPPED_RULE)
        skips = [(e, e.skipped) for e in document.entries if e.skipped is not None]
        results += [_skipped(entry, reason, folder) for entry, reason in skips]
    driver = {"name": "cudal1-ci", "semanticVersion": __version__}
    docs = documentation()
    if docs:
        driver["informationUri"] = docs
        rules = [rule | {"helpUri": f"{docs}/report.md"} for rule in rules]
    run = {
        "tool": {"driver": driver | {"rules": rules}},
        "originalUriBaseIds": {BASE: {"description": {"text": "The top of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "invocations": [{"executionSuccessful": document.ended == "done"}],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode() + "\n"


def documentation() -> str | None:
    """Return the address of the documentation; None before a release has one."""
    try:
        urls = metadata.metadata("cudal1-ci").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    by_name = dict(one.split(", ", 1) for one in urls)
    found = by_name.get("Documentation")
    return None if found is None or "/OWNER/" in found else found


def _proposed(proposal: Proposal, folder: str) -> dict[str, Any]:
    evaluation, target = proposal.evaluation, proposal.entry.target
    candidate = evaluation.candidate
    technique = technique_text(evaluation)
    gains = "; ".join(
        f"{speedup_text(m)} on {device_text(m.device)} with workload {m.workload}"
        for m in evaluation.measurements
    )
    text = f"{target.qualname} can be faster by {technique}: {gains}."
    result: dict[str, Any] = {
        "ruleId": FASTER_RULE["id"],
        "ruleIndex": 0,
        "level": "note",
        "message": _message(f"{text} {candidate.analysis}".strip()),
        "locations": [_location(target, folder)],
        "partialFingerprints": {"candidate/v1": candidate.id},
        "properties": {
            "tags": list(dict.fromkeys(candidate.techniques)),
            "measurements": [
                {
                    "workload": m.workload,
                    "baseline": m.baseline,
                    "speedup": m.speedup,
                    "speedup_low": m.speedup_low,
                    "speedup_high": m.speedup_high,
                    "device": device_text(m.device),
                }
                for m in evaluation.measurements
            ],
        },
    }
    if candidate.patch:
        result["fixes"] = [_fix(candidate.patch, technique, folder)]
    return result


def _message(text: str) -> dict[str, str]:
    """Return a message that links to nothing: a viewer makes a link of `[text](address)` (3.11.6),
    and words of a report may come from a pull request or a model."""
    return {"text": cleaned(text).replace("](", "\\](")}


def _skipped(entry: Entry, reason: str, folder: str) -> dict[str, Any]:
    hint = f" To fix: {entry.hint}" if entry.hint else ""
    return {
        "ruleId": SKIPPED_RULE["id"],
        "ruleIndex": 1,
        "level": "note",
        "message": _message(f"{entry.target.qualname} was not measured: {reason}{hint}"),
        "locations": [_location(entry.target, folder)],
    }


def _location(target: Target, folder: str) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": _artifact(folder + target.path),
            "region": {"startLine": target.first_line, "endLine": target.last_line},
        },
        "logicalLocations": [{"fullyQualifiedName": target.qualname}],
    }


def _artifact(path: str) -> dict[str, Any]:
    return {"uri": quote(path), "uriBaseId": BASE}


def _fix(patch: str, technique: str, folder: str) -> dict[str, Any]:
    return {
        "description": {"text": technique},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(folder + file.path),
                "replacements": [r for hunk in file.hunks for r in _replacements(hunk)],
            }
            for file in files_of(patch)
        ],
    }


def _replacements(hunk: Hunk) -> Iterator[dict[str, Any]]:
    """Yield one replacement for each run of changed lines, in lines of the old file."""
    next_line = hunk.old_start + (0 if hunk.old_length else 1)
    removed: list[str] = []
    added: list[str] = []
    for line in (*hunk.lines, None):
        if line is not None and line.mark == "-":
            removed.append(line.text)
        elif line is not None and line.mark == "+":
            added.append(line.text)
        else:
            if removed or added:
                yield _replacement(next_line, removed, added)
            next_line += len(removed) + 1
            removed, added = [], []


def _replacement(first_line: int, removed: list[str], added: list[str]) -> dict[str, Any]:
    """Return a replacement of whole lines with their ends. The last line of a file may
    have no end.
    """
    region = {"startLine": first_line, "startColumn": 1, "endLine": first_line, "endColumn": 1}
    if removed and removed[-1].endswith("\n"):
        region["endLine"] = first_line + len(removed)
    elif removed:
        region["endLine"] = first_line + len(removed) - 1
        region["endColumn"] = len(removed[-1]) + 1
    replacement: dict[str, Any] = {"deletedRegion": region}
    if added:
        replacement["insertedContent"] = {"text": "".join(added)}
    return replacement
