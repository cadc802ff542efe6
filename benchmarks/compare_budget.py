"""A pull request of 300 files and 80 targets within a budget: what is measured, what is named as
not measured, and whether the slow one, which has most of the recorded time, is found.

    python benchmarks/compare_budget.py --budget 120
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from compare_rates import cudal1_ci, git
from discovery_speed import provenance

OUTPUT = Path(__file__).parent / "results" / "compare-budget.json"
SLOW = 40
"""Number of the module that gets slower and takes most of the time."""
MODULE = """import torch
from torch import nn


class Layer{number}(nn.Module):
    def forward(self, x):
        return torch.tanh(x + {number})
"""
PLAIN = "LIMIT = {number}\n"
TESTS = """import torch
{imports}


def test_all():
    for layer, rows in [{calls}]:
        layer()(torch.randn(rows, 512))
"""
CONFIG = """[tool.cudal1-ci]
trace = "python -m pytest -q -p no:cacheprovider tests"

[tool.pytest.ini_options]
pythonpath = ["."]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--targets", type=int, default=80)
    parser.add_argument("--budget", type=int, default=120, help="seconds")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pull_request(root, options.files, options.targets)
        cudal1_ci(root, "trace")
        started_s = time.monotonic()
        words = ("compare", "base", "--device", options.device, "--budget", f"{options.budget}s")
        report = json.loads(cudal1_ci(root, *words, "--json", "-", "--quiet"))
        took_s = time.monotonic() - started_s
    verdicts: dict[str, list[str]] = {}
    for entry in report["entries"]:
        said = entry["comparison"]["verdict"]
        verdicts.setdefault(said, []).append(entry["target"]["qualname"])
    unreached = sum("not reached" in (one["skipped"] or "") for one in report["entries"])
    found = {
        **provenance(),
        "num_files": options.files,
        "num_targets": len(report["entries"]),
        "budget_s": options.budget,
        "took_s": round(took_s, 1),
        "num_measured": len(report["entries"]) - unreached,
        "num_not_reached": unreached,
        "ended": report["ended"],
        "regressions": verdicts.get("regression", []),
        "verdicts": {verdict: len(names) for verdict, names in verdicts.items()},
    }
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


def pull_request(root: Path, num_files: int, num_targets: int) -> None:
    """A repository with the tag `base` and a head that changes every file."""
    package = root / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (root / "tests").mkdir()
    names = [f"Layer{number}" for number in range(num_targets)]
    imports = "\n".join(f"from pkg.m{n} import Layer{n}" for n in range(num_targets))
    calls = ", ".join(
        f"({name}, {2048 if number == SLOW else 256})" for number, name in enumerate(names)
    )
    (root / "tests" / "test_layers.py").write_text(TESTS.format(imports=imports, calls=calls))
    (root / "pyproject.toml").write_text(CONFIG)
    git(root, "init", "-q")
    for number in range(num_files):
        text = (MODULE if number < num_targets else PLAIN).format(number=number)
        (package / f"m{number}.py").write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "base")
    git(root, "tag", "base")
    for file in package.glob("m*.py"):
        file.write_text(file.read_text() + "\nCHANGED = True\n")
    for number in range(num_targets):
        file = package / f"m{number}.py"
        old = f"        return torch.tanh(x + {number})"
        new = f"        y = x + {number}\n        return torch.tanh(y)"
        if number == SLOW:
            new += " + 0 * x.sin()"
        file.write_text(file.read_text().replace(old, new))
    git(root, "commit", "-qam", "change")


if __name__ == "__main__":
    main()
