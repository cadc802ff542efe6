"""A scan from the command line: what it finds, what stops it, and what does not."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from tests.integration.conftest import (
    ONE_LAUNCH,
    VERDICTS_ALONE,
    command,
    environment,
    run,
    run_until,
)

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

SLOW = '''\
import torch
from torch import nn


class Diagonal(nn.Module):
    """Scales columns."""

    def __init__(self, dim: int = 256):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        x = x.nan_to_num()  # in a product with zeros, a NaN would spread over its row
        # The author's comment stays.
        return x @ torch.diag(self.scale)
'''
CONFIG = """\
[[tool.cudal1-ci.workload]]
target = "pkg/slow.py:Diagonal"
inputs = ["float32[256, 256]"]
"""


def large(text: str) -> str:
    """So large that a busy machine can tell how much faster it gets."""
    return text.replace("256", "768")


def has_proposal(ran, at_least=1.0):
    """Whether the only target's best proposal is proven to be this much faster."""
    (entry,) = ran.json["entries"]
    if entry["best"] is None:
        return False
    return entry["evaluations"][entry["best"]]["measurements"][0]["speedup_low"] > at_least


def test_a_scan_proposes_a_patch_that_applies_and_a_second_one_reuses_it(checkout):
    files = {"pkg/__init__.py": "", "pkg/slow.py": large(SLOW), "pyproject.toml": large(CONFIG)}
    root = checkout(files)
    words = ("scan", root, "--json", "-", "--patches", root / "patches", "-q", "--fresh")
    first = run_until(lambda ran: has_proposal(ran, at_least=2), *words)
    assert first.code == 0, first.stderr
    (entry,) = first.json["entries"]
    best = entry["evaluations"][entry["best"]]
    assert best["status"] == "passed"
    assert best["measurements"][0]["speedup_low"] > 2
    assert best["candidate"]["proposer"] == "playbook:diagonal_product"

    second = run("scan", root, "--json", "-", "-q", "--apply")
    assert second.code == 0, second.stderr
    assert second.json["totals"]["num_reused"] == second.json["totals"]["num_candidates"]
    assert second.json["entries"][0]["evaluations"][0]["measurements"] == best["measurements"]
    text = (root / "pkg/slow.py").read_text()
    assert "return x * self.scale" in text
    assert "# The author's comment stays." in text
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True
    )
    assert set(status.stdout.split("\n")) == {" M pkg/slow.py", "?? patches/", ""}, (
        "the state folder must not show up"
    )
    (patch,) = (root / "patches").iterdir()
    subprocess.run(["git", "checkout", "-q", "."], cwd=root, check=True)
    subprocess.run(["git", "apply", str(patch)], cwd=root, check=True)
    assert (root / "pkg/slow.py").read_text() == text


@pytest.mark.compiles
def test_what_compiles_is_tried_alone_and_on_top_of_what_passed(checkout):
    root = checkout({"pkg/__init__.py": "", "pkg/slow.py": SLOW, "pyproject.toml": CONFIG})
    patient = {"CUDAL1_CI_PLAYBOOK_COMPILE": "true", "CUDAL1_CI_TRIAL_CALL": "60s"}
    ran = run("scan", root, "--json", "-", "-q", "--fresh", **patient, **ONE_LAUNCH)
    assert ran.code == 0, ran.stderr
    (entry,) = ran.json["entries"]
    tried = {one["candidate"]["proposer"]: one["status"] for one in entry["evaluations"]}
    assert tried == {
        "playbook:diagonal_product": "passed",
        "playbook:compile": "passed",
        "playbook:diagonal_product+compile": "passed",
    }


