"""From the event to the comment: how long the steps of the Action take, one changed module or none.

What the workflow runs is run here one after the other: the environment's script (its requirements
are there already, as on a runner that was used before), the measuring step, the publishing step
against a stand-in for GitHub on this machine. The runner's own time for checkout and artifacts is
not in it.

    python benchmarks/event_to_comment.py --device cpu
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from compare_rates import git
from discovery_speed import provenance

from tests import github_fake
from tests.github_fake import REPOSITORY, TOKEN, GitHub

ROOT = Path(__file__).parents[1]
OUTPUT = Path(__file__).parent / "results" / "event-to-comment.json"
MODEL = """import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x, weight):
        return torch.tanh({product})
"""
FAST, SLOW = "weight.unsqueeze(1) * x", "torch.diag(weight) @ x"
CONFIG = """[[workload]]
target = "model.py:Scale"
inputs = ["float32[1024, 512]", "float32[1024]"]
"""
CASES = {
    "nothing relevant changed": ("README.md", "words\n", {}),
    "one module, compared": ("model.py", MODEL.format(product=SLOW), {"INPUT_OPTIMIZE": "false"}),
    "one module, compared and optimized": ("model.py", MODEL.format(product=SLOW), {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--these-packages", action="store_true", help="of this interpreter: nothing is downloaded"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    found: dict[str, Any] = {**provenance(), "device": options.device, "runs": []}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "tools"
        if options.these_packages:
            borrowed(cache)
        interpreter(cache)  # the first job of a machine installs
        for case, (name, text, inputs) in CASES.items():
            for number in range(options.repeat):
                place = Path(folder) / f"{len(found['runs'])}"
                one = run(place, cache, {name: text}, {**inputs, "INPUT_DEVICE": options.device})
                found["runs"].append({"case": case, "number": number, **one})
                print(json.dumps(found["runs"][-1]), flush=True)
                options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def run(place: Path, cache: Path, change: dict[str, str], inputs: dict[str, str]) -> dict[str, Any]:
    """Seconds of each step, and what was posted."""
    root = place / "checkout"
    base, head = repository(root, change)
    repo = {"full_name": REPOSITORY}
    sides = {
        "base": {"sha": base, "ref": "main", "repo": repo},
        "head": {"sha": head, "ref": "topic", "repo": repo},
    }
    event = {
        "action": "opened",
        "repository": {"full_name": REPOSITORY},
        "pull_request": {"number": 7, "draft": False, **sides},
    }
    (place / "event.json").write_text(json.dumps(event))
    with github_fake.serving(GitHub()) as github:
        github.add_pull(7, head)
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CUDAL1")},
            "RUNNER_TEMP": str(place / "temp"),
            "RUNNER_ENVIRONMENT": "self-hosted",
            "GITHUB_WORKSPACE": str(root),
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(place / "event.json"),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": github.url,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_RUN_ID": "1",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_WORKFLOW": "cudal1-ci",
            "GITHUB_SHA": head,
            "INPUT_PYTHON": sys.executable,
            **inputs,
        }
        (place / "temp").mkdir()
        began_s = time.monotonic()
        python = interpreter(cache)
        environment_s = time.monotonic() - began_s
        measured_s = step("measure", python, environ, root)
        # The publishing job has another working folder, and the reports as an artifact.
        reports = place / "publisher"
        reports.mkdir()
        environ |= {"GITHUB_WORKSPACE": str(reports), "GITHUB_TOKEN": TOKEN}
        for file in (place / "temp").rglob("report.json"):
            file.rename(reports / "report.json")
        published_s = step("publish", python, {**environ, "INPUT_REPORTS": "*.json"}, reports)
        total_s = time.monotonic() - began_s
        return {
            "environment_s": round(environment_s, 2),
            "measure_s": round(measured_s, 2),
            "publish_s": round(published_s, 2),
            "total_s": round(total_s, 2),
            "num_comments": len(github.comments),
            "checks": [check["output"]["title"] for check in github.checks.values()],
        }


def borrowed(cache: Path) -> None:
    """The environment, as the first job of a machine leaves it, of what is installed here."""
    words = [str(ROOT / ".ci" / "environment"), "--where", str(cache), "model"]
    named = subprocess.run(words, capture_output=True, text=True, check=True)
    where = Path(named.stdout.strip())
    venv.create(where, with_pip=False)
    inside = Path(sysconfig.get_path("purelib", vars={"base": str(where)}))
    places = [path for path in sys.path if path and Path(path).is_dir() and "-packages" in path]
    places += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    (inside / "borrowed.pth").write_text("\n".join(places) + "\n")
    (where / "ready").touch()


def interpreter(cache: Path) -> str:
    """Of the environment, as action.yml asks for it."""
    done = subprocess.run(
        [ROOT / ".ci" / "environment", cache, "model"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def step(door: str, python: str, environ: dict[str, str], folder: Path) -> float:
    """Seconds of a step; what it says goes to the error output."""
    began_s = time.monotonic()
    subprocess.run(
        [python, "-I", str(ROOT / ".ci" / "action"), door],
        cwd=folder,
        env=environ,
        stdout=sys.stderr,
        check=True,
        timeout=1800,
    )
    return time.monotonic() - began_s


def repository(root: Path, change: dict[str, str]) -> tuple[str, str]:
    """Its base and its head."""
    (root / ".github").mkdir(parents=True)
    (root / ".github" / "cudal1-ci.toml").write_text(CONFIG)
    (root / "model.py").write_text(MODEL.format(product=FAST))
    git(root, "init", "-q")
    for name, message in ((None, "base"), (next(iter(change)), "head")):
        if name is not None:
            (root / name).write_text(change[name])
        git(root, "add", "-A")
        git(root, "commit", "-qm", message)
    return sha(root, "HEAD^"), sha(root, "HEAD")


def sha(root: Path, name: str) -> str:
    done = subprocess.run(
        ["git", "rev-parse", name], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
