"""The report of runs, on folders that are written here."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from cudal1_ci.errors import ReportError
from model_training.report.browser import PER_PIECE, browser_of
from model_training.report.command import report, write_report
from model_training.report.cost import costs_of
from model_training.report.curves import curves
from model_training.report.page import page_text
from model_training.report.rewrites import rewrites_of
from model_training.report.rows import (
    Row,
    differences,
    greedy_rows_of,
    is_better,
    is_worse,
    paired,
    rows_of,
)
from model_training.report.run_folder import read_run, samples_of
from model_training.report.words import FILL
from model_training.table import MEASURES, Sample, table
from model_training.tasks.generate import generate
from model_training.variants.whole import graphed
from model_training.variants.written import rewritten, subject_of
from tests.training.run_folders import HOSTILE, evaluation, judged, metrics, write_json, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of which the second goes on where the first ended."""
    folder = tmp_path_factory.mktemp("runs")
    first = write_run(
        folder / "first",
        metrics=metrics("supervised", 5, loss=0.5) + metrics("self_supervised", 3, correct=0.6),
        samples=judged("supervised", 3) + judged("self_supervised", 4, completion=HOSTILE),
        evaluations=[
            evaluation("base", 0.2, 1.0),
            evaluation("base", 0.2, 1.0, seed=1, k=2),
            evaluation("supervised", 0.5, 1.02),
            evaluation("self_supervised", 0.6, 1.02),
        ],
    )
    second = write_run(
        folder / "second",
        metrics=metrics("contrastive", 6, reward=1.3, divergence=0.1),
        samples=judged("contrastive", 30, completion=HOSTILE),
        evaluations=[
            evaluation("no_exemplars", 0.6, 1.1),
            evaluation("contrastive", 0.8, 1.4),
        ],
    )
    return first, second


@pytest.fixture(scope="module")
def rows(runs: tuple[Path, Path]) -> list[Row]:
    return rows_of([read_run(one) for one in runs])


@pytest.fixture(scope="module")
def page(runs: tuple[Path, Path]) -> str:
    return page_of(*runs)


def passed(task: str, *speedups: float) -> list[Sample]:
    return [Sample(task=task, status="passed", speedup=one) for one in speedups]


# --- rows ------------------------------------------------------------------------------------


def test_rows_are_stages_in_order_then_ablations(rows):
    assert [row.label for row in rows] == [
        "base",
        "supervised",
        "self_supervised",
        "contrastive",
        "no_exemplars",
    ]
    assert [[one.against for one in row.differences] for row in rows] == [
        [],
        ["base"],
        ["supervised"],
        ["self_supervised"],
        ["contrastive"],
    ]


def test_a_row_has_the_samples_of_all_seeds_and_the_smallest_k(rows):
    assert rows[0].seeds == (0, 1)
    assert rows[0].table.num_samples == 2 * rows[1].table.num_samples == 320
    assert {row.table.k for row in rows} == {2}
    assert rows[0].table == table(rows[0].samples, k=2)


def test_an_evaluation_that_is_in_two_runs_counts_once(tmp_path):
    same = evaluation("supervised", 0.3, 1.0)
    folders = [write_run(tmp_path / name, evaluations=[same]) for name in ("a", "b")]
    (row,) = rows_of([read_run(one) for one in folders])
    assert row.table.num_samples == len(same["samples"])


def test_checkpoints_of_one_name_are_told_apart_by_their_run(tmp_path):
    """Their base is one: both runs began with the same weights."""
    folders = [
        write_run(
            tmp_path / name,
            evaluations=[
                evaluation("base", 0.3, 1.0, seed=seed),
                evaluation("supervised", 0.6, speedup, policy="supervised-9"),
                evaluation("contrastive", 0.7, speedup, policy="contrastive-20"),
            ],
        )
        for seed, (name, speedup) in enumerate({"a": 1.1, "b": 1.2}.items())
    ]
    rows = {row.label: row for row in rows_of([read_run(one) for one in folders])}
    assert list(rows) == [
        "base",
        "supervised (a)",
        "supervised (b)",
        "contrastive (a)",
        "contrastive (b)",
    ]
    assert rows["base"].seeds == (0, 1)
    against = {label: [one.against for one in row.differences] for label, row in rows.items()}
    assert against["contrastive (a)"] == ["supervised (a)"]
    assert against["contrastive (b)"] == ["supervised (b)", "contrastive (a)"]
    assert against["supervised (b)"] == ["base", "supervised (a)"]


