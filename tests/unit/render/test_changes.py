"""What a change did, in the report's own formats."""

from __future__ import annotations

import re

import msgspec
import pytest

from cudal1_ci.records import Call, ContractCheck, Workload
from cudal1_ci.render import render
from cudal1_ci.render.changes import cell_text, changes, counts_text, headline, row_text
from cudal1_ci.render.comment import comment
from cudal1_ci.render.digest import digest
from cudal1_ci.render.merge import merge
from cudal1_ci.render.text import render_text
from cudal1_ci.stats.gate import Finding
from tests.unit.render import comparisons
from tests.unit.render.comparisons import EPYC, H200, L40S, a_document, a_row, compared
from tests.unit.render.test_comment import ABOUT
from tests.unit.render.test_rendering import check_golden


def test_text_and_markdown_are_as_they_were_agreed():
    check_golden("compared.txt", render_text(comparisons.regression()))
    check_golden("compared-72.txt", render_text(comparisons.three_devices(), 72))
    check_golden("compared.md", render(comparisons.three_devices(), "md"))
    check_golden("compared-other_uses.txt", render_text(comparisons.other_uses(), 100))
    check_golden("compared-other_uses.md", render(comparisons.other_uses(), "md"))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (a_row(1.121, "regression"), "+12.1 % [+10.9, +13.4] slower"),
        (a_row(0.91, "improvement"), "-9.0 % [-10.2, -7.7] faster"),
        (a_row(1.0), "same"),
        (a_row(1.2, "inconclusive"), "inconclusive"),
        (a_row(None, "skipped"), "not measured"),
        (None, "-"),
    ],
)
def test_a_cell_says_ratio_interval_and_class(row, said):
    assert cell_text(row) == said


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (a_row(1.121, "regression"), "+12.1 % [+10.9, +13.4] slower"),
        (a_row(1.001), "+0.1 % [-1.1, +1.4] same within noise"),
        (a_row(1.03), "+3.0 % [+1.8, +4.3] same within the threshold"),
        (a_row(1.06, base_us=6.0), "+6.0 % [+4.8, +7.3] same within half a microsecond"),
        (a_row(0.94, base_us=6.0), "-6.0 % [-7.2, -4.7] same within half a microsecond"),
        (a_row(1.2, "inconclusive"), "+20.0 % [+18.8, +21.3] inconclusive"),
        (a_row(None, "inconclusive"), "inconclusive"),
    ],
)
def test_a_row_says_its_numbers_whatever_the_verdict(row, said):
    assert row_text(row) == said


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_times_before_and_after_are_told_of_every_workload(output_format):
    text = render(comparisons.regression(), output_format).replace("\\", "")
    for told in ("120 us", "135 us", "2.41 ms", "+0.1 % [-1.1, +1.4] same within noise"):
        assert told in text


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_a_comparison_without_anything_to_compare_says_so_in_a_sentence(output_format):
    text = render(a_document(searched=False), output_format)
    assert "Nothing to compare: no module, function or kernel differs" in text
    assert comparisons.BASE_SHA[:12] in text
    for untold in ("faster version", "judged", "candidates tried"):
        assert untold not in text


def test_a_comparison_merged_with_a_search_is_a_search():
    empty = a_document(searched=False)
    assert not merge([empty, empty]).searched
    assert merge([empty, a_document()]).searched


def test_the_worst_workload_decides_on_each_device():
    entry = compared(
        "Block",
        a_row(0.9, "improvement"),
        a_row(1.2, "regression", workload="long"),
        a_row(1.1, "regression", workload="short"),
        a_row(1.0, device=L40S),
    )
    found = changes(a_document(entry, compared("Other", a_row(1.0, device=EPYC))))
    assert found.devices == ("NVIDIA H200", "NVIDIA L40S", "AMD EPYC 9B14, 1 thread")
    cells = [cell_text(cell) for cell in found.all[0].cells]
    assert cells == ["+20.0 % [+18.8, +21.3] slower", "same", "-"]


def test_what_was_measured_on_no_device_stands_where_nothing_else_does():
    entry = compared("Block", a_row(1.0), a_row(None, "inconclusive", device=None))
    (only,) = changes(a_document(entry)).all
    assert [cell_text(cell) for cell in only.cells] == ["inconclusive"]
    found = changes(a_document(entry, compared("Other", a_row(1.0, device=L40S))))
    cells = {c.entry.target.qualname: [cell_text(one) for one in c.cells] for c in found.all}
    assert cells == {"Block": ["same", "inconclusive"], "Other": ["-", "same"]}