@pytest.mark.parametrize(
    "signal_number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_scan_that_is_ended_loses_no_finished_evaluation(checkout, signal_number):
    modules = {f"pkg/slow{i}.py": SLOW for i in range(4)}
    config = "".join(CONFIG.replace("slow.py", f"slow{i}.py") for i in range(4))
    root = checkout({"pkg/__init__.py": "", "pyproject.toml": config, **modules})
    scratch = root.parent / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        command("scan", root, "--json", "-"),
        env=environment(TMPDIR=str(scratch), **VERDICTS_ALONE),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    judged = []
    for line in process.stderr:
        if "playbook:diagonal_product: passed" in line:
            judged.append(line)
        if len(judged) == 2:
            break
    process.send_signal(signal_number)
    out, _ = process.communicate(timeout=60)
    if signal_number == signal.SIGINT:
        assert process.returncode == 130
        report = json.loads(out)
        assert report["ended"] == "interrupted"
        assert report["totals"]["num_candidates"] >= 2
    else:
        assert process.returncode == -signal.SIGKILL

    deadline = time.monotonic() + 30
    while any(scratch.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(scratch.iterdir()) == [], "workers end with their host and leave nothing behind"

    resumed = run("scan", root, "--resume", "--json", "-", "-q", **VERDICTS_ALONE)
    assert resumed.code == 0, resumed.stderr
    assert resumed.json["ended"] == "done"
    assert resumed.json["totals"]["num_judged"] == 4
    assert resumed.json["totals"]["num_reused"] >= 2
    assert run("scan", root, "--resume", "-q", **VERDICTS_ALONE).code == 2, (
        "there is nothing left to resume"
    )


def test_a_spent_budget_is_exit_6_and_the_next_run_goes_on(checkout, verifiers):
    verifiers.close()  # one that is ready could answer within any budget
    root = checkout({"pkg/__init__.py": "", "pkg/slow.py": SLOW, "pyproject.toml": CONFIG})
    spent = run("scan", root, "--budget", "0.01s", "--json", "-", "-q")
    assert spent.code == 6, spent.stderr
    assert spent.json["ended"] == "budget"
    (entry,) = spent.json["entries"]
    assert "budget" in entry["skipped"]
    words = ("scan", root, "--json", "-", "-q", "--fresh", "--fail-on", "proposal")
    again = run_until(has_proposal, *words, **VERDICTS_ALONE)
    assert again.code == 1
    assert again.json["totals"]["num_proposals"] == 1


BAD = {
    "raises.py": ("raise RuntimeError('no license found')", "no license found"),
    "exits.py": ("import sys; sys.exit(3)", "SystemExit"),
    "dies.py": ("import os; os.kill(os.getpid(), 9)", "killed"),
    "hangs.py": ("import time; time.sleep(600)", "no answer"),
    "missing.py": ("import not_installed_anywhere", "not_installed_anywhere"),
}
MODULE = """

import torch
from torch import nn


class Target(nn.Module):
    def forward(self, x):
        return x @ torch.diag(x[0])
"""
CALLS = {
    "fails": ("return (x @ torch.diag(x[0])).view(7, 7)", "invalid for input of size"),
    "draws": ("return x @ torch.diag(x[0]) + time.time_ns() % 1e6", "differ"),
    "text": ("x @ torch.diag(x[0]); return 'no tensor'", "no tensor"),
    "memory": ("return x @ torch.diag(x[0]) + torch.ones(2**45)", "memory"),
}


def test_one_bad_target_never_stops_the_scan_and_each_has_its_reason(checkout, clock):
    files = {"pkg/__init__.py": "", "pkg/slow.py": SLOW}
    config = CONFIG
    table = '[[tool.cudal1-ci.workload]]\ntarget = "pkg/{}:Target"\ninputs = ["float32[3, 3]"]\n'
    for name, (statement, _) in BAD.items():
        files[f"pkg/{name}"] = statement + MODULE
        config += table.format(name)
    for name, (body, _) in CALLS.items():
        text = MODULE.replace("return x @ torch.diag(x[0])", body)
        files[f"pkg/{name}.py"] = "import time\n" + text
        config += table.format(f"{name}.py")
    files["pkg/needs_file.py"] = MODULE.replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.table = torch.load('weights.pt')\n\n    def forward",
    )
    config += table.format("needs_file.py")
    files["pkg/half.py"] = "import torch\nclass Half(torch.nn.Module:\n"
    files["pyproject.toml"] = config
    root = checkout(files)
    started_s = time.monotonic()
    ran = run("scan", root, "--json", "-", "-q", CUDAL1_CI_TRIAL_LOAD="5s", **VERDICTS_ALONE)
    assert ran.code == 2, "a declared workload cannot be called"
    assert "`pkg/needs_file.py:Target` cannot be called with it" in ran.stderr
    assert clock == "told" or time.monotonic() - started_s < 150
    report = ran.json
    by_path = {entry["target"]["path"]: entry for entry in report["entries"]}
    expected = {f"pkg/{name}": reason for name, (_, reason) in BAD.items()}
    expected |= {f"pkg/{name}.py": reason for name, (_, reason) in CALLS.items()}
    expected["pkg/needs_file.py"] = "weights.pt"
    for path, reason in expected.items():
        assert by_path[path]["best"] is None
        assert reason in by_path[path]["skipped"], (path, by_path[path]["skipped"])
    if by_path["pkg/slow.py"]["best"] is None:  # the machine was too busy to prove it
        words = ("scan", root, "--include", "pkg/slow.py", "--fresh", "--json", "-", "-q")
        assert has_proposal(run_until(has_proposal, *words, **VERDICTS_ALONE))
    assert "pkg/half.py" in {warning["path"] for warning in report["warnings"]}