def test_bases_are_told_apart_by_the_adapter_that_a_run_began_with(tmp_path):
    same = evaluation("base", 0.3, 1.0)
    folders = [write_run(tmp_path / name, evaluations=[same]) for name in ("a", "b")]
    assert [row.label for row in rows_of([read_run(one) for one in folders])] == ["base"]
    settings = json.loads((folders[1] / "config.json").read_text())
    settings["config"]["model"] = {"adapter": "adapters/x"}
    (folders[1] / "config.json").write_text(json.dumps(settings))
    other = evaluation("base", 0.5, 1.0)
    (folders[1] / "evaluations/base.json").write_bytes(msgspec.json.encode(other))
    rows = rows_of([read_run(one) for one in folders])
    assert [row.label for row in rows] == ["base (a)", "base (b)"]
    assert [one.against for one in rows[1].differences] == ["base (a)"]


def test_a_gain_that_each_task_has_is_certain_though_the_rows_overlap():
    """Tasks differ by more than the policies do."""
    before = [one for i in range(12) for one in passed(f"t{i}", *[1 + i / 2] * 4)]
    after = [one for i in range(12) for one in passed(f"t{i}", *[1.1 + i / 2] * 4)]
    found = differences(paired(before, after), k=4)["mean"]
    assert found.value == pytest.approx(0.1)
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.1))
    assert is_better(found) and not is_worse(found)
    assert table(before, 4).mean.high > table(after, 4).mean.low


def test_the_same_samples_are_no_better_and_no_worse():
    samples = [one for i in range(5) for one in passed(f"t{i}", 1.0, 2.0)]
    for found in differences(paired(samples, samples), k=2).values():
        assert (found.value, found.low, found.high) == (0, 0, 0)
        assert not is_better(found) and not is_worse(found)


def test_only_tasks_of_both_are_paired_and_order_does_not_matter():
    before = passed("a", 1.0, 1.0) + passed("b", 1.0, 1.0)
    after = passed("c", 9.0, 9.0) + passed("b", 2.0, 2.0)
    pairs = paired(before, after)
    assert len(pairs) == 1
    assert differences(pairs, k=2)["mean"].value == pytest.approx(1.0)
    assert differences([], k=2) == {}


def test_a_difference_is_that_of_the_two_tables(rows):
    row, other = rows[3], rows[2]
    for measure in MEASURES:
        gain = getattr(row.table, measure).value - getattr(other.table, measure).value
        found = row.differences[0].columns[measure]
        assert found.value == pytest.approx(gain)
        assert found.low <= found.value <= found.high


# --- reading ---------------------------------------------------------------------------------


def test_half_a_line_at_the_end_is_not_there_yet(tmp_path):
    folder = write_run(tmp_path / "run", metrics=metrics("supervised", 3, loss=1.0))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "supervised", "st')
    assert len(read_run(folder).metrics) == 3


def test_a_broken_line_is_named(tmp_path):
    folder = write_run(tmp_path / "run", samples=judged("contrastive", 2))
    path = folder / "samples" / "contrastive.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "{broken}\n", *lines[1:]]))
    with pytest.raises(ReportError, match=r"contrastive\.jsonl, line 2"):
        list(samples_of(read_run(folder)))


def test_of_a_step_that_was_done_twice_the_later_counts(tmp_path):
    twice = metrics("supervised", 3, loss=1.0) + metrics("supervised", 2, loss=7.0)
    found = read_run(write_run(tmp_path / "run", metrics=twice)).metrics
    assert [(row.step, row.numbers["loss"]) for row in found] == [(0, 0.0), (1, 7.0), (2, 1.0)]


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ReportError, match=r"found no config\.json"):
        read_run(tmp_path)


def test_too_few_samples_for_k_are_told_with_the_run(tmp_path):
    short = evaluation("base", 0.5, 1.0, num_samples=4)
    short["k"] = 8
    folder = write_run(tmp_path / "run", evaluations=[short])
    with pytest.raises(ReportError, match="evaluation base: expected at least 8 samples"):
        rows_of([read_run(folder)])


# --- cost and curves -------------------------------------------------------------------------


def test_cost_adds_up_steps_and_samples(runs):
    first, second = (read_run(one) for one in runs)
    supervised, self_supervised = costs_of([first])
    assert (supervised.stage, self_supervised.stage) == ("supervised", "self_supervised")
    assert supervised.num_steps == 5
    assert supervised.wall_s == 50.0
    assert (supervised.generating_s, supervised.judging_s, supervised.training_s) == (20, 15, 10)
    assert supervised.other_s == 5.0
    (contrastive,) = costs_of([second])
    samples = list(samples_of(second))
    assert contrastive.num_samples == len(samples) == 120
    assert contrastive.num_correct == sum(one.status == "passed" for one in samples) > 0
    assert contrastive.num_hacks == sum(one.status == "reward_hack" for one in samples) > 0
    assert contrastive.num_unconfirmed == sum(one.was_confirmed is False for one in samples)
    assert 0 < contrastive.num_unconfirmed < contrastive.num_remeasured


