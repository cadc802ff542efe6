"""Print a report on a terminal, a log or a pipe.

Knows rich; writes to the Console it is given and colors only where that is a terminal. On a narrow
one the tables become lists, because a table with columns of six letters cannot be read.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from cudal1_ci.records import (
    ComparedWorkload,
    ContractCheck,
    Entry,
    Evaluation,
    Explanation,
    Listing,
    Measurement,
    Notice,
    Report,
    Target,
    Understanding,
    Workload,
)
from cudal1_ci.records.call_text import call_text
from cudal1_ci.render.changes import BY_CALLERS, VERDICT_WORDS, Change, Changes, headline, row_text
from cudal1_ci.render.columns import is_narrow, print_heading, print_line, table_of, target_width
from cudal1_ci.render.digest import (
    SUSPECTED_WORDS,
    Digest,
    Proposal,
    Suspected,
    digest,
    has_several_devices,
    nothing_text,
    summary,
    uncallable,
)
from cudal1_ci.render.impact import headlines, least_text, parts_text, together_lines
from cudal1_ci.render.log_tail import log_tail
from cudal1_ci.render.model_use import (
    CONTRADICTED_WORDS,
    MODEL_WORDS,
    attempts_rows,
    model_text,
    opinion_text,
)
from cudal1_ci.render.other_uses import (
    EXPLANATION,
    UNBROKEN,
    OtherUses,
    changed_lines,
    examined_text,
    other_uses,
)
from cudal1_ci.render.wording import (
    ENDED_WORDS,
    KIND_WORDS,
    NOT_MEASURED,
    acceptance_text,
    bytes_text,
    class_text,
    contract_lines,
    contract_text,
    count_text,
    device_text,
    error_long,
    kernels_text,
    line_text,
    near_miss_text,
    not_tried_text,
    one_line,
    percent_text,
    speedup_text,
    step_text,
    target_text,
    technique_text,
    time_text,
    understanding_text,
)

PIPE_WIDTH = 120
"""Columns where there is no terminal to ask."""
STYLES = {"faster": "green", "slower": "red", "unclear": ""}
CHANGE_STYLES = {"regression": "red", "improvement": "green", "inconclusive": "yellow"}
MAX_NAMED = 12
"""Targets named for one reason of skipping; JSON and HTML have them all."""


def console_on(stream: TextIO) -> Console:
    """Return a console as wide as its terminal, or a fixed width for a stream that is read
    later.
    """
    return Console(file=stream, width=None if stream.isatty() else PIPE_WIDTH)


def render_text(document: Report | Listing, width: int = PIPE_WIDTH, *, why: bool = False) -> str:
    """Render the report as plain text without color; `why` is `print_report`'s."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, color_system=None, force_terminal=False)
    if isinstance(document, Listing):
        print_listing(document, console)
    else:
        print_report(document, console, why=why)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def print_report(
    document: Report, console: Console, *, patches: bool = False, why: bool = False
) -> None:
    """Print the whole report; with `patches`, the diff of each proposal too, and with `why`, what
    was not tried or nearly proposed."""
    found = digest(document)
    nothing = nothing_text(document)
    for first in headlines(document):
        print_line(console, first.text, f"bold {STYLES[first.direction]}".strip())
    if nothing:
        print_line(console, nothing, "bold")
    elif not found.is_search:
        said = headline(found.changes, 0, is_search=False)
        print_line(console, f"{said[:1].upper()}{said[1:]}.", "bold")
    print_line(console, summary(document), "bold")
    if used := model_text(document):
        print_line(console, used)
    if asked := opinion_text(document):
        print_line(console, asked)
    if document.ended != "done":
        print_line(console, ENDED_WORDS[document.ended], "yellow")
    _print_changes(found.changes, console)
    _print_other_uses(other_uses(found.changes), console)
    if found.is_search and not nothing:
        _print_proposals(document, found, console)
    if patches:
        for proposal in found.proposals:
            _print_patch(proposal, console)
    _print_suspected(found.suspected, console)
    _print_degenerate(found.degenerate, console)
    _print_unimproved(found.unimproved, has_several_devices(document), console)
    _print_skipped(found, console)
    if why:
        _print_why(document.entries, console)
    _print_notices(document.warnings, console)


