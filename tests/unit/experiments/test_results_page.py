"""What docs/results.md opens with: it says of a run what the run holds, and of the rest nothing."""

from __future__ import annotations

import datetime
import gzip
import sys
import xml.etree.ElementTree as ET

import msgspec
import pytest

from cudal1_ci.report_card.columns import BEST, COLUMNS
from cudal1_ci.report_card.page import drawing
from tests.unit.report_card.rig import MACHINE, a_run, a_task, launching, told

NAMES = ("level1/1", "level1/2", "level2/1")
SVG = "{http://www.w3.org/2000/svg}"


def task(number, **columns):
    """The task of that place in `NAMES`, with columns by their name."""
    name = NAMES[number]
    return told(a_task(name, f"class Model: '{name}'"), columns)


def without_a_turn(one):
    return msgspec.structs.replace(one, standing="missing", reason="not reached", results=())


def degenerate(one):
    return msgspec.structs.replace(one, standing="degenerate", reason="reference.constant: same")


@pytest.fixture
def page(experiment_module):
    return experiment_module("results_page")


@pytest.fixture
def beside(experiment_module):
    return experiment_module("results_beside")


@pytest.fixture
def of_run(page):
    """The text of a run."""
    return lambda run: page.section(run, "commit `abcdef0`")[0]


@pytest.fixture
def run_page(page, monkeypatch, tmp_path):
    """The script, on runs and a page; the page's text afterwards."""
    place = tmp_path / "docs" / "results.md"
    place.parent.mkdir()
    place.write_text("# Before\n\nText.\n")

    def call(*runs, words=("--commit", "abcdef0")):
        files = []
        for number, run in enumerate(runs):
            files.append(tmp_path / f"run{number}.json.gz")
            files[-1].write_bytes(gzip.compress(msgspec.json.encode(run)))
        argv = ["results_page.py", *map(str, files), *words, "--page", str(place)]
        monkeypatch.setattr(sys, "argv", argv)
        page.main()
        return place.read_text()

    call.place = place
    return call


