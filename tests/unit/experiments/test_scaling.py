"""What a run of `bench` amounts to, and which tasks it has."""

from __future__ import annotations

import pytest


@pytest.fixture
def scaling(experiment_module):
    return experiment_module("scaling")


def test_what_an_earlier_run_found_is_not_counted(scaling):
    trials = [{"reused": False}, {"reused": True}, {"reused": False}]
    task = {"machine": "one", "results": [{"trials": trials}, {"trials": trials[:1]}]}
    row = scaling.row_of({"tasks": [task], "elapsed_s": 10.0}, "cuda:0,cuda:1")
    assert (row["num_slots"], row["num_candidates"], row["per_hour"]) == (2, 3, 1080.0)
    assert row["machines"] == ["one"]


def test_a_run_is_a_row_of_the_table(scaling):
    run = scaling.row_of({"tasks": [], "elapsed_s": 10.0}, "cuda:0") | {"speedup": 1.0}
    assert scaling.table({"runs": [run]})[-1] == "| cuda:0 | 0 | 0 | 10 | 0 | 1.00 |"


def test_copies_are_problems_of_their_own(scaling, tmp_path):
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_a.py").write_text("class Model: ...\n")
    scaling.copy_tasks(tmp_path, tmp_path / "tasks", 2)
    texts = {path.read_text() for path in (tmp_path / "tasks").glob("copy?/level1/1_a.py")}
    assert len(texts) == 2


@pytest.mark.slow
def test_bench_is_what_is_run(scaling, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDAL1_CI_TRIAL_NUM_LAUNCHES", "1")
    task = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x)\n\n\ndef get_inputs():\n    return [torch.rand(64)]\n"
    )
    (tmp_path / "relu.py").write_text(task)
    flags = ["--solvers", "eager", "--quiet"]
    row = scaling.row_of(scaling.bench(tmp_path, "cpu", 1, flags), "cpu")
    assert (row["num_tasks"], row["num_candidates"]) == (1, 1)
