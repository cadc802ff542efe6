"""`cudal1-ci sweep` from the command line, with the judge: what a kill costs, and what a second
sweep does."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.integration.conftest import VERDICTS_ALONE, command, environment, run
from tests.integration.test_scan import CONFIG, SLOW

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

NUM_MODULES = 2


def a_project(checkout):
    modules = {f"pkg/slow{i}.py": SLOW for i in range(NUM_MODULES)}
    config = "".join(CONFIG.replace("slow.py", f"slow{i}.py") for i in range(NUM_MODULES))
    return checkout({"pkg/__init__.py": "", "pyproject.toml": config, **modules})


def test_a_sweep_goes_on_after_a_kill_and_one_after_that_measures_nothing(checkout):
    root = a_project(checkout)
    process = subprocess.Popen(
        command("sweep", root, "--json", "-"),
        env=environment(**VERDICTS_ALONE),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "playbook:diagonal_product: passed" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL

    resumed = run("sweep", root, "--json", "-", "-q", **VERDICTS_ALONE)
    assert resumed.code == 0, resumed.stderr
    assert resumed.json["totals"]["num_judged"] == NUM_MODULES
    assert resumed.json["totals"]["num_reused"] >= 1

    for _ in range(5):  # what a busy machine leaves undecided is tried again
        again = run("sweep", root, "--json", "-", **VERDICTS_ALONE)
        if f"{NUM_MODULES} known and unchanged" in again.stderr:
            break
    assert "sweep: 0 to look at" in again.stderr
    assert again.code == 0, again.stderr
    totals = again.json["totals"]
    assert totals["num_reused"] == totals["num_candidates"] == NUM_MODULES
    assert [entry["best"] for entry in again.json["entries"]].count(0) == totals["num_proposals"]

    changed = root / "pkg" / "slow1.py"
    changed.write_text(changed.read_text() + "\n\nNEW = 1\n")
    spent = run("sweep", root, "--budget", "0.001s", "--json", "-", **VERDICTS_ALONE)
    assert spent.code == 6, spent.stderr
    assert "sweep: 1 to look at, 1 known and unchanged" in spent.stderr
    untried = {e["target"]["path"] for e in spent.json["entries"] if not e["evaluations"]}
    assert untried == {"pkg/slow1.py"}, "what is known is told all the same"


def test_a_sweep_of_what_is_no_folder_says_so(tmp_path):
    ran = run("sweep", tmp_path / "nowhere")
    assert ran.code == 2
    assert "no such file or folder" in ran.stderr
