"""Give the comment's template its values and the sandbox that it runs in.

Nothing of a report reaches a comment unescaped or uncut, in blocks of a user's own neither:
`_finalize` sees each expression. Addresses and commits come from the event; those that are none
are not shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec
from jinja2 import FileSystemLoader, StrictUndefined, Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Comparison, Device, Entry, Record, Report, Target
from cudal1_ci.render.changes import (
    CHANGE_FILTERS,
    VERDICT_WORDS,
    Change,
    Changes,
    changes,
    headline,
    icon_counts_text,
    spread_of,
)
from cudal1_ci.render.digest import SkippedGroup, digest, grouped
from cudal1_ci.render.impact import IMPACT_FILTERS, headlines
from cudal1_ci.render.markup import Markdown, code, escaped, fenced, html_text, inline, quoted
from cudal1_ci.render.model_use import CONTRADICTED_WORDS, MODEL_WORDS
from cudal1_ci.render.other_uses import EXPLANATION, OTHER_USES_FILTERS, other_uses
from cudal1_ci.render.patch import patch_name
from cudal1_ci.render.source_link import SHA, source_link
from cudal1_ci.render.templates import templates_folder
from cudal1_ci.render.wording import ENDED_WORDS, FILTERS, KIND_WORDS, device_text
from cudal1_ci.stats.gate import (
    STATES,
    Finding,
    Judgement,
    Policy,
    judged,
    states_of_comparison,
)

MAX_DEVICES = 8
"""Columns; more do not fit next to each other."""
MAX_NAMED = 10
"""Any list that may be long, except targets: acknowledgements, findings, inputs."""
MAX_TEXT = 300
"""Characters of any one text that a report says."""
MAX_NAME = 120
MAX_ANALYSIS = 1500
MAX_PATCH = 20_000
"""Characters of a diff that is read in a comment; a longer one is applied unread or not at all."""
CONCLUSION_ICONS = {
    "failure": "\N{CROSS MARK}",
    "neutral": "\N{WARNING SIGN}\N{VARIATION SELECTOR-16}",
    "success": "\N{WHITE HEAVY CHECK MARK}",
}
BASELINE_WORDS = {"eager": "head", "compile": "torch.compile"}
CHECKED_WORDS = Markdown(
    "the same structure, shapes, dtypes and device; the same values, to within 8 times the "
    "reference's own error against float64 or the rounding of the dtype, on fresh inputs of many "
    "kinds and in every timed call; inputs, parameters, buffers and the process left as the "
    "original leaves them; weights that are loaded later are used; timed by a clock in another "
    "process"
)
"""What a candidate that passed has passed (docs/verifier.md)."""
URL = re.compile(r"https?://[\w.~:/?#@!$&*+,;=%-]+", re.ASCII)
NUM_SHA_DIGITS = 10


class Check(Record, frozen=True, kw_only=True):
    """Hold what the check of a project concludes, and by which policy."""

    name: str
    judgement: Judgement
    policy: Policy


class About(Record, frozen=True, kw_only=True):
    """Hold what a report does not know of itself; the event gives it, not a file."""

    repository_url: str | None = None
    run_url: str | None = None
    artifact_url: str | None = None
    head_sha: str | None = None
    base_sha: str | None = None
    policy: Policy = Policy()
    missing: tuple[Finding, ...] = ()
    """Machines and projects that have left no report."""
    checks: tuple[Check, ...] = ()
    """One for each project; empty where the report is that of the only one."""
    has_check: bool = True
    """Whether there is a check to say something of; an extra report on request has none."""
    commands: bool = False
    """Whether comments are answered in this repository (docs/commands.md)."""


def told_of(document: Report, about: About) -> dict[str, Any]:
    """Return the values that a template can use."""
    found = changes(document)
    sorted_out = digest(document)
    proposals = sorted_out.proposals
    judgement = judged(document, about.policy, about.missing)
    alone = Check(name="cudal1-ci", judgement=judgement, policy=about.policy)
    checks = about.checks or (alone,)
    return {
        "document": document,
        "about": about,
        "at": partial(_at, about, document),
        "base_sha": _sha(about.base_sha or document.base_sha),
        "head_sha": _sha(about.head_sha or document.head_sha),
        "changes": found,
        "columns": found.devices[:MAX_DEVICES],
        "proposals": proposals,
        "impact": headlines(document),
        "headline": headline(found, len(proposals), sorted_out.is_search, about.missing),
        "checks": checks,
        "gate": [row for each in checks for row in gate_rows(each.judgement, each.policy)],
        "counts": icon_counts_text(found),
        "devices": tuple(
            dict.fromkeys(device_text(device)[:MAX_NAME] for device in document.devices)
        ),
        "other_uses": other_uses(found),
        "changed_outputs": [c for c in found.all if c.comparison.output_change],
        "acknowledged": [c for c in found.all if is_agreed(c.comparison)],
        "not_measured": _not_measured(document),
        "helpers": found.helpers,
        "noise": [_noise(document, device) for device in document.devices[:MAX_DEVICES]],
        "ended": ENDED_WORDS.get(document.ended),
        "policy_text": policy_text(about.policy),
    }


def policy_text(policy: Policy) -> str:
    """Say what fails the check."""
    fails = {
        "got slower": policy.conclusion_of("slower"),
        "may have got slower": policy.on_inconclusive,
        "was not measured": policy.on_missing,
        "no longer works in a use that worked": policy.conclusion_of("broken"),
    }
    said = [words for words, conclusion in fails.items() if conclusion == "failure"]
    if not said:
        return "Advisory: nothing here fails the check."
    *most, last = said
    joined = f"{', '.join(most)} or {last}" if most else last
    return f"The check fails if a target {joined}, unless that was acknowledged."


def is_agreed(comparison: Comparison) -> bool:
    """Return whether somebody has agreed to what a comparison says."""
    return "agreed" in states_of_comparison(comparison)


@dataclass(frozen=True, kw_only=True)
class GateRow:
    """Hold all findings of one state, and what the check concludes of them."""

    state: str
    meaning: str
    icon: str
    conclusion: str
    findings: tuple[Finding, ...]


def gate_rows(judgement: Judgement, policy: Policy) -> tuple[GateRow, ...]:
    """Group what is not fine by its state, in the order of the states."""
    rows = []
    for state, (_, meaning) in STATES.items():
        if findings := tuple(one for one in judgement.findings if one.state == state):
            conclusion = policy.conclusion_of(state)
            rows.append(
                GateRow(
                    state=state.replace("_", " "),
                    meaning=meaning,
                    icon=CONCLUSION_ICONS[conclusion],
                    conclusion=conclusion,
                    findings=findings,
                )
            )
    return tuple(rows)


def _at(about: About, document: Report, target: Target) -> str | None:
    """Return the address of the lines of a target in the head."""
    if len(target.path) > MAX_TEXT:
        return None
    sha = about.head_sha or document.head_sha
    lines = target.first_line, target.last_line
    return source_link(about.repository_url, sha, document.folder, target.path, *lines)


def _sha(sha: str | None) -> str | None:
    """Return the digits of a commit's hash that identify it; None where it is no hash."""
    return sha[:NUM_SHA_DIGITS] if sha and SHA.fullmatch(sha) else None


