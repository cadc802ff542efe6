"""`bench` on five small tasks: the whole path, from files to a page, in two legs."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.integration.conftest import run

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

TASKS = Path(__file__).parents[1] / "bench_tasks"
WORDS = ("bench", TASKS / "KernelBench", TASKS / "published.json", "--device", "cpu", "-q")
SOLVERS = ("--solvers", "eager,playbook,published,best", "--policy", "cuda-l1")


@pytest.fixture(scope="module")
def folder(clock, tmp_path_factory):
    """Where both legs ran: the first one until its budget was spent."""
    folder = tmp_path_factory.mktemp("bench")

    def leg(*words):
        given = (*WORDS, *SOLVERS, "--output", "run.json", "--html", "run.html", *words)
        # Compiling takes long, and depends on what is installed.
        settings = {"CUDAL1_CI_TRIAL_NUM_LAUNCHES": "1", "CUDAL1_CI_PLAYBOOK_COMPILE": "false"}
        return run(*given, cwd=folder, **settings)

    for seconds in range(1, 20):  # until a part of it was done, whatever the machine
        first = leg("--budget", f"{seconds}s")
        assert first.code == 6, first.stderr
        assert "--resume continues" in first.stdout
        if evaluations_in(folder):
            break
    assert evaluations_in(folder)
    second = leg("--resume")
    assert second.code == 0, second.stderr
    again = leg("--resume")
    assert again.code == 2
    assert "no unfinished run" in again.stderr
    return folder


@pytest.fixture(scope="module")
def document(folder):
    ran = run("bench", "--merge", "run.json", "run.json", "--output", "-", cwd=folder)
    assert ran.code == 0, ran.stderr
    return ran.json


def trials(document, task, solver):
    (found,) = [one for one in document["tasks"] if one["name"] == task]
    (result,) = [one for one in found["results"] if one["solver"] == solver]
    return result["trials"]


def test_verdicts_are_the_judges(document):
    assert document["schema_version"] == 1
    assert [task["standing"] for task in document["tasks"]] == ["judged"] * 4 + ["degenerate"]
    assert document["tasks"][-1]["reason"].startswith("reference.constant")
    (wrong,) = trials(document, "level1/2", "published")
    assert wrong["status"] == "incorrect_values"
    (rewritten,) = trials(document, "level1/1", "playbook")
    # A busy machine may time nothing; what is measured is right.
    assert rewritten["status"] in ("passed", "inconclusive")
    assert "unsqueeze" in rewritten["code"]
    assert trials(document, "level1/3", "published") == []


def evaluations_in(folder):
    """How often each of the candidates was judged."""
    archive = folder / ".cudal1-ci" / "bench.sqlite"
    with contextlib.closing(sqlite3.connect(archive)) as connection:
        return connection.execute(
            "SELECT count(*) FROM evaluations GROUP BY problem_id, candidate_id, policy"
        ).fetchall()


def test_nothing_that_was_finished_is_asked_again(folder):
    # Five references, of which four are the candidates of `eager` too, four rewrites and two
    # published kernels.
    assert evaluations_in(folder) == [(1,)] * 15


def test_every_column_has_the_same_tasks_by_both_ways_of_counting(document):
    rows = [row for row in document["card"] if row["scope"] == "all"]
    assert {row["num_tasks"] for row in rows} == {4}
    assert len(rows) == 2 * 4
    (best,) = [row for row in rows if row["solver"] == "best" and row["policy"] == "strict"]
    assert best["num_success"] == 4
    assert best["q25"] >= 1.0
    (published,) = [r for r in rows if r["solver"] == "published" and r["policy"] == "strict"]
    assert published["num_given"] == 2
    assert published["num_success"] <= 1


def test_the_page_holds_the_card_and_the_candidates(folder):
    page = (folder / "run.html").read_text()
    assert "Excluded: wrong answers would pass" in page
    assert "level1/1" in page
    assert "a.unsqueeze(-1) * b" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--solvers", "eager,fastest"), "expected some of"),
        (("--solvers", "contrastive"), "needs a model"),
        (("--shard", "5/4"), "such as 2/4"),
        (("--budget", "8"), "90s, 10m or 8h"),
        (("--level", "9"), "none of the 5 tasks"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(tmp_path, words, said):
    ran = run(*WORDS, *words, cwd=tmp_path)
    assert ran.code == 2
    assert said in " ".join(ran.stderr.split())
    assert not (tmp_path / ".cudal1-ci" / "bench.sqlite").exists()
