"""Text and Markdown against golden files, and what every format must do with every report.

`UPDATE_GOLDEN=1 pytest tests/unit/render` writes the golden files anew: read the difference.
"""

from __future__ import annotations

import io
import os
import re

import msgspec
import pytest
from rich.console import Console

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Entry, Finding, Listing, Report, Verdict
from cudal1_ci.render import FORMATS, render
from cudal1_ci.render.digest import digest
from cudal1_ci.render.html import prose as html_prose
from cudal1_ci.render.markdown import render_markdown
from cudal1_ci.render.markup import code, escaped, fenced, inline, prose
from cudal1_ci.render.published import listing, published, verdict_of
from cudal1_ci.render.text import print_report, print_verification, render_text
from tests.unit.render.conftest import GOLDEN
from tests.unit.render.samples import with_findings
from tests.unit.render.test_published import PLAN

EMPTY = published(Report(repository="empty"))


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [120, 72])
def test_text_is_as_it_was_agreed(golden_report, width):
    check_golden(f"report-{width}.txt", render_text(golden_report, width))


def test_markdown_is_as_it_was_agreed(golden_report):
    check_golden("report.md", render(golden_report, "md"))


def test_what_the_judge_said_of_a_proposal_is_no_way_of_calling_it(sample):
    said = Finding(rule="oracle.absent", message="not run in float64")
    best = digest(sample).proposals[0].evaluation
    entries = tuple(
        msgspec.structs.replace(
            entry,
            evaluations=tuple(
                with_findings(one, said) if one == best else one for one in entry.evaluations
            ),
        )
        for entry in sample.entries
    )
    text = render(msgspec.structs.replace(sample, entries=entries), "md")
    _, _, after = text.partition("*Called as:*")
    called, heading, finding = after.partition("\n\n*Reported by the verifier:*\n\n")
    assert heading and "oracle.absent" not in called
    assert finding.startswith("- `oracle.absent`: not run in float64\n\n")


@pytest.mark.parametrize("output_format", FORMATS)
def test_an_empty_report_can_be_rendered(output_format):
    assert render(EMPTY, output_format).endswith("\n")


@pytest.mark.parametrize("output_format", ["text", "md", "html", "json"])
def test_every_target_and_reason_is_told(sample, output_format):
    text = render(sample, output_format)
    for told in ("Attention", "pool", "RMSNorm", "MLP", "Zero", "Vocabulary", "Rotary"):
        assert told in text
    assert "no call of it is known" in text
    assert "declare a workload" in text
    assert "slowformer/old.py" in text


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_a_speedup_is_never_shown_without_interval_and_device(sample, output_format):
    text = render(sample, output_format).replace("\\", "")
    if output_format == "html":
        text = text[text.index("<main>") : text.index("</main>")]
    speedups = re.findall(r"\b\d+\.\d+x(?! \[\d+\.\d+, \d+\.\d+\])", text)
    assert speedups == []
    assert re.search(r"\d+\.\d+x \[\d+\.\d+, \d+\.\d+\]", text)
    assert "AMD EPYC 9B14" in text


def test_the_largest_saving_comes_first_and_each_entry_is_in_one_part(sample):
    found = digest(sample)
    assert [p.entry.target.qualname for p in found.proposals] == ["Attention", "pool"]
    assert [e.target.qualname for e in found.degenerate] == ["Zero"]
    assert [e.target.qualname for e in found.unimproved] == ["RMSNorm", "MLP"]
    assert [(g.reason, len(g.entries)) for g in found.skipped] == [
        ("no call of it is known", 2),
        ("runtime_error: the reference raised", 1),
    ]
    assert found.skipped[1].details[0].endswith("FileNotFoundError: vocab.txt")


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
@pytest.mark.parametrize("is_noisy", [True, False])
def test_a_machine_that_is_too_busy_is_named_where_nothing_was_proven(
    sample, output_format, is_noisy
):
    entry = next(one for one in sample.entries if one.evaluations)
    finding = Finding(rule="timing.noisy" if is_noisy else "timing.slower", message="as it was")
    verdict = Verdict(status="inconclusive", findings=(finding,))
    tried = tuple(
        msgspec.structs.replace(one, verdict=verdict, measurements=()) for one in entry.evaluations
    )
    entry = msgspec.structs.replace(entry, best=None, evaluations=tried)
    report = msgspec.structs.replace(sample, entries=(entry,))
    said = " ".join(render(report, output_format).split())
    assert "No faster version was proven." in said
    count = f"too busy to measure {len(tried)} of {len(tried)} candidate"
    assert (count in said) is is_noisy


