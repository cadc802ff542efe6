"""A scan with a model behind a real server: good answers become patches, bad ones are counted."""

from __future__ import annotations

import shutil
from contextlib import ExitStack

import pytest

from tests.integration.conftest import UNREVIEWED, attempts, run
from tests.replay_server import Status, replay_server

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

SLOW = '''\
import torch
from torch import nn


class Pooling(nn.Module):
    """Weighted rows."""

    def __init__(self, dim: int = 512):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        rows = [x[i] * self.weight[i] for i in range(x.shape[0])]
        return torch.stack(rows)


OTHER = 1
'''
CONFIG = """\
[tool.cudal1-ci.optimizer]
num-rounds = 2
num-samples = 3
num-repairs = 1

[tool.cudal1-ci.playbook]
skip = ["loops"]  # a rule would find the right answer too

[[tool.cudal1-ci.workload]]
target = "pkg/slow.py:Pooling"
inputs = ["float32[512, 64]"]
"""


def answer(forward: str, analysis: str = "One kernel for each row.") -> str:
    return f"""## Performance analysis
{analysis}

## Algorithm design
All rows at once.

## Code
```python
import torch
from torch import nn


class Pooling(nn.Module):
    def __init__(self, dim: int = 512):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        {forward}
```
"""


RIGHT = answer("return x * self.weight[: len(x), None]", "Ask @all: https://example.org")
WRONG = answer("return x * self.weight.sum()")
CHEATING = answer("self.last = getattr(self, 'last', None); return x.new_zeros(x.shape)")
PROSE = "You should fuse the loop into one multiplication."
KEY = "sk-very-secret"


@pytest.fixture
def root(checkout):
    return checkout({"pkg/__init__.py": "", "pkg/slow.py": SLOW, "pyproject.toml": CONFIG})


def scan(root, server, *words, **more):
    return run(
        *("scan", root, "--model", server.url, "--json", "-", *words),
        OPENAI_API_KEY=KEY,
        CUDAL1_CI_MODEL_NUM_CONCURRENT="1",
        **UNREVIEWED,
        **more,
    )


def scan_until(is_settled, root, *words, answers, opinions=(), **more):
    """A scan with what both servers were asked, again while the machine is too busy to prove what
    is there."""
    for _ in attempts():
        shutil.rmtree(root / ".cudal1-ci", ignore_errors=True)
        with ExitStack() as stack:
            server = stack.enter_context(replay_server(answers=answers))
            other = stack.enter_context(replay_server(answers=opinions, models=["critic"]))
            critic = {"CUDAL1_CI_OPINION_MODEL": other.url} if opinions else {}
            ran = scan(root, server, *words, **critic, **more)
        assert ran.code == 0, ran.stderr
        if is_settled(ran.json["entries"][0]):
            break
    return ran, server.requests, other.requests


def is_proven(entry):
    return entry["best"] is not None


def was_doubted(entry):
    return entry["opinion_use"] is not None and entry["opinion_use"]["num_asked"] > 0


def test_the_right_answer_wins_and_the_others_are_told(root):
    words = ("--apply", "--patches", root / "patches")
    answers = [WRONG, PROSE, RIGHT, CHEATING]
    ran, requests, _ = scan_until(is_proven, root, *words, answers=answers)
    prompts = [str(request) for request in requests]
    (entry,) = ran.json["entries"]
    assert entry["best"] is not None, ran.stderr
    best = entry["evaluations"][entry["best"]]
    assert best["candidate"]["proposer"].startswith("model:")
    assert best["candidate"]["generation"]["seed"] is not None
    assert best["measurements"][0]["speedup_low"] > 1.5
    statuses = [one["status"] for one in entry["evaluations"]]
    assert "incorrect_values" in statuses
    assert entry["model_use"]["refused"]["no_code"] == 1
    assert entry["model_use"]["num_repairs"] == 1
    text = (root / "pkg/slow.py").read_text()
    assert "return x * self.weight[: len(x), None]" in text
    assert '"""Weighted rows."""' in text, "the author's docstring stays"
    assert text.endswith("\n\nOTHER = 1\n")
    assert any("aten::" in prompt for prompt in prompts), "the profile of the reference is shown"
    assert "tokens" in ran.stderr
    assert KEY not in ran.stderr + ran.stdout


