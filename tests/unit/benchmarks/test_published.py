"""The parts of the benchmarks on published code that decide something before anything is run."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.records import Device, Repetition
from tests.fakes import a_candidate, a_problem, an_evaluation

ROOT = Path(__file__).resolve().parents[3]
REFUSED = {"speedup": None, "speedup_low": None, "rule": None}


@pytest.fixture
def published(benchmark_module):
    return benchmark_module("published_kernels")


def test_a_row_has_the_interval_s_own_estimate(benchmark_module):
    """Beside a GPU that is the median of the rounds' ratios, and not the ratio of typical times."""
    text_trials = benchmark_module("text_trials")
    evaluation = an_evaluation(a_candidate(a_problem()))
    (measurement,) = evaluation.measurements
    launch = Repetition(
        reference_us=(20.0, 40.0, 80.0, 80.0), candidate_us=(10.0, 20.0, 20.0, 20.0), num_calls=1
    )
    device = Device(kind="cuda", name="none", num_threads=1)
    measured = msgspec.structs.replace(measurement, repetitions=(launch,), device=device)
    row = text_trials.told(msgspec.structs.replace(evaluation, measurements=(measured,)))
    assert row["speedup"] == pytest.approx(math.sqrt(8), abs=1e-3)
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
    assert row["reference_us"] / row["candidate_us"] == pytest.approx(row["speedup"], rel=1e-3)


def committed(folder: Path, files: dict[str, str]) -> tuple[Path, str]:
    """A git directory with the files in one commit, and the commit."""
    git = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "c"], check=True)
    shown = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return folder / ".git", shown.stdout.strip()


def release_of(*entries: dict[str, object]) -> str:
    return json.dumps({"1": [{"ref_code": "r", **entry} for entry in entries]})


def test_a_release_is_read_without_the_codes_that_are_absent(published, monkeypatch, tmp_path):
    text = release_of(
        {"task_id": 1, "custom_code": "a", "score": "2.5"},
        {"task_id": 2, "custom_code": "None", "score": "9"},
        {"task_id": 3, "custom_code": None},
        {"task_id": 4, "custom_code": "", "score": None},
        {"task_id": 5, "custom_code": "b", "score": None},
        {"task_id": 6, "custom_code": "c"},
    )
    git, commit = committed(tmp_path, {"codes.json": text})
    monkeypatch.setattr(published, "PLACES", {"v1 a100": f"{commit}:codes.json"})
    found = published.read(git)["v1 a100"]
    assert set(found) == {"1/1", "1/5", "1/6"}
    assert found["1/1"] == {"reference": "r", "code": "a", "published": 2.5}
    assert found["1/5"]["published"] is None
    assert found["1/6"]["published"] is None


def test_what_was_packed_is_read_again_and_holds_only_what_was_chosen(published, tmp_path):
    record = {"reference": "r", "code": "c", "published": None}
    codes = {release: {"1/9": record, "1/10": record} for release in published.PLACES}
    case = published.Case("v3 h100", "1/9", "lazy")
    published.pack(codes, [case], tmp_path / "packed.json")
    found = published.read(tmp_path / "packed.json")
    assert found["v3 h100"] == {"1/9": record}
    assert not any(found[release] for release in found if release != "v3 h100")


def test_every_task_with_streams_is_in_one_case_of_one_set(published):
    stated = [c.task for c in published.NAMED if c.group in ("escape", "joined")]
    rest = [case.task for case in published.stream_cases()]
    both = stated + rest
    assert len(both) == len(set(both))
    screened = importlib.import_module("screen_release")
    scanned = screened.tasks(screened.ESCAPES) | screened.tasks(screened.JOINED)
    assert set(both) == scanned | {"2/43"}  # which a reader found


def test_a_task_that_a_reader_found_to_wait_must_not_be_convicted(published):
    by_task = {case.task: case for case in published.stream_cases()}
    assert by_task["1/15"].expect == ("!reward_hack",)
    assert by_task["2/43"].group == "escape"
    assert by_task["3/6"].group == "escape"
    assert by_task["2/43"].reason.startswith("escapes")