def test_a_report_that_was_cut_short_says_so_in_every_readable_format(sample):
    for ended, words in (("budget", "budget was too short"), ("interrupted", "was interrupted")):
        cut = msgspec.structs.replace(sample, ended=ended)
        assert all(words in render(cut, name) for name in ("text", "md", "html"))
    assert not any("Incomplete" in render(sample, name) for name in ("text", "md", "html"))


def test_several_devices_are_named_in_every_row(sample):
    other = msgspec.structs.replace(sample.device, name="Other CPU")
    several = msgspec.structs.replace(sample, device=None, devices=(sample.device, other))
    for row in render(several, "md").splitlines():
        if "**" in row and "x \\[" in row:
            assert "AMD EPYC 9B14, 1 thread |" in row
    assert "device" in render_text(several, 140).splitlines()[3]
    for line in render_text(several, 120).splitlines():
        assert "x [" not in line or "on AMD EPYC 9B14, 1 thread" in line


def test_an_unknown_format_and_a_listing_as_a_page_are_refused(sample):
    with pytest.raises(
        ReportError, match="written as text, md, json, html, sarif, comment; got 'pdf'"
    ):
        render(sample, "pdf")
    with pytest.raises(ReportError, match=r"a listing .* is written as text, md, json"):
        render(listing(PLAN), "html")


@pytest.mark.parametrize("width", [20, 40, 109, 110, 200])
def test_text_fits_its_width(sample, width):
    lines = render_text(sample, width).splitlines()
    # A speedup is not broken: its number and its interval are read together.
    assert max(map(len, lines)) <= max(width, 40)


@pytest.mark.parametrize("width", [72, 100, 120, 160])
@pytest.mark.parametrize("folder", ["pkg", "src/package_of_layers/models", "a_folder/" * 6])
def test_a_path_is_not_broken_within_a_word(sample, width, folder):
    def moved(entry):
        target = msgspec.structs.replace(entry.target, path=f"{folder.strip('/')}/module.py")
        return msgspec.structs.replace(entry, target=target)

    entries = tuple(map(moved, sample.entries))
    report = msgspec.structs.replace(sample, entries=entries)
    listed = tuple(
        Entry(target=entry.target, workloads=entry.workloads, skipped=entry.skipped)
        for entry in entries
    )
    listing = Listing(repository="mine", entries=listed)
    for shown in (report, listing):
        words = set(render_text(shown, width).split())
        for entry in entries:
            place = f"{entry.target.path}:{entry.target.first_line}"
            assert words & {place, f"{place},", f"{place}:"}, place