def print_verification(document: Evaluation, *, title: str, console: Console | None = None) -> None:
    """Print the verdict on one candidate."""
    console = console or console_on(sys.stdout)
    style = "green" if document.status == "passed" else "red"
    console.print(Text.assemble((f"{title}: ", "bold"), (document.status, style)))
    for finding in document.findings:
        is_said = f":{finding.line}:" in finding.message
        place = f" (line {finding.line})" if finding.line and not is_said else ""
        print_line(console, f"{finding.rule}: {finding.message}{place}", indent=2)
        if finding.evidence:
            console.print(Padding(Text(finding.evidence, style="dim"), (0, 0, 0, 4), expand=False))
    if document.status == "passed":
        print_line(console, f"largest error: {error_long(document)}", indent=2)
    elif document.verdict.log:
        tail = log_tail(document.verdict.log)
        is_said = len(tail) == 1 and any(tail[0] in one.message for one in document.findings)
        for line in () if is_said else tail:
            print_line(console, line, "dim", indent=2)
    for measurement in document.measurements:
        print_line(
            console,
            _measurement_text(measurement, device_text(measurement.device)),
            "bold",
            indent=2,
        )
    if document.kernels:
        print_line(console, kernels_text(document.kernels), indent=2)
    if document.contract is not None:
        print_contract(document.contract, console)


def print_contract(checks: Sequence[ContractCheck], console: Console) -> None:
    """Print the lines of a contract, those that are broken first."""
    is_broken = any(one.result == "broken" for one in checks)
    style = "bold red" if is_broken else "bold"
    print_line(console, f"Contract: {contract_text(checks)}", style, indent=2)
    for line in contract_lines(checks):
        style = "red" if line.startswith("broken") else "dim"
        print_line(console, line, style, indent=4)


def print_explanation(document: Explanation, console: Console | None = None) -> None:
    """Print what one recorded call of a target showed."""
    console = console or console_on(sys.stdout)
    print_line(console, target_text(document.target), "bold")
    print_line(console, f"{_called(document.workload)} on {device_text(document.device)}", indent=2)
    understanding = document.understanding
    if understanding is None:
        print_line(console, f"not recorded: {one_line(document.reason or '')}", "yellow", indent=2)
    else:
        print_line(console, class_text(understanding), "bold", indent=2)
        console.print(
            Padding(_expressions_table(understanding, document.target), (0, 0, 0, 2), expand=False)
        )
    for name, proposals in document.proposals.items():
        print_line(console, f"{name}: {', '.join(proposals) or 'nothing matches'}", indent=2)
    _print_lines("Nearly matched:", map(near_miss_text, document.near_misses), console)
    _print_lines("Failed:", document.warnings, console)


def _expressions_table(understanding: Understanding, target: Target) -> Table:
    trains = any(one.backward_us is not None for one in understanding.operations)
    backward = ["backward"] if trains else []
    waits = ["waits"] if understanding.num_syncs else []
    some = ("calls", "time", "share", *backward, "moved", *waits)
    table = table_of(*some, "operation", "where", "expression")
    for number in range(len(some)):
        table.columns[number].no_wrap = True
    for one in understanding.operations:
        time_us = one.host_us if one.device_us is None else one.device_us
        line = "" if one.path == target.path else f"{one.path}:"
        where = f"{line or 'line '}{one.line}" if one.line else "elsewhere"
        cells = [
            str(one.num_calls),
            time_text(time_us),
            percent_text(one.share),
            *(time_text(one.backward_us) for _ in backward),
            bytes_text(one.num_bytes),
            *(str(one.num_syncs or "") for _ in waits),
            one.name,
            where,
            "\n".join(filter(None, (one.code, one.launch))),
        ]
        table.add_row(*map(Text, cells))
    return table