def test_a_curve_is_drawn_in_the_colors_of_the_page(runs):
    found = curves([read_run(one) for one in runs])
    assert [(one.stage, one.key) for one in found if one.is_first] == [
        ("supervised", "loss"),
        ("self_supervised", "correct"),
        ("contrastive", "reward"),
        ("contrastive", "divergence"),
    ]
    assert ("supervised", "score_s") in [(one.stage, one.key) for one in found]
    for one in found:
        assert one.svg.startswith("<svg") and one.svg.endswith("</svg>")
        assert "var(--run-" in one.svg and "#0" not in re.sub(r"url\(#|href=\"#", "", one.svg)
        assert "<style" not in one.svg and "<metadata" not in one.svg


def test_the_same_metrics_are_the_same_drawing(tmp_path):
    run = read_run(
        write_run(
            tmp_path / "run",
            metrics=[
                {"stage": "supervised", "step": step, "seconds": 1.0, "loss": 1.0 / (step + 1)}
                for step in range(50)
            ],
        )
    )
    assert curves([run]) == curves([run])


def test_a_number_of_one_step_is_no_curve(tmp_path):
    folder = write_run(tmp_path / "run", metrics=metrics("supervised", 1, loss=1.0))
    assert curves([read_run(folder)]) == []


# --- the page --------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Counts elements, and keeps what scripts hold."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self._script: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self._script = dict(attrs).get("id") or "code" if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.text += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def unpacked(piece: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(piece)))


def page_of(*folders: Path) -> str:
    found = [read_run(one) for one in folders]
    rows, greedy = rows_of(found), greedy_rows_of(found)
    drawn, cost, rewrites = curves(found), costs_of(found), rewrites_of(found)
    return page_text(found, rows, greedy, rewrites, drawn, cost, browser_of(found))


def test_recordings_are_counted_apart_and_worth_nothing(tmp_path):
    """Of four answers to a task one is recorded, one rewritten, one that twice but for a name."""
    task = generate(0, "diagonal")
    subject = subject_of(task.text)
    assert subject is not None
    rewrite = rewritten(subject, subject.found, 0).text
    codes = (graphed(subject, ()).text, rewrite, rewrite.replace("x", "y"), None)
    speedups = (2.0, 1.2, 1.1, None)
    said = [
        {
            **judged("evaluation-base", 1, group=1)[0],
            "task": task.name,
            "completion": f"## Code\n```python\n{code}```" if code else "None.",
            "status": "passed" if code else "no_code",
            "speedup": speedup,
        }
        for code, speedup in zip(codes, speedups, strict=True)
    ]
    samples = [Sample(task=task.name, status=one["status"], speedup=one["speedup"]) for one in said]
    one = {**evaluation("base", 1.0, 1.0), "samples": samples, "table": table(samples, 4)}
    folder = write_run(tmp_path / "run", samples=said, evaluations=[one])
    assert rewrites_of([read_run(folder)]) == [], "whose tasks are not known"
    (folder / "tasks").mkdir()
    (folder / "tasks" / "evaluation.jsonl").write_bytes(msgspec.json.encode(task) + b"\n")
    (found,) = rewrites_of([read_run(folder)])
    assert (found.num_right, found.num_recordings, found.num_distinct) == (3, 1, 2.0)
    assert found.row.table.correct.value == 0.5
    assert found.row.table.max == 1.2
    for path in (*folder.glob("samples/*.jsonl"), folder / "tasks" / "evaluation.jsonl"):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert rewrites_of([read_run(folder)]) == [found], "from compressed files"
    assert len(list(samples_of(read_run(folder)))) == 4
    page, text, *_ = write_report((folder,), tmp_path / "out")
    assert "| base | 3/4 | 1 | 50.0% [50.0, 50.0]" in text.read_text()
    assert "recordings among them" in page.read_text()