@pytest.mark.parametrize(
    ("entries", "num_proposals", "said"),
    [
        ([], 0, "no faster version proven"),
        ([], 2, "2 faster versions proven"),
        ([compared("A", a_row(1.0))], 1, "no target got slower; 1 faster version proven"),
        ([compared("A", a_row(0.9, "improvement"))], 0, "1 of 1 target got faster, none slower"),
        (
            [compared("A", a_row(1.2, "inconclusive")), compared("B", a_row(1.0))],
            0,
            "1 of 2 targets inconclusive, none found to be slower",
        ),
        ([compared("A", verdict="new")], 0, "nothing to compare"),
        (
            [
                compared("A", a_row(1.0)),
                compared("B", verdict="removed", cause="lost"),
                compared("C", verdict="skipped", cause="skipped"),
            ],
            0,
            "no target got slower, 1 removed, 1 not measured",
        ),
    ],
)
def test_the_verdict_in_a_few_words(entries, num_proposals, said):
    assert headline(changes(a_document(*entries)), num_proposals) == said


@pytest.mark.parametrize(
    ("num_proposals", "said"),
    [
        (0, "nothing measured; no report from 1 machine"),
        (1, "1 faster version proven; no report from 1 machine"),
    ],
)
def test_what_left_no_report_found_no_faster_version_either(num_proposals, said):
    lost = Finding(state="machine_missing", name="h100")
    assert headline(changes(a_document()), num_proposals, missing=[lost]) == said


def test_a_renamed_target_and_a_call_in_training_are_named():
    training = Workload(name="base", provenance="traced", call=Call(), mode="train")
    entry = compared("New", a_row(1.0), a_row(1.0, workload="base #2"), previous="old.py:Old")
    document = a_document(msgspec.structs.replace(entry, workloads=(training,)))
    for shown in (render_text(document), *(render(document, one) for one in ("md", "html"))):
        assert re.search("was .?old.py:Old", shown)
        assert "base, train" in shown
        assert "base #2, train" not in shown
    commented = comment(document, ABOUT)
    assert "was old" in commented
    assert "base, train" in commented


def test_counts_are_said_worst_first():
    assert counts_text(changes(comparisons.regression())) == (
        "1 slower, 1 faster, 1 same, 1 inconclusive; 1 new, 1 removed"
    )
    assert counts_text(changes(a_document())) == ""


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_who_only_compared_is_not_told_that_nothing_was_found(output_format):
    shown = comparisons.regression()
    text = render(shown, output_format)
    for told in ("Compared with the base", "+12.1 %", "Attention", "Mixer", "Legacy"):
        assert told in text
    for untold in ("no rewrite matches", "No faster version", "faster versions proven"):
        assert untold not in text
    assert digest(shown).unimproved == ()


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_agreements_and_other_outputs_are_told(output_format):
    text = render(comparisons.acknowledged(), output_format)
    assert "ada until 2026-12-31" in text
    assert "outputs changed" in render(comparisons.three_devices(), output_format)


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_other_uses_that_changed_are_named_and_those_that_did_not_are_counted(output_format):
    text = " ".join(render(comparisons.other_uses(), output_format).split())
    assert "dtype float64 (it fails: RuntimeError: expected Float but found Double)" in text
    assert "1 held, 1 differs, 2 broken, 1 not tried in 7.1 s" in text
    assert "outputs changed at the workload: contract not examined" in text
    assert "Other uses" not in render(comparisons.three_devices(), output_format)
    kept = comparisons.other_uses()
    kept = msgspec.structs.replace(kept, entries=kept.entries[1:3])
    assert "broken:" not in render(kept, output_format)


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_a_report_without_comparisons_does_not_speak_of_them(golden_report, output_format):
    assert "Compared with the base" not in render(golden_report, output_format)


def test_what_a_report_says_of_a_change_is_text():
    shown = comparisons.acknowledged()
    (entry,) = shown.entries
    evil = "<script>|@octocat"
    comparison = msgspec.structs.replace(entry.comparison, reason=evil, output_change=evil)
    device = msgspec.structs.replace(H200, name=evil)
    rows = tuple(msgspec.structs.replace(row, device=device) for row in comparison.rows)
    line = ContractCheck(aspect=evil, result="broken", detail=evil)
    comparison = msgspec.structs.replace(comparison, rows=rows, contract=(line,))
    hostile = msgspec.structs.replace(
        shown, entries=(msgspec.structs.replace(entry, comparison=comparison),)
    )
    assert "<script>|" not in render(hostile, "html")
    assert "\\<script\\>\\|@&#8203;octocat" in render(hostile, "md")