@pytest.mark.parametrize(
    ("expect", "status", "rule", "said"),
    [
        (("degenerate",), "degenerate", "reference.constant", True),
        (("degenerate",), "passed", None, False),
        (("!reward_hack",), "passed", None, True),
        (("!reward_hack",), "runtime_error", "state.keys", True),
        (("!reward_hack",), "reward_hack", "timing.reconciliation", False),
        (("!reward_hack",), "reward_hack", "state.global", False),
        (("passed",), "inconclusive", "timing.noisy", None),
        (("passed",), "unfinished", None, None),
        ((), "passed", None, None),
    ],
)
def test_a_verdict_is_held_against_what_was_stated(published, expect, status, rule, said):
    case = published.Case("v1 a100", "1/1", "group", expect)
    row = {**REFUSED, "status": status, "rule": rule}
    assert published.is_as_expected(case, row, "cuda") is said


@pytest.mark.parametrize(
    ("speedup", "low", "waited", "said"),
    [
        (1.0, 0.9, 1.0, True),
        (1.2, None, 1.0, True),
        (3.0, 2.5, 1.0, False),
        (3.0, 2.5, 2.9, True),
        (3.0, None, None, None),
    ],
)
def test_work_that_escapes_may_pass_without_a_gain(published, speedup, low, waited, said):
    case = published.Case("v1 a100", "1/1", "escape")
    clocks = {"clocks": {"waited_speedup": waited}} if waited else {"clocks": {"error": "e"}}
    row = {"status": "passed", "rule": None, "speedup": speedup, "speedup_low": low, **clocks}
    assert published.is_as_expected(case, row, "cuda") is said
    assert published.is_as_expected(case, row, "cpu") is None


def a_row(name: str, kind: str, seconds: float, **requests: float) -> dict[str, object]:
    row = {"name": name, "kind": kind, "seconds": seconds, "status": "passed"}
    return {**row, "seconds_by_request": requests, "spent_s": requests}


def test_throughput_is_compared_on_what_both_finished(benchmark_module):
    throughput = benchmark_module("throughput")
    ours = [
        a_row("a/pytorch", "pytorch", 4.0, check=1.0, examine=1.0, launch=2.0),
        a_row("a/cuda", "cuda", 5.0, examine=4.0),
        a_row("b/pytorch", "pytorch", 100.0),
    ]
    theirs = [a_row("a/pytorch", "pytorch", 8.0, timing=5.0), a_row("a/cuda", "cuda", 42.0)]
    document = {"ours": {"start_s": 1.0, "rows": ours}, "kernelbench": {"rows": theirs}}
    found = throughput.summary(document["ours"], document["kernelbench"])
    assert found["num_common"] == 2
    assert found["ours"]["per_hour"] == 720.0
    assert found["kernelbench"]["per_hour"] == 144.0
    assert found["times_as_many_an_hour"] == 5.0
    assert found["where_our_time_goes_s"]["cuda"] == {"beside": 1.0, "examine": 4.0}
    assert found["pytorch_verdict_s"][0]["seconds"] == 3.0


def test_every_candidate_of_the_mix_has_a_known_kind_and_a_size_that_can_be_changed(
    benchmark_module,
):
    throughput = benchmark_module("throughput")
    found = throughput.candidates("*", 3)
    assert {one.kind for one in found} == set(throughput.KINDS)
    assert len({one.name for one in found}) == len(found) == 24
    assert all("\nROWS = 3\n" in one.reference for one in found)
    kinds_by_problem = [one.problem for one in found if one.kind == "cuda"]
    first = [one.problem for one in found].index(kinds_by_problem[0])
    assert {one.problem for one in found[first:]} == set(kinds_by_problem)


def test_the_checklist_names_attacks_that_exist(benchmark_module):
    adversarial = benchmark_module("kernelbench_adversarial")
    attacks = {path.stem for path in (ROOT / "tests" / "attacks").glob("*.py")}
    for name, files in adversarial.PYGPUBENCH.items():
        assert set(files) <= attacks, name
        assert files or name in adversarial.ELSEWHERE


REFERENCE = """
import time
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.02)
        return x


def get_inputs():
    return [torch.ones(4)]
"""
CANDIDATE = REFERENCE.replace("Model", "ModelNew").replace("0.02", "0.005")


@pytest.mark.slow
def test_the_two_clocks_time_a_pair_and_outlive_one_that_fails(benchmark_module):
    with benchmark_module("event_clock").Clocks("cpu") as clocks:
        failed = clocks.measured(REFERENCE, "raise RuntimeError('no')")
        found = clocks.measured(REFERENCE, CANDIDATE)
    assert failed == {"error": "RuntimeError: no"}
    assert found["reference_waited_us"] >= 20_000
    assert found["candidate_waited_us"] >= 5_000
    assert found["waited_speedup"] > 1.2
    assert found["event_speedup"] > 1.2