def test_a_terminal_gets_colors_and_a_pipe_gets_none(sample):
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=100, color_system="standard")
    print_report(sample, console, patches=True)
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[" not in render(sample, "text")


def test_patches_on_demand_are_printed_as_they_are(sample):
    pipe = io.StringIO()
    print_report(sample, Console(file=pipe, width=60, color_system=None), patches=True)
    assert sample.entries[0].evaluations[1].candidate.patch in pipe.getvalue()


def test_markup_in_names_is_text(sample, replaced):
    hostile = replaced(sample, target={"qualname": "[bold red]X[/]"})
    assert "[bold red]X[/]" in render_text(hostile)


def test_a_verdict_in_a_pipe_is_as_wide_as_a_report(report, capsys):
    _, passed = report.entries[0].evaluations
    print_verification(verdict_of(passed), title="faster.py")
    (measured, *_) = [line for line in capsys.readouterr().out.splitlines() if "x [" in line]
    assert re.search(r"A/A \d\.\d %$", measured.rstrip()), "a number and its unit are one line"


def test_a_verdict_says_an_error_once(report):
    stream = io.StringIO()
    failed, _ = report.entries[0].evaluations
    log = "Traceback (most recent call last):\noutput 0 differs\n"
    verdict = msgspec.structs.replace(failed.verdict, log=log)
    document = verdict_of(msgspec.structs.replace(failed, verdict=verdict))
    print_verification(document, title="faster.py", console=Console(file=stream, width=120))
    assert stream.getvalue().count("output 0 differs") == 1


def test_a_verdict_is_printed_with_its_reason(report):
    stream = io.StringIO()
    console = Console(file=stream, width=200, color_system=None)
    failed, passed = report.entries[0].evaluations
    print_verification(verdict_of(failed), title="faster.py", console=console)
    print_verification(verdict_of(passed), title="faster.py", console=console)
    first, second = stream.getvalue().split("faster.py: passed\n")
    assert first.startswith("faster.py: incorrect_values\n")
    assert "values.mismatch: output 0 differs: 1.31 > 1.2e-05 allowed" in first
    assert "x [" not in first
    assert "on AMD EPYC 9B14, 1 thread: base" in second


# --- Markdown's own ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a|b", "a\\|b"),
        ("<img src=x>", "\\<img src=x\\>"),
        ("*bold* _it_ `code`", "\\*bold\\* \\_it\\_ \\`code\\`"),
        ("two\nlines", "two lines"),
        ("ask @octocat", "ask @&#8203;octocat"),
        ("[a](http://evil)", "\\[a\\](http:&#8203;//evil)"),
        ("fixes #12", "fixes \\#&#8203;12"),
    ],
)
def test_prose_from_outside_is_shown_and_not_obeyed(text, safe):
    assert escaped(text) == safe


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("a", "`a`"),
        ("a|b", "`a\\|b`"),
        ("a`b", "``a`b``"),
        ("`a``", "``` `a`` ```"),
        ("", ""),
    ],
)
def test_a_code_span_holds_backticks_and_pipes(text, span):
    assert code(text) == span


def test_a_fence_is_longer_than_any_run_inside():
    assert fenced("a\n````\nb", "diff") == "`````diff\na\n````\nb\n`````"


def test_no_hostile_text_opens_an_element_or_a_row(sample, replaced):
    evil = "</summary></details><script>|x|\n| y |"
    hostile = replaced(
        sample,
        target={"qualname": evil, "path": evil},
        candidate={"analysis": evil, "design": evil, "proposer": evil, "techniques": (evil,)},
    )
    shown = render(hostile, "md")
    prose = re.sub(r"(`+)[^`].*?\1", "", shown, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<script>", prose)
    assert prose.count("<details>") == prose.count("\n</details>")
    row = next(line for line in shown.splitlines() if line.startswith("| 2 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 8


def test_markdown_that_is_too_long_loses_diffs_first_and_rows_next(sample):
    full = render_markdown(sample)
    without = render_markdown(sample, max_chars=len(full) - 1)
    assert "```diff" in full
    assert "```diff" not in without
    assert "The diffs are left out" in without
    proposal, *_ = (e for e in sample.entries if e.best is not None)
    many = msgspec.structs.replace(
        sample,
        entries=tuple(
            msgspec.structs.replace(
                proposal,
                target=msgspec.structs.replace(proposal.target, qualname=f"Module{i}"),
            )
            for i in range(300)
        ),
    )
    short = render_markdown(many, max_chars=30_000)
    assert len(short) <= 30_000
    assert "and 200 more" in short
    assert len(render_markdown(many, max_chars=5_000)) <= 5_000


SENTENCES = "- fast: `a|b` -> `c`\n\nFound:\n- one <b> @you\n1. not a list\n= not a heading"


def test_our_own_sentences_become_paragraphs_lists_and_code():
    assert prose(SENTENCES) == (
        "- fast: `a\\|b` -\\> `c`\n\nFound:\n- one \\<b\\> @&#8203;you\n\n"
        "1\\. not a list\n\n\\= not a heading"
    )
    assert inline("run `x y`\nagain") == "run `x y` again"
    assert html_prose(SENTENCES) == (
        "<ul><li>fast: <code>a|b</code> -&gt; <code>c</code></li></ul><p>Found:</p>"
        "<ul><li>one &lt;b&gt; @you</li></ul><p>1. not a list</p><p>= not a heading</p>"
    )