def print_listing(document: Listing, console: Console) -> None:
    """Print what discovery found, and how each target can be called."""
    callable_ = [entry for entry in document.entries if entry.workloads]
    print_line(
        console,
        f"{count_text(len(document.entries), 'target')}, {len(callable_)} with a workload",
        "bold",
    )
    names = [target_text(entry.target) for entry in callable_]
    is_list = is_narrow(console, names)
    table = table_of("target", "kind", "workloads")
    table.columns[0].width = target_width(names, console.width // 2)
    for entry, name in zip(callable_, names, strict=True):
        kind, how = (
            KIND_WORDS[entry.target.kind],
            [f"{_called(w)} {call_text(w.call)}" for w in entry.workloads],
        )
        if is_list:
            print_line(console, f"{name} ({kind})", indent=2)
            for line in how:
                print_line(console, line, indent=5)
        else:
            table.add_row(Text(name), kind, Text("\n".join(how)))
    if callable_ and not is_list:
        console.print(table)
    _print_uncallable(document, console)
    _print_notices(document.warnings, console)


def _print_uncallable(document: Listing, console: Console) -> None:
    """Print targets that cannot be called, by remedy: a checkout without a trace has hundreds."""
    groups = uncallable(document)
    if not groups:
        return
    print_heading(console, f"Without a workload ({sum(len(group.entries) for group in groups)})")
    for group in groups:
        print_line(console, f"{len(group.entries)}x {group.said}", "yellow", indent=2)
        for entry in group.entries[:MAX_NAMED]:
            print_line(console, target_text(entry.target), indent=5)
        if len(group.entries) > MAX_NAMED:
            num_more = len(group.entries) - MAX_NAMED
            print_line(console, f"and {num_more} more (`--list --json -` has all)", indent=5)


def _print_changes(found: Changes, console: Console) -> None:
    """Print a line for each workload of each target, with its times."""
    if not found.all:
        return
    print_heading(console, "Compared with the base")
    several = len(found.devices) > 1
    names = [_name_over_path(change.entry.target) for change in found.all]
    if is_narrow(console, names, several):
        for change in found.all:
            _print_change(change, several, console)
    else:
        console.print(Padding(_changes_table(found, several), (0, 0, 0, 2), expand=False))
    if found.measured:
        print_line(
            console,
            "Change in the time of one call, with its interval over fresh processes. Negative is "
            "faster. The worst workload decides.",
            "dim",
        )


def _print_other_uses(found: OtherUses, console: Console) -> None:
    """Print what worked in the base and does not in the head, and what was not tried."""
    if not found.is_known:
        return
    print_heading(console, "Other uses")
    for change in found.changed:
        name = target_text(change.entry.target)
        print_line(console, f"{name}: {examined_text(change.comparison)}", "yellow", indent=2)
        for line in changed_lines(change.comparison):
            print_line(console, line, indent=5)
    if found.changed:
        print_line(console, EXPLANATION, "dim", indent=2)
    if found.kept:
        print_line(console, f"{UNBROKEN} ({found.unbroken_text})", indent=2)
    for reason, changes in found.untried.items():
        print_line(console, f"{count_text(len(changes), 'target')}: {reason}", "dim", indent=2)


def _changes_table(found: Changes, several_devices: bool) -> Table:
    table = table_of("target", "workload", "base -> head", "change")
    if several_devices:
        table.add_column("device", overflow="fold")
    names = [_name_over_path(change.entry.target) for change in found.all]
    table.columns[0].width = target_width(names)
    table.columns[2].no_wrap = True
    for change, name in zip(found.all, names, strict=True):
        target, said = name, _remarks(change)
        for row in change.comparison.rows or (None,):
            style = CHANGE_STYLES.get((row or change.comparison).verdict, "")
            ratio = "\n".join([row_text(row or change.comparison), *_reason(row), *said])
            cells = [Text(target), *map(Text, _workload_and_times(change, row)), Text(ratio, style)]
            if several_devices:
                cells.append(Text(device_text(row.device) if row and row.device else ""))
            table.add_row(*cells)
            target, said = "", []
    return table


def _print_change(change: Change, several_devices: bool, console: Console) -> None:
    """Print a change as a list, for narrow terminals."""
    comparison = change.comparison
    verdict = BY_CALLERS if comparison.within else VERDICT_WORDS[comparison.verdict]
    style = CHANGE_STYLES.get(comparison.verdict, "")
    print_line(console, f"{target_text(change.entry.target)}: {verdict}", style, indent=2)
    for row in comparison.rows:
        workload, times = _workload_and_times(change, row)
        where = f" on {device_text(row.device)}" if several_devices and row.device else ""
        said = "; ".join([f"{times}, {row_text(row)}{where}", *_reason(row)])
        print_line(console, f"{workload}: {said}", indent=5)
    for remark in _remarks(change):
        print_line(console, remark, indent=5)


def _workload_and_times(change: Change, row: ComparedWorkload | None) -> tuple[str, str]:
    if row is None or row.base_us is None:
        return change.workload(row) if row else NOT_MEASURED, NOT_MEASURED
    return change.workload(row), f"{time_text(row.base_us)} -> {time_text(row.head_us)}"


def _reason(row: ComparedWorkload | None) -> list[str]:
    return [one_line(row.reason)] if row and row.reason else []


def _remarks(change: Change) -> list[str]:
    """Return remarks on a target as a whole."""
    comparison = change.comparison
    said = [one_line(change.previous)] if change.previous else []
    if comparison.acknowledged:
        agreed = comparison.acknowledged
        said.append(f"acknowledged by {agreed.owner} until {agreed.expires}")
    if comparison.reason:
        said.append(one_line(comparison.reason))
    if comparison.output_change:
        said.append(f"outputs changed: {one_line(comparison.output_change)}")
    return said


def _print_proposals(document: Report, found: Digest, console: Console) -> None:
    if not found.proposals:
        print_line(console, found.nothing_proven)
        return
    several = has_several_devices(document)
    console.print()
    names = [_name_over_path(proposal.entry.target) for proposal in found.proposals]
    if is_narrow(console, names, several):
        for proposal in found.proposals:
            _print_proposal(proposal, console)
    else:
        console.print(_proposals_table(found.proposals, several))
        for proposal in found.proposals:
            name = f"{proposal.number}. {proposal.entry.target.qualname}"
            if notes := _notes(proposal):
                print_line(console, f"{name}: {'; '.join(notes)}")
            _print_stated(proposal, console)
    for line in together_lines(document):
        print_line(console, f"All together: {line}")
    print_line(
        console,
        "The largest saving of time comes first. Speedup with its interval over fresh processes, "
        "bounds rounded outward; A/A is what the reference against itself shows in the same "
        "session.",
        "dim",
    )


def _proposals_table(proposals: Sequence[Proposal], several_devices: bool) -> Table:
    table = table_of("", "target", "speedup", "workload", "technique", "time", "A/A")
    if several_devices:
        table.add_column("device", overflow="fold")
    names = [_name_over_path(proposal.entry.target) for proposal in proposals]
    table.columns[1].width = target_width(names)
    for number in (2, 5, 6):
        table.columns[number].no_wrap = True
    for proposal, name in zip(proposals, names, strict=True):
        heads = [str(proposal.number), name, technique_text(proposal.evaluation)]
        for measurement in proposal.evaluation.measurements:
            cells = [
                *heads[:2],
                speedup_text(measurement),
                _workload_text(proposal.workload(measurement), measurement),
                heads[2],
                _before_and_after(measurement),
                percent_text(measurement.control_spread),
            ]
            if several_devices:
                cells.append(device_text(measurement.device))
            styles = {2: "bold green"}
            table.add_row(*(Text(cell, styles.get(i, "")) for i, cell in enumerate(cells)))
            heads = ["", "", ""]
    return table


def _name_over_path(target: Target) -> str:
    return f"{target.qualname}\n{target.path}:{target.first_line}"


def _before_and_after(measurement: Measurement) -> str:
    return f"{time_text(measurement.reference_us)} -> {time_text(measurement.candidate_us)}"


def _print_proposal(proposal: Proposal, console: Console) -> None:
    """Print a proposal as a list, for narrow terminals."""
    print_line(console, f"{proposal.number}. {target_text(proposal.entry.target)}", "bold")
    print_line(console, f"technique: {technique_text(proposal.evaluation)}", indent=3)
    for measurement in proposal.evaluation.measurements:
        workload = _workload_text(proposal.workload(measurement), measurement)
        print_line(
            console,
            _measurement_text(measurement, device_text(measurement.device), workload),
            indent=3,
        )
    for said in _notes(proposal):
        print_line(console, said, indent=3)
    _print_stated(proposal, console)


def _notes(proposal: Proposal) -> list[str]:
    """Return what a reader should know of a proposal besides its times."""
    entry, accepted = proposal.entry, proposal.evaluation.acceptance
    trained = step_text(entry.step)
    accepting = acceptance_text(accepted) if accepted else ""
    notes = [
        parts_text(entry),
        least_text(entry),
        "not timed at every size" if entry.sizes_not_tried else "",
        f"in training: {trained}" if trained else "",
        accepting[:1].lower() + accepting[1:],
    ]
    return [one for one in notes if one]


def _print_stated(proposal: Proposal, console: Console) -> None:
    """Print what a maintainer should know of a patch that is accepted."""
    accepted = proposal.evaluation.acceptance
    for one in accepted.lines if accepted else ():
        if one.result == "stated":
            print_line(console, line_text(one), "dim", indent=3)


def _print_patch(proposal: Proposal, console: Console) -> None:
    console.print()
    print_line(console, f"{proposal.number}. {target_text(proposal.entry.target)}", "bold")
    if proposal.evaluation.candidate.generation:
        print_line(console, MODEL_WORDS, "dim", indent=3)
    if proposal.evaluation.candidate.analysis:
        console.print(
            Padding(Text(proposal.evaluation.candidate.analysis), (0, 0, 0, 3), expand=False)
        )
    for claim in proposal.entry.contradictions_of(proposal.evaluation.candidate):
        print_line(console, f'{CONTRADICTED_WORDS} "{claim.claim}" - {claim.measured}', indent=3)
    patch = proposal.evaluation.candidate.patch
    if patch is None:
        print_line(console, "no patch", indent=3)
    elif console.is_terminal:
        console.print(Syntax(patch, "diff", background_color="default", word_wrap=True))
    else:
        console.out(patch, end="", highlight=False)


def _print_suspected(suspected: Sequence[Suspected], console: Console) -> None:
    if not suspected:
        return
    print_heading(console, f"{SUSPECTED_WORDS} ({len(suspected)})")
    for each in suspected:
        proposer = each.evaluation.candidate.proposer
        print_line(console, f"{target_text(each.entry.target)}, {proposer}:", indent=2)
        print_line(console, each.message, indent=5)


def _print_degenerate(entries: Sequence[Entry], console: Console) -> None:
    if not entries:
        return
    print_heading(console, "Degenerate references: the output does not depend on the input")
    for entry in entries:
        print_line(console, target_text(entry.target), indent=2)


def _print_unimproved(entries: Sequence[Entry], several_devices: bool, console: Console) -> None:
    if not entries:
        return
    print_heading(console, f"No faster version ({len(entries)})")
    names = [target_text(entry.target) for entry in entries]
    if is_narrow(console, names):
        for entry in entries:
            _print_attempts(entry, several_devices, console)
        return
    table = table_of("target", "speedup", "candidates", "workloads", header=False)
    table.columns[0].width = target_width(names)
    table.columns[1].no_wrap = True  # a speedup and its interval are read together
    for entry, name in zip(entries, names, strict=True):
        target = Text(name)
        workloads = Text(", ".join(_called(workload) for workload in entry.workloads))
        for speedup, said in attempts_rows(entry, several_devices):
            table.add_row(target, Text(speedup or NOT_MEASURED), Text(said), workloads)
            target, workloads = Text(), Text()
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _print_attempts(entry: Entry, several_devices: bool, console: Console) -> None:
    """Print attempts as a list, for narrow terminals."""
    print_line(console, target_text(entry.target), indent=2)
    for speedup, said in attempts_rows(entry, several_devices):
        print_line(console, f"{speedup}, {said}" if speedup else said, indent=5)
    called = ", ".join(_called(workload) for workload in entry.workloads)
    print_line(console, f"called as {called}", indent=5)


def _print_skipped(found: Digest, console: Console) -> None:
    if not found.skipped:
        return
    print_heading(console, f"Skipped ({sum(len(group.entries) for group in found.skipped)})")
    for group in found.skipped:
        print_line(console, f"{len(group.entries)}x {group.reason}", "yellow", indent=2)
        for hint in group.hints[:2]:
            print_line(console, f"fix: {hint}", "dim", indent=5)
        shown = list(zip(group.entries, group.details, strict=True))[:MAX_NAMED]
        for entry, details in shown:
            last_line = details.rpartition("\n")[2].strip()
            if last_line in group.reason:
                last_line = ""
            named = f"{target_text(entry.target)}: {last_line}".removesuffix(": ")
            print_line(console, named, indent=5)
        if len(group.entries) > MAX_NAMED:
            print_line(
                console,
                f"and {len(group.entries) - MAX_NAMED} more (see --json or --html)",
                indent=5,
            )


def _print_why(entries: Sequence[Entry], console: Console) -> None:
    """Print where the time goes, what rules nearly matched, and what was not tried, by target."""
    for entry in entries:
        spent, sizes = understanding_text(entry.understanding), entry.sizes_not_tried
        if spent or sizes or entry.near_misses or entry.not_tried:
            print_heading(console, f"Details of {target_text(entry.target)}")
            _print_lines("The call:", [spent] if spent else [], console)
            _print_lines("Not timed at another size:", [sizes] if sizes else [], console)
            _print_lines("Nearly matched:", map(near_miss_text, entry.near_misses), console)
            _print_lines("Not tried:", map(not_tried_text, entry.not_tried), console)


def _print_lines(heading: str, lines: Iterable[str], console: Console) -> None:
    """Print lines under a heading; nothing if there are none."""
    for number, line in enumerate(lines):
        if not number:
            print_line(console, heading, indent=2)
        print_line(console, line, "dim", indent=4)


def _print_notices(notices: Sequence[Notice], console: Console) -> None:
    if not notices:
        return
    print_heading(console, f"Notices ({len(notices)})")
    for notice in notices[:MAX_NAMED]:
        print_line(console, f"{notice.path}: {notice.message}", indent=2)
    if len(notices) > MAX_NAMED:
        print_line(console, f"and {len(notices) - MAX_NAMED} more (see --json or --html)", indent=2)


def _called(workload: Workload) -> str:
    """Format `default (traced, train, bf16 autocast)`."""
    return f"{workload.name} ({', '.join((workload.provenance, *workload.conditions))})"


def _workload_text(workload: Workload | None, measurement: Measurement) -> str:
    name = measurement.workload if workload is None else _called(workload)
    return name if measurement.baseline == "eager" else f"{name} against {measurement.baseline}"


def _measurement_text(measurement: Measurement, device: str, workload: str | None = None) -> str:
    """Format one measurement on one line."""
    return (
        f"{speedup_text(measurement)} on {device}: {workload or measurement.workload}, "
        f"{_before_and_after(measurement)}, "
        f"A/A {percent_text(measurement.control_spread)}"
    )
