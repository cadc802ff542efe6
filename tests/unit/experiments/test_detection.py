"""Requests of experiments/detection.py are what they are called, and its rates are exact."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import tomllib

import pytest
import torch


@pytest.fixture
def detection(experiment_module):
    return experiment_module("detection")


def answer(detection, kind, files):
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in kind.shapes(8)]
    return detection.callable_of(kind, files)(*inputs)


def test_harmless_edits_change_no_answer_and_do_change_a_file(detection):
    num_changed = 0
    for kind in detection.KINDS.values():
        base = detection.files_of(kind, 8, 2)
        for edit in detection.EDITS.values():
            head = edit(base)
            num_changed += head != base
            torch.testing.assert_close(
                answer(detection, kind, head), answer(detection, kind, base), rtol=0, atol=0
            )
    assert num_changed == len(detection.KINDS) * len(detection.EDITS)


def test_what_a_regression_adds_can_be_run(detection):
    for kind in detection.KINDS.values():
        base = detection.files_of(kind, 8, 2)
        for way in (*kind.extras, "layers"):
            head = detection.with_extra(kind, 8, 2, way, 3)
            assert head != base
            assert answer(detection, kind, head).shape == answer(detection, kind, base).shape


def test_a_request_of_several_modules_names_each_as_required(detection):
    modules = detection.modules_of(3, 0, "cpu", [False, False])
    files = detection.tree(modules, 0)
    targets = [detection.target_of(one, place) for place, one in enumerate(modules)]
    settings = tomllib.loads(files["pyproject.toml"])["tool"]["cudal1-ci"]
    assert settings["gate"]["required"] == targets
    assert [one["target"] for one in settings["workload"]] == targets
    assert all(target.partition(":")[0] in files for target in targets)


def test_a_loop_on_a_gpu_ends_its_process_before_verifiers_go_on(detection, monkeypatch):
    monkeypatch.setattr(detection, "gpu_uuid", lambda device, environ: "GPU-of-a-test")
    events = []

    @contextlib.contextmanager
    def exclusive(name):
        yield
        events.append((name, [one.pid for one in multiprocessing.active_children()]))

    monkeypatch.setattr(detection, "exclusive", exclusive)
    with detection.device_of("cuda") as alone:
        pid = alone(os.getpid)
    ((name, left),) = events
    assert name == "of-a-test"
    assert pid != os.getpid() and pid not in left


def test_a_seed_draws_the_same_request_again(detection):
    one, other = (detection.harmless(random.Random("0 7")) for _ in range(2))
    assert one == other


def test_a_regression_counts_by_the_loop_that_has_not_selected_it(detection):
    def row(verdict, estimate, is_slower=True):
        return {
            "is_slower": is_slower,
            "loop": {"estimate": estimate},
            "chosen_by": {"estimate": 1.15},
            "targets": [{"verdict": verdict}, {"verdict": "skipped"}],
            "conclusion": "failure" if verdict == "regression" else "success",
            "seconds": 10.0,
            "load": 2.0,
        }

    found = [row("regression", 1.1)] * 19 + [row("inconclusive", 1.12)]
    less, equal = [row("same", 1.04)], [row("same", 1.2, is_slower=False)] * 100
    facts = dict.fromkeys(("processor", "torch", "date", "commit", "command", "num_cores"), "1")
    said = "\n".join(detection.table({**facts, "rows": [*found, *less, *equal]}))
    assert "| 10 % and more | 20 | 19 | 1 | 0 | 0 | 0 | 0 | 19 | 10.0, 10.0 |" in said
    assert "| less than 10 % | 1 |" in said
    assert "False alarms: 0 of 100, at most 3.0%." in said
    assert "19 of 20, at least 78.4%" in said