def test_what_a_model_wrote_cannot_be_markup(tmp_path):
    hostile = evaluation("base", 0.5, 1.0, num_tasks=2, policy=HOSTILE)
    hostile["name"] = HOSTILE
    hostile["samples"] = [*hostile["samples"], *passed(HOSTILE, *[1.0] * 8)]
    hostile["greedy"] = {"samples": passed(HOSTILE, 1.0)}
    lines = judged("contrastive", 3, completion=HOSTILE)
    for one in lines:
        one["task"] = one["status"] = one["refused"] = HOSTILE
    folder = tmp_path / "run"
    write_run(folder, samples=lines, metrics=metrics("contrastive", 3, **{f"loss{HOSTILE}": 1.0}))
    write_json(folder / "evaluations" / "hostile.json", hostile)
    page = page_of(folder)
    found = Elements(page)
    assert "img" not in found.tags
    assert found.handlers == []
    assert set(found.scripts) == {"index", "samples-0", "prompts-0", "code"}
    assert "owned" not in "".join(found.scripts.values())
    assert "owned" in found.text, "told as text, in the table"
    assert "innerHTML" not in found.scripts["code"]


def test_the_policy_of_the_page_allows_its_own_script_alone(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in re.sub(r"style-src [^;]*", "", policy[1])
    assert not re.search(r'(?:src|href)="http', page)


def test_every_sample_is_in_the_page_with_its_prompt(runs, page):
    found = Elements(page).scripts
    index = unpacked(found["index"])
    samples = [
        one for name, piece in found.items() if name[:8] == "samples-" for one in unpacked(piece)
    ]
    prompts = [
        one for name, piece in found.items() if name[:8] == "prompts-" for one in unpacked(piece)
    ]
    written = [one for folder in runs for one in samples_of(read_run(folder))]
    assert len(index["rows"]) == len(samples) == len(written) == 148
    assert len(prompts) == 34, "once a run, though two stages of one have asked the same"
    for row, shown, one in zip(index["rows"], samples, written, strict=True):
        names = {key: index["names"][key][row[place]] for key, place in (("stage", 1), ("task", 3))}
        assert names == {"stage": one.stage, "task": one.task}
        assert (row[5], row[6]) == (one.speedup, one.reward)
        assert shown["completion"] == one.completion
        assert shown["findings"] == list(one.findings)
        assert prompts[row[7]][1][1].startswith(f"Make task {one.step} faster. {HOSTILE}")


def test_a_page_of_twenty_thousand_samples_has_few_elements(tmp_path):
    long = "x = x + 1\n" * 150
    folder = write_run(tmp_path / "run", samples=judged("contrastive", 5000, completion=long))
    page = page_of(folder)
    found = Elements(page)
    assert (
        len([name for name in found.scripts if name.startswith("samples-")]) == 20_000 / PER_PIECE
    )
    assert len(found.tags) < 500
    assert len(page) < 3_000_000 < 20_000 * len(long)


# --- the text and the command ----------------------------------------------------------------


def test_the_command_writes_the_page_the_text_and_the_drawings(runs, rows, tmp_path):
    done = CliRunner().invoke(
        report, [*map(str, runs), "--output", str(tmp_path / "out")], catch_exceptions=False
    )
    assert done.exit_code == 0
    written = [Path(line) for line in done.output.split()]
    assert all(path.is_file() for path in written)
    assert {path.name for path in written} >= {
        "report.html",
        "report.md",
        "contrastive-reward.svg",
    }
    text = (tmp_path / "out" / "report.md").read_text()
    assert FILL in text
    for row in rows:
        line = next(
            line
            for line in text.splitlines()
            if line.startswith(f"| {row.label.replace('_', chr(92) + '_')} |")
        )
        assert f"{row.table.correct.value:.1%}" in line
        assert f"{row.table.geometric_mean.value:.2f}x" in line
        assert f"{row.table.max:.2f}x" in line
    assert "contrastive against self\\_supervised" in text
    assert "better" in text


def test_likeliest_answers_are_a_table_of_their_own(tmp_path):
    sampled, likeliest = evaluation("base", 0.2, 1.0), evaluation("supervised", 0.5, 1.0)
    likeliest["greedy"] = {"samples": [*passed("one", 1.5), Sample(task="two", status="no_code")]}
    folder = write_run(tmp_path / "run", evaluations=[sampled, likeliest])
    (row,) = greedy_rows_of([read_run(folder)])
    assert (row.label, row.temperature, row.table.k) == ("supervised", 0.0, 1)
    assert (row.table.num_samples, row.table.correct.value) == (2, 0.5)
    page, text, *_ = write_report((folder,), tmp_path / "out")
    told = text.read_text().partition("## Likeliest answers")[2]
    assert "| supervised | 2 | 2 | 50.0%" in told and "best of 1" in told
    assert "Likeliest answers" in page.read_text()


def test_a_run_of_which_nothing_is_known_yet_has_a_report(tmp_path):
    written = write_report((write_run(tmp_path / "run"),), tmp_path / "out")
    assert [path.name for path in written] == ["report.html", "report.md"]
    assert "Nothing was evaluated." in written[1].read_text()