def _not_measured(document: Report) -> tuple[SkippedGroup, ...]:
    """Group targets by the reason for which their speed is not known."""
    entries = []
    for entry in document.entries:
        reason = _reason(entry)
        if reason is not None:
            entries.append(msgspec.structs.replace(entry, skipped=reason[: 2 * MAX_TEXT]))
    return grouped(entries)


def _reason(entry: Entry) -> str | None:
    if entry.comparison is None:
        return entry.skipped
    if entry.comparison.verdict == "skipped" and not entry.comparison.within:
        return entry.comparison.reason or entry.skipped or ""
    return None


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A device, and what it showed of the base or the reference against itself."""

    device: Device
    spread: float | None


def _noise(document: Report, device: Device) -> Noise:
    name = device_text(device)
    rows = (row for e in document.entries if e.comparison for row in e.comparison.rows)
    spreads = [spread_of(rows, name)] + [
        m.control_spread
        for entry in document.entries
        for evaluation in entry.evaluations
        for m in evaluation.measurements
        if device_text(m.device) == name
    ]
    return Noise(device=device, spread=max((s for s in spreads if s is not None), default=None))


def _table_rows(found: Changes, num_rows: int) -> list[Change]:
    """Return the rows of the table: the worst of each verdict."""
    verdicts = dict.fromkeys(change.comparison.verdict for change in found.measured)
    return [change for verdict in verdicts for change in found.of(verdict)[:num_rows]]


def _cut_short(found: Changes, num_rows: int) -> list[str]:
    """Return `10 of 34 that stayed the same` for each verdict whose rows are not all shown."""
    words = {
        "regression": "that got slower",
        "improvement": "that got faster",
        "same": "that stayed the same",
        "inconclusive": "that are inconclusive",
    }
    return [
        f"{num_rows} of {found.count(verdict)} {word}"
        for verdict, word in words.items()
        if found.count(verdict) > num_rows
    ]


# --- templates -------------------------------------------------------------------------------


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(templates_folder()),
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # What macros and `super()` give is known by it as written already; `_finalize` escapes.
        autoescape=True,
    )
    for name in ("safe", "urlize", "xmlattr", "tojson", "forceescape", "escape", "e"):
        del environment.filters[name]
    environment.filters.update(FILTERS)
    environment.filters.update(
        CHANGE_FILTERS | OTHER_USES_FILTERS,
        **IMPACT_FILTERS,
        code=partial(code, max_chars=MAX_NAME),
        is_agreed=is_agreed,
        long_code=partial(code, max_chars=MAX_TEXT),
        cut_short=_cut_short,
        fenced=fenced,
        html_text=partial(html_text, max_chars=MAX_NAME),
        indented=_indented,
        inline=partial(inline, max_chars=MAX_TEXT),
        link=_link,
        name=partial(escaped, max_chars=MAX_NAME),
        patch_name=patch_name,
        quoted=partial(quoted, max_chars=MAX_ANALYSIS),
        shown=_table_rows,
        unbroken=_unbroken,
    )
    environment.globals.update(
        baseline_words=BASELINE_WORDS,
        checked_words=CHECKED_WORDS,
        contradicted_words=CONTRADICTED_WORDS,
        other_uses_words=EXPLANATION,
        kind_words=KIND_WORDS,
        conclusion_icons=CONCLUSION_ICONS,
        max_named=MAX_NAMED,
        max_patch=MAX_PATCH,
        model_words=MODEL_WORDS,
        words=VERDICT_WORDS,
    )
    return environment


def template_of(own: str | None) -> Template:
    """Return the default template, or one made from a user's text.

    Raises:
        ReportError: It is no template.
    """
    if own is None:
        return _environment().get_template("comment.md.j2")
    try:
        return _environment().from_string(own)
    except TemplateError as error:
        raise ReportError(f"the template of the comment cannot be read: {error}") from error


def named_template(name: str) -> Template:
    """Return another of our templates, in the same sandbox as the comment's."""
    return _environment().get_template(name)


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markdown | Markup) else escaped(value, MAX_TEXT)


def _unbroken(text: str) -> Markdown:
    """Keep a number with its unit, or a ratio with its interval, on one line of a table."""
    return Markdown(escaped(text, MAX_NAME).replace(" ", "&nbsp;"))


def _indented(written: object) -> Markdown:
    """Indent Markdown as part of a list item; escape anything else."""
    written = written if isinstance(written, Markdown | Markup) else escaped(written)
    lines = str(written).strip("\n").split("\n")
    return Markdown("\n".join(f"  {line}" if line else "" for line in lines))


def _link(text: object, url: str | None) -> Markdown:
    """Link text to one of our addresses; return the text alone where the address is invalid."""
    shown = text if isinstance(text, Markdown) else escaped(text)
    return Markdown(f"[{shown}]({url})") if url and URL.fullmatch(url) else shown
