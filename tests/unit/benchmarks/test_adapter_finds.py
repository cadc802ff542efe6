"""What a model found beyond the playbook: counted by author, and only where it is known."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest


@pytest.fixture
def finds(benchmark_module):
    return benchmark_module("adapter_finds")


def an_evaluation(status="passed", by="playbook", low=1.5, high=1.7, workload="w"):
    measured = {
        "workload": workload,
        "speedup": 1.6,
        "speedup_low": low,
        "speedup_high": high,
        "reference_us": 20.0,
        "candidate_us": 12.0,
        "num_pairs": 9,
    }
    return {
        "status": status,
        "measurements": [measured] if status == "passed" else [],
        "candidate": {
            "proposer": f"{by}:x",
            "generation": {"model": "m"} if by == "model" else None,
            "patch": "--- a",
        },
    }


def an_entry(name, *evaluations, best=None, skipped=None, **use):
    used = {
        "model": "coder",
        "adapter": "ab",
        "adapter_name": "small",
        "num_answers": 4,
        "num_repairs": 1,
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "generating_s": 2.5,
        "waiting_s": 1.0,
        "refused": {"no_code": 2},
    }
    return {
        "target": {"path": "a.py", "qualname": name},
        "skipped": skipped,
        "evaluations": list(evaluations),
        "best": best,
        "model_use": {**used, **use} if use else None,
    }


def a_report(*entries, ended="done"):
    return {"ended": ended, "elapsed_s": 12.34, "totals": {"num_targets": 1}, "entries": entries}


def test_verdicts_are_counted_by_author_and_answers_by_what_became_of_them(finds):
    found = finds.found_in(
        a_report(
            an_entry(
                "A",
                an_evaluation(),
                an_evaluation("incorrect_values", by="model"),
                an_evaluation(by="model"),
                best=2,
                num_answers=5,
            ),
            an_entry("B", an_evaluation("timeout", by="model"), refused={"no_code": 1, "empty": 1}),
            an_entry("C", skipped="not reached: the budget was spent"),
            an_entry("D", skipped="no workload"),
            ended="budget",
        )
    )
    assert found["candidates_judged"] == {
        "playbook": {"number": 1, "statuses": {"passed": 1}},
        "model": {"number": 3, "statuses": {"incorrect_values": 1, "passed": 1, "timeout": 1}},
    }
    assert found["model"]["num_answers"] == 9
    assert found["model"]["generating_s"] == 5.0
    assert found["model"]["answers_without_candidate"] == {"no_code": 3, "empty": 1}
    assert (found["model"]["adapter_name"], found["model"]["num_targets"]) == ("small", 2)
    assert [(one["target"], one["by"]) for one in found["proposals"]] == [("a.py:A", "model")]
    assert found["unreached"] == ["a.py:C"]
    assert (found["ended"], found["elapsed_s"]) == ("budget", 12.3)
    assert finds.found_in(a_report(an_entry("A")))["model"] is None


def found(finds, **proposals):
    """What a scan with these proposals found; None is a target that it had no time for."""
    return finds.found_in(
        a_report(
            *(
                an_entry(name, one, best=0)
                if one
                else an_entry(name, skipped="not reached: the budget was spent")
                for name, one in proposals.items()
            )
        )
    )


@pytest.mark.parametrize(
    ("mine", "theirs", "how"),
    [
        ((2.0, 2.2), (1.5, 1.7), "faster"),
        ((1.6, 1.9), (1.5, 1.7), None),
        ((1.5, 1.7), (2.0, 2.2), None),
        ((None, None), (1.5, 1.7), None),
        ((1.8, 1.9), (None, None), None),
    ],
)
def test_faster_is_what_lies_apart(finds, mine, theirs, how):
    one = found(finds, A=an_evaluation(by="model", low=mine[0], high=mine[1]))
    other = found(finds, A=an_evaluation(low=theirs[0], high=theirs[1]))
    rows = finds.beyond(one, other)["rows"]
    assert rows == ([{"target": "a.py:A", "by": "model", "how": how}] if how else [])


def test_other_workloads_are_not_compared(finds):
    one = found(finds, A=an_evaluation(low=9, high=10, workload="large"))
    assert finds.beyond(one, found(finds, A=an_evaluation()))["rows"] == []


def test_a_find_is_new_only_where_the_other_scan_has_looked(finds):
    one = found(
        finds,
        A=an_evaluation(by="model"),
        B=an_evaluation(by="model"),
        C=an_evaluation(),
        D=None,
    )
    other = found(finds, A=None, D=an_evaluation(), E=an_evaluation())
    result = finds.beyond(one, other)
    assert result["rows"] == [
        {"target": "a.py:B", "by": "model", "how": "new"},
        {"target": "a.py:C", "by": "playbook", "how": "new"},
    ]
    assert (result["new_by_model"], result["new_by_playbook"]) == (1, 1)
    assert (result["faster_by_model"], result["faster_by_playbook"]) == (0, 0)
    assert result["missing"] == ["a.py:E"], "D was not reached"


def test_a_scan_without_a_report_is_told_and_compared_with_nothing(finds):
    ways = {
        "playbook": {**found(finds, A=an_evaluation()), "exit_code": 0, "seconds": 3.0},
        "base": {"failure": "ModelError", "exit_code": 4, "seconds": 1.0},
        "adapter": {
            **found(finds, B=an_evaluation(by="model")),
            "exit_code": 0,
            "seconds": 5.0,
        },
    }
    pairs = finds.compared(ways)
    assert list(pairs) == ["adapter beyond playbook"]
    told = finds.lines({"repository": "r", "ways": ways, "compared": pairs})
    assert told[0] == "r"
    assert "  base: no report (exit code 4)" in told
    assert told[-1] == (
        "  adapter beyond playbook: by the model 1 new, 0 faster; by a rewrite 0 new, 0 faster; "
        "1 missing"
    )


def test_each_way_tells_the_scan_what_it_is(finds):
    options = argparse.Namespace(
        model="m", adapter="/lora", server_python=Path("/venv/bin/python"), base_url=None
    )
    assert finds.words_of("playbook", options) == ["--no-model"]
    assert finds.words_of("playbook again", options) == ["--no-model"]
    assert finds.words_of("base", options) == ["--model", "m", "--adapter", "none"]
    assert finds.words_of("adapter", options) == ["--model", "m", "--adapter", "/lora"]
    assert finds.environment(options)["CUDAL1_CI_MODEL_PYTHON"] == "/venv/bin/python"
    assert finds.environment(options)["CUDAL1_CI_STATE_DIR"] == finds.STATE
    served = argparse.Namespace(base_url="http://a/v1", adapter_url="http://b/v1")
    assert finds.words_of("playbook", served) == ["--no-model"]
    assert finds.words_of("base", served) == ["--model", "http://a/v1"]
    assert finds.words_of("adapter", served) == ["--model", "http://b/v1"]


def test_a_scan_begins_without_what_the_one_before_it_knew(finds, monkeypatch, tmp_path):
    state = tmp_path / finds.STATE
    state.mkdir(parents=True)
    options = argparse.Namespace(
        model="m",
        adapter="auto",
        server_python=None,
        base_url=None,
        python="py",
        device="cpu",
        budget="9s",
    )

    class Done:
        returncode, stderr = 0, "it broke"

    def tool(_, *words):
        assert not (state / "archive.sqlite").exists()
        (state / "archive.sqlite").touch()
        if "--no-model" in words:
            Path(words[words.index("--json") + 1]).write_text(json.dumps(a_report(an_entry("A"))))
        return Done()

    monkeypatch.setattr(finds, "tool", tool)
    assert finds.scanned(tmp_path, "playbook again", options)["proposals"] == []
    assert finds.scanned(tmp_path, "base", options)["failure"] == "it broke"