def row_of(text, solver):
    """The cells of a column in the first table that has it."""
    line = next(one for one in text.splitlines() if one.strip("|* ").startswith(f"`{solver}`"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_what_failed_counts_one_and_as_failed(of_run):
    text = of_run(
        a_run(
            task(0, playbook=4.0, published=9.0),
            task(1, playbook="precision", published=None),
            task(2, playbook=None, published="incorrect_values"),
        )
    )
    mean, geometric, largest, *quartiles, success, above = row_of(text, "playbook")
    assert (mean, largest, quartiles) == ("2.00", "4.00", ["2.50", "1.00", "1.00"])
    assert geometric.startswith("1.59 [1.00, ")
    assert (success, above) == ("1/3", "1")
    assert row_of(text, "published")[-2:] == ["1/3", "1"]
    assert row_of(text, "best")[-2:] == ["3/3", "1"]
    assert "level1 (2 tasks) | level2 (1 task)" in text
    assert "| `playbook` | 2.00, 1, 1 | 1.00, 0, 0 |" in text


def test_a_degenerate_task_is_in_no_number_and_named(of_run):
    honest = [task(0, playbook=1.5, published=2.0), task(1, playbook=1.5, published=2.0)]
    empty = degenerate(task(2, playbook=800.0, published=900.0))
    text = of_run(a_run(*honest, empty))
    assert "Excluded from every column, 1 of 3 tasks: the output does not depend on" in text
    assert "(1): level2/1." in text
    alone = of_run(a_run(*honest))
    assert "Excluded from every" not in alone
    left_out = next(one for one in text.split("\n\n") if one.startswith("Excluded from every"))
    numbers = text.replace(f"{left_out}\n\n", "").partition("| 2 tasks")[2]
    assert numbers == alone.partition("| 2 tasks")[2]


def test_an_incomplete_run_says_so_first_and_tells_of_nothing_else(of_run):
    finished = task(0, playbook=2.0)
    half = msgspec.structs.replace(task(1, playbook=50.0), standing="missing", reason="budget")
    text = of_run(a_run(finished, half, without_a_turn(task(2)), ended="budget"))
    first = text.removeprefix("# Report card\n\n")
    assert first.startswith(
        "**Incomplete: 2 tasks of 3 are missing, because at least one column did not finish: "
        "level1/2, level2/1.** Finished: level1 1 of 2, level2 0 of 1."
    )
    assert row_of(text, "playbook")[-2:] == ["1/1", "1"]
    assert "50.00" not in text
    none = of_run(a_run(without_a_turn(task(0)), ended="interrupted"))
    assert "**Incomplete: 1 task of 1 is missing" in none
    assert "No task is in a table." in none
    assert "Incomplete" not in of_run(a_run(finished))


def test_many_tasks_without_a_turn_are_not_all_named(of_run):
    many = [without_a_turn(told(a_task(f"level1/{n}", f"class M: {n} = 0"), {})) for n in range(40)]
    text = of_run(a_run(*many, ended="budget"))
    assert "one column did not finish.** Finished" in text


def test_a_section_of_its_own_lies_where_its_marks_are(page, run_page):
    words = ("--commit", "abcdef0", "--section", "Other Tasks")
    with pytest.raises(SystemExit):
        run_page(a_run(task(0, playbook=2.0)), words=words)
    first = run_page(a_run(task(0, playbook=2.0)))
    begin, end = page.marks("Other Tasks")
    assert (begin, end) == ("<!-- other tasks -->", "<!-- /other tasks -->")
    run_page.place.write_text(f"{first}\nText.\n\n{begin}\n{end}\n\nMore.\n")
    both = run_page(a_run(task(1, playbook=3.0)), words=words)
    assert both.startswith(first) and both.endswith(f"{end}\n\nMore.\n")
    assert "## Other Tasks\n" in both
    assert "](images/other-tasks.svg)" in both
    assert (run_page.place.parent / "images" / "other-tasks.svg").exists()


def test_the_opening_says_what_where_and_when(of_run):
    run = a_run(
        msgspec.structs.replace(task(0, playbook=2.0), source="cuda-l1"),
        policy="cuda-l1",
        generated_at=datetime.datetime(2026, 11, 24, 23, tzinfo=datetime.UTC),
    )
    text = of_run(run)
    assert (
        f"1 reference programs of CUDA-L1's release on {MACHINE}; policy `cuda-l1`, 2026-11-24, "
        "commit `abcdef0`." in text
    )
    assert text.count("| 1 task | mean") == 2, "both ways of counting"
    order = [text.index(one) for one in ("1 reference", "| 1 task |", "![", "counted as CUDA-L1")]
    assert order == sorted(order), "first of all the table and the drawing"
    device = msgspec.structs.replace(run.devices[0], sandbox_missing=("seccomp",))
    assert "without seccomp." in of_run(msgspec.structs.replace(run, devices=(device,)))


def test_tasks_are_ahead_level_and_failed_beside_the_reference(beside):
    tasks = [
        task(0, compile=1.5, playbook=3.0, eager=9.0),
        task(1, compile=1.0, playbook="timeout"),
        task(2, compile=None, playbook="runtime_error", eager=1.0, published=2.0),
    ]
    above, level, failed = beside.standings(tasks)
    assert [[one.name for one in group] for group in (above, level, failed)] == [
        ["level1/1"],
        ["level1/2"],
        ["level2/1"],
    ]
    said = beside.beside_reference(tasks)
    assert "is above 1.01x on 1 (`playbook` 1) and at 1.00x on 1. On 1 we had no right" in said
    assert beside.beside(tasks, ("eager", "published")) == ""


def test_within_two_percent_of_the_published_kernel_is_a_tie(beside):
    def names(*pairs):
        tasks = [task(n, playbook=ours, published=theirs) for n, (ours, theirs) in enumerate(pairs)]
        found = [
            beside.Pair(
                name=one.name,
                ours=beside.worth(one, "best"),
                theirs=beside.worth(one, "published"),
            )
            for one in tasks
        ]
        return [[pair.name for pair in group] for group in beside.compared(found)]

    assert names((2.0, 2.0), (2.0, 2.03), (2.0, 1.97)) == [
        [],
        ["level1/2", "level1/1", NAMES[2]],
        [],
    ]
    assert names((2.0, 2.05), (2.0, 1.95)) == [["level1/2"], [], ["level1/1"]]
    assert names((1.0, 0.5), (1.0, 3.0), (1.0, 2.0)) == [["level1/1"], [], ["level1/2", "level2/1"]]


def test_beside_the_published_kernels_failures_are_told_apart(beside):
    def said(*tasks):
        return beside.beside_published(tasks)

    text = said(
        task(0, playbook=2.0, published=3.0),
        task(1, playbook=1.0, published=0.5),
        task(2, playbook=2.0, published="reward_hack"),
        told(a_task("level2/2"), {"playbook": 1.0, "published": None}),
        told(a_task("level2/3"), {"playbook": 3.0, "published": 1.5}),
    )
    assert "of 3 tasks on which these are right" in text
    assert "ahead by more than 2 % on 2 (2 beyond both intervals), within 2 % on 0" in text
    assert "behind by more than 2 % on 1 (1 beyond both intervals)." in text
    assert "Of those that are behind ours 1 are slower than the reference." in text
    assert "kernels of their own" not in text
    assert "2 of them bring kernels of their own; 1 launch one." in said(
        *(
            launching(told(a_task(f"level2/{number}"), {"playbook": 1.0, "published": 1.5}), *own)
            for number, own in enumerate(((True, False), (False,), ()))
        )
    )
    assert "Farthest behind: level1/1 (2.00x to 3.00x)." in text
    assert "On 1 the published kernels failed; on 1 of these ours is above 1.01x." in text
    assert "For 1 task none was published." in text
    tie = said(task(0, playbook=2.0, published=2.0))
    assert "on 0, within 2 % on 1 and behind by more than 2 % on 0." in tie
    assert "Farthest" not in tie


def test_at_most_ten_are_named_and_overlapping_intervals_are_no_certainty(beside):
    tasks = [
        told(a_task(f"level1/{n}", str(n)), {"playbook": 2.0, "published": 2.0 + 0.1 * n})
        for n in range(1, 13)
    ]
    named = beside.beside_published(tasks).partition("Farthest behind: ")[2]
    assert named.startswith("level1/12 (2.00x to 3.20x), level1/11 ")
    assert named.count("level1/") == 10

    def worth(speedup, low, high):
        return beside.Worth(solver="x", speedup=speedup, low=low, high=high)

    kept = beside.Worth(solver="reference", speedup=1.0)
    for ours, theirs, is_certain in (
        (worth(6, 3, 14), worth(7, 6, 8), False),
        (worth(6, 5, 6.5), worth(7, 6.6, 8), True),
        (kept, worth(1.1, 0.9, 1.3), False),
        (kept, worth(0.8, 0.7, 0.9), True),
    ):
        assert beside.Pair(name="n", ours=ours, theirs=theirs).is_certain is is_certain


def test_where_nothing_was_won_the_bound_says_whether_anything_was_to_win(beside):
    def bounded(number, least_us, **columns):
        return msgspec.structs.replace(task(number, **columns), least_us=least_us)

    # A call of the reference takes 100 us.
    near, far = bounded(0, 90.0, playbook=1.0), bounded(1, 20.0, playbook=1.0)
    won, unknown = bounded(2, 1.0, playbook=2.0), task(2, playbook=1.0)
    text = beside.beside_roof([near, far, won])
    assert "of 2 tasks at 1.00x, within 20 % of the bound" in text
    assert "data sheet: 1. Farthest" in text
    assert "Farthest from it: level1/2 (5.00 times)." in text
    assert ": 1; unknown for 1." in beside.beside_roof([near, unknown])
    assert "the device's bound is unknown" in beside.beside_roof([unknown])
    assert beside.beside_roof([won]) == ""


def test_gains_have_a_price_and_what_gained_nothing_too(of_run):
    text = of_run(a_run(task(0, playbook=2.0, compile=1.0, eager=1.0, published=2.0)))
    prices = text[text.index("**Cost of a gain**") :]
    assert "- `playbook`: 1 gain, each 0.1 s of verification\n" in prices
    assert "- `compile`: no gain, 0.1 s of verification\n" in prices
    assert "eager" not in prices
    assert "published" not in prices


def test_marks_are_put_at_the_top_and_replaced_from_then_on(run_page):
    run = a_run(task(0, playbook=2.0))
    once = run_page(run)
    assert once.startswith("<!-- report card -->\n# Report card\n")
    assert once.endswith("<!-- /report card -->\n\n# Before\n\nText.\n")
    assert "([raw](../run0.json.gz))" in once
    assert run_page(run) == once
    stale = msgspec.structs.replace(run, card=())
    assert run_page(stale) == once, "the tables are drawn from the tasks"
    other = run_page(a_run(task(0, playbook=3.0)))
    assert other.count("report card -->") == 2
    assert "3.00" in other
    assert "2.00" not in other


@pytest.mark.parametrize(
    "text",
    [
        "<!-- report card -->\nno end",
        "<!-- /report card -->\n<!-- report card -->",
        2 * "<!-- report card -->\n<!-- /report card -->\n",
    ],
)
def test_a_page_with_broken_marks_is_refused(page, text):
    with pytest.raises(ValueError, match="each once"):
        page.replaced(text, "new")


def test_parts_of_a_run_are_told_as_one_and_machines_apart(run_page, tmp_path):
    text = run_page(a_run(task(0, playbook=2.0)), a_run(task(2, playbook=3.0)))
    assert "| 2 tasks | mean" in text
    assert "([raw](../run0.json.gz), [raw](../run1.json.gz))" in text
    there = told(a_task("level1/1"), {"playbook": 5.0}, machine="another")
    apart = run_page(a_run(task(0, playbook=2.0)), a_run(there))
    assert apart.count("| 1 task | mean") == 2
    assert apart.index("1 tasks of made on another;") < apart.index(
        f"1 tasks of made on {MACHINE};"
    )
    assert (tmp_path / "docs/images/report-card-2.svg").exists()


def test_a_column_that_is_left_out_is_in_no_number(run_page):
    run = a_run(task(0, eager=1.0, playbook=2.0, published=4.0))
    assert "`published`" in run_page(run) and "Against the published kernels" in run_page(run)
    words = ("--commit", "abcdef0", "--without", "published")
    text = run_page(run, words=words)
    assert "published" not in text
    assert row_of(text, "playbook")[0] == "2.00"


def test_a_column_that_the_run_lacks_cannot_be_left_out(run_page, capsys):
    words = ("--commit", "abcdef0", "--without", "publshed")
    with pytest.raises(SystemExit):
        run_page(a_run(task(0, playbook=2.0)), words=words)
    assert "publshed" in capsys.readouterr().err


def test_the_picture_is_a_drawing_of_its_own_with_a_legend(run_page, tmp_path):
    run_page(a_run(task(0, eager=1.0, playbook=2.0, published=None)))
    file = tmp_path / "docs/images/report-card.svg"
    root = ET.fromstring(file.read_text())
    assert root.tag == f"{SVG}svg"
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert texts[-4:] == ["eager", "playbook", "published", "best"]
    style = root.find(f"{SVG}style").text
    drawn = {one.get("class").split()[-1] for one in root.iter(f"{SVG}path")} - {"grid", "one"}
    assert len(drawn) == 4
    for name in drawn:
        assert f".{name} {{ stroke: #" in style
    assert "var(" not in style


def test_every_column_has_a_color_and_a_long_legend_has_lines(experiment_module):
    plot = experiment_module("results_plot")
    columns = {name: 1.0 for name in COLUMNS if name != BEST}
    root = ET.fromstring(plot.picture([drawing([told(a_task(), columns)], one) for one in COLUMNS]))
    entries = root.findall(f"{SVG}text")
    assert [one.text for one in entries] == list(COLUMNS)
    assert len({one.get("y") for one in entries}) > 1
    assert int(entries[-1].get("y")) < int(root.get("height"))
    assert all(float(one.get("x")) < 640 for one in entries)


@pytest.mark.parametrize("words", [(), ("--commit", "main"), ("--commit", "HEAD~1")])
def test_a_commit_is_asked_for(run_page, words, capsys):
    with pytest.raises(SystemExit):
        run_page(a_run(task(0, playbook=2.0)), words=words)
    assert "--commit" in capsys.readouterr().err
