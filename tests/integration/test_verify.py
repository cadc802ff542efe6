"""`verify`: the verdict and the exit code of every kind of candidate, as others rely on them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cudal1_ci import verify
from tests.integration.conftest import run, run_until
from tests.told import TOLD

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

REFERENCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def scale(self, x, by):
        return x @ torch.diag(torch.full((x.shape[-1],), by))

    def forward(self, x):
        return self.scale(self.scale(self.scale(self.fc(x), 2.0), 0.5), 2.0)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]
"""
BODY = "return self.scale(self.scale(self.scale(self.fc(x), 2.0), 0.5), 2.0)"
CANDIDATES = {
    "faster": ("return self.fc(x) * 2.0", "passed", 0),
    "wrong": ("return self.fc(x) * 2.1", "incorrect_values", 1),
    "shape": ("return (self.fc(x) * 2.0)[:, :8]", "incorrect_shape", 1),
    "crash": ("raise ValueError('no')", "runtime_error", 1),
    "hang": ("import time; time.sleep(60)", "timeout", 1),
    "slower": (
        f"for _ in range(3): y = {BODY.removeprefix('return ')}\n        return y",
        "passed",
        0,
    ),
}
FIELDS = {"schema_version", "status", "findings", "max_abs_error", "max_rel_error", "measurements"}


def is_settled(ran):
    """Whether the machine was quiet enough to tell faster from slower."""
    by_name = dict(zip(CANDIDATES, map(json.loads, ran.stdout.splitlines()), strict=True))
    if any(by_name[name]["status"] != "passed" for name in ("faster", "slower")):
        return False
    (faster,), (slower,) = (by_name[name]["measurements"] for name in ("faster", "slower"))
    return faster["speedup_low"] > 1.2 and slower["speedup_high"] < 0.9


@pytest.fixture(scope="module")
def verdicts(clock, tmp_path_factory):
    """All candidates in one run: one JSON object a line."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "reference.py").write_text(REFERENCE)
    paths = []
    for name, (body, _, _) in CANDIDATES.items():
        path = folder / f"{name}.py"
        path.write_text(REFERENCE.replace("class Model", "class ModelNew").replace(BODY, body))
        paths.append(path)
    ran = run_until(
        is_settled,
        *("verify", folder / "reference.py", *paths, "--json", "-", "--timeout", "3s"),
        **{TOLD: json.dumps({"range(3)": 0.5})},
    )
    assert ran.code == 1, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    return dict(zip(CANDIDATES, lines, strict=True)), folder


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_kind_of_candidate_has_its_status(verdicts, name):
    found = verdicts[0][name]
    assert found["status"] == CANDIDATES[name][1], found
    assert found.keys() >= FIELDS | {"device", "elapsed_s"}
    assert bool(found["measurements"]) == (found["status"] == "passed")
    if found["status"] != "passed":
        assert found["findings"][0].keys() >= {"rule", "message", "line", "evidence"}


def test_speedups_of_faster_and_slower_lie_on_their_sides_of_one(verdicts):
    (faster,) = verdicts[0]["faster"]["measurements"]
    (slower,) = verdicts[0]["slower"]["measurements"]
    assert faster["speedup_low"] > 1.2
    assert slower["speedup_high"] < 0.9
    ratio = faster["reference_us"] / faster["candidate_us"]
    assert ratio == pytest.approx(faster["speedup"], rel=0.01), "shown times divide to the speedup"


def test_a_single_passed_candidate_is_exit_0_and_text_says_so(verdicts):
    folder = verdicts[1]
    words = ("verify", folder / "reference.py", folder / "faster.py")
    ran = run_until(lambda ran: ran.code != 3, *words)
    assert ran.code == 0, ran.stderr
    assert "passed" in ran.stdout


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("class ModelNew)(: ...\n", "mine.py:1:15: the candidate does not parse as Python: "),
        (
            "",
            "mine.py: expected a top-level `ModelNew` (or `Model`) in the candidate, found nothing",
        ),
    ],
)
def test_a_file_that_cannot_be_loaded_is_told_by_the_name_that_its_owner_gave_it(
    tmp_path, source, told
):
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "mine.py").write_text(source)
    ran = run("verify", "reference.py", "mine.py", "--device", "cpu", cwd=tmp_path)
    assert ran.code == 1
    said = " ".join(ran.stdout.split())
    assert "mine.py: compile_error" in said
    assert told in said
    assert "(line 1)" not in said, "the place is named once"
    assert "/program.py" not in said
    assert "cudal1_ci/sandboxed" not in said


def test_the_library_gives_the_same_answer_in_one_call(verdicts):
    folder = verdicts[1]
    evaluation = verify(folder / "reference.py", folder / "wrong.py")
    assert evaluation.verdict.status == "incorrect_values"
    assert evaluation.measurements == ()


def test_the_decorator_alone_imports_nothing_of_the_judge():
    code = (
        "import sys, cudal1_ci; cudal1_ci.workload; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'msgspec', 'libcst'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