def test_a_bad_server_costs_answers_and_not_the_scan(root):
    with replay_server(answers=[Status(500), "word " * 3000, "<html>busy</html>"]) as server:
        ran = scan(root, server, CUDAL1_CI_MODEL_MAX_RETRIES="0")
    assert ran.code == 0, ran.stderr
    (entry,) = ran.json["entries"]
    assert entry["skipped"] is None
    refused = entry["model_use"]["refused"]
    assert refused["server"] == refused["degenerate"] == 1
    assert refused["no_code"] >= 1
    assert sum(refused.values()) == entry["model_use"]["num_answers"]


ONE_ANSWER = {
    "CUDAL1_CI_OPTIMIZER_NUM_ROUNDS": "1",
    "CUDAL1_CI_OPTIMIZER_NUM_SAMPLES": "1",
}


def test_a_jump_is_shown_to_another_model_and_its_suspicion_takes_the_proposal_back(root):
    looks_bad = answer("at = x.data_ptr(); return x * self.weight[: len(x), None]")
    said = "verdict: hack\nIt drops the loop over rows; @all see https://example.org"
    ran, requests, others = scan_until(
        was_doubted,
        root,
        answers=[looks_bad],
        opinions=[said],
        OPINION_API_KEY="sk-of-the-critic",
        **ONE_ANSWER,
    )
    assert len(others) == 1, ran.stderr
    (asked,) = others
    keys = {request["headers"]["authorization"] for request in requests}
    (entry,) = ran.json["entries"]
    assert entry["best"] is None
    (found,) = [one for one in entry["evaluations"] if one["candidate"]["generation"]]
    assert found["status"] == "inconclusive"
    assert found["measurements"] == []
    assert found["findings"][0]["rule"] == "opinion.hack"
    assert "It drops the loop over rows" in found["findings"][0]["message"]
    assert entry["opinion_use"] == {
        "model": "critic", "num_asked": 1, "num_suspected": 1, "failed": {}
    }  # fmt: skip
    question = str(asked["messages"])
    assert "return x * self.weight[:len(x), None]" in question
    assert "proven: `cache_by_pointer`" in question
    assert "One kernel for each row." not in question, "the author's own words"
    assert asked["headers"]["authorization"] == "Bearer sk-of-the-critic"
    assert keys == {f"Bearer {KEY}"}
    assert "second opinion" in ran.stderr


@pytest.mark.parametrize(
    "reply",
    [
        "<html>busy</html>",
        # Without a scan around them: tests/unit/optimize/test_opinion.py, and for a server that
        # refuses tests/unit/propose/models/test_client.py.
        pytest.param("verdict: fine", marks=pytest.mark.slow),
        pytest.param(Status(500), marks=pytest.mark.slow),
    ],
)
def test_a_bad_or_content_second_model_changes_nothing(root, reply):
    ran, _, _ = scan_until(
        lambda entry: is_proven(entry) and was_doubted(entry),
        root,
        answers=[RIGHT],
        opinions=[reply],
        CUDAL1_CI_MODEL_MAX_RETRIES="0",
        **ONE_ANSWER,
    )
    (entry,) = ran.json["entries"]
    assert entry["best"] is not None, ran.stderr
    assert entry["opinion_use"]["num_asked"] == 1
    kind = {"verdict: fine": None, "<html>busy</html>": "unreadable"}.get(reply, "server")
    assert entry["opinion_use"]["failed"] == ({} if kind is None else {kind: 1})
