"""How often `compare` finds a pull request that slows a module by a tenth, and how often it accuses
one that only renames, comments or reformats.

The example's repository is copied, its tests are traced, and each trial is a branch of it in which
up to three files get other names of local variables, comments and line breaks; in half of the kinds
one module is slower besides. On a CPU it then waits for a tenth of what its call took, so that the
slowdown is what it says whatever the size; on a GPU it does its work on that share of its rows
again, of which there are many. Each is compared with its base as a user would.

    python benchmarks/compare_rates.py --slowed 20 --harmless 100
    python benchmarks/compare_rates.py --device cuda --share 0.03 --slowed 50 --harmless 200
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from discovery_speed import provenance

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "slowformer"
OUTPUT = Path(__file__).parent / "results" / "compare-rates.json"
LAYERS = "slowformer/layers"
SLOWED = {
    "scoring.py": "GoodnessScore",
    "mlp.py": "NewGELU",
    "norm.py": "RMSNorm",
}
USED_BY = {"NewGELU": {"MLP"}}
"""What is slower with a module, as it calls it."""
WAITS = """
    def forward(self, x):
        began = time.perf_counter()
        y = self._forward(x)
        ends = began + {factor} * (time.perf_counter() - began)
        while time.perf_counter() < ends:
            pass
        return y
"""
MORE_ROWS = """
    def forward(self, x):
        self._forward(x[: int(x.shape[0] * {share})])
        return self._forward(x)
"""
MANY_ROWS = """
[[tool.cudal1-ci.workload]]
target = "slowformer/layers/{file}:{name}"
name = "many rows"
init = {init}
inputs = ["float32[262144, 512]"]
"""
INITS = {"GoodnessScore": ["512", "512"], "NewGELU": [], "RMSNorm": ["512"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slowed", type=int, default=20)
    parser.add_argument("--harmless", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--share", type=float, default=0.1, help="of its time that a module loses")
    parser.add_argument("--start", type=int, default=0, help="number of the first of each kind")
    parser.add_argument("--limit", type=float, default=3600, help="seconds; later trials are left")
    parser.add_argument("--table", type=Path, nargs="+", help="say what these results hold")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.table:
        results = [json.loads(path.read_text(encoding="utf-8")) for path in options.table]
        print(summary([one for result in results for one in result["trials"]]))
        return
    ends_s = time.monotonic() + options.limit
    found: dict[str, Any] = {**provenance(), "share": options.share, "trials": []}
    with tempfile.TemporaryDirectory() as folder:
        root = repository(Path(folder) / "slowformer", options.device)
        counts = {"slowed": options.slowed, "harmless": options.harmless}
        trials = [(kind, options.start + i) for kind, count in counts.items() for i in range(count)]
        random.Random(0).shuffle(trials)
        for kind, number in trials:
            if time.monotonic() > ends_s:
                break
            one = trial(root, kind, number, options)
            found["trials"].append(one)
            options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(json.dumps({k: v for k, v in one.items() if k != "rows"}), flush=True)
    print(summary(found["trials"]))


def repository(root: Path, device: str) -> Path:
    """The example with its traces, as the first commit of a repository."""
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    if device == "cpu":
        cudal1_ci(root, "trace")
    else:
        text = (root / "pyproject.toml").read_text(encoding="utf-8").split("# No test calls")[0]
        for file, name in SLOWED.items():
            text += MANY_ROWS.format(file=file, name=name, init=json.dumps(INITS[name]))
        text = text.replace("trace = ", "# trace = ")
        (root / "pyproject.toml").write_text(text, encoding="utf-8")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "base")
    git(root, "tag", "base")
    return root


def trial(root: Path, kind: str, number: int, options: argparse.Namespace) -> dict[str, Any]:
    """One pull request and what is said of it."""
    rng = random.Random(f"{kind} {number}")
    git(root, "checkout", "-q", "-B", "work", "base")
    slowed = None
    files = sorted((root / LAYERS).glob("[a-z]*.py"))
    for file in rng.sample(files, rng.randint(1, 3)):
        file.write_text(harmless(file.read_text(encoding="utf-8"), rng), encoding="utf-8")
    if kind == "slowed":
        slowed = slow_down(root / LAYERS, rng, options)
    git(root, "commit", "-qam", "change")
    started_s = time.monotonic()
    words = ("compare", "base", "--fresh", "--device", options.device, "--json", "-", "--quiet")
    report = json.loads(cudal1_ci(root, *words, "--include", f"{LAYERS}/*"))
    rows = [
        {
            "target": entry["target"]["qualname"],
            "verdict": entry["comparison"]["verdict"],
            "reason": entry["comparison"]["reason"],
            "workloads": [
                {key: row[key] for key in ("workload", "verdict", "slowdown", "num_measurements")}
                for row in entry["comparison"]["rows"]
            ],
        }
        for entry in report["entries"]
    ]
    regressions = [row["target"] for row in rows if row["verdict"] == "regression"]
    return {
        "kind": kind,
        "number": number,
        "slowed": slowed,
        "num_targets": len(rows),
        "regressions": regressions,
        "is_right": is_right(regressions, slowed),
        "seconds": round(time.monotonic() - started_s, 1),
        "rows": rows,
    }


def is_right(regressions: list[str], slowed: str | None) -> bool:
    """Whether what was slowed is found, and nothing else but what calls it."""
    if slowed is None:
        return not regressions
    return slowed in regressions and set(regressions) <= {slowed, *USED_BY.get(slowed, ())}


def slow_down(layers: Path, rng: random.Random, options: argparse.Namespace) -> str:
    """One module takes longer."""
    name, qualname = rng.choice(sorted(SLOWED.items()))
    path = layers / name
    text = path.read_text(encoding="utf-8")
    start = text.index(f"class {qualname}(")
    end = text.find("\nclass ", start)
    body = text[start : end if end >= 0 else len(text)].rstrip("\n")
    slow = WAITS if options.device == "cpu" else MORE_ROWS
    slow = slow.format(factor=1 + options.share, share=options.share)
    slower = body.replace("def forward(self, x):", "def _forward(self, x):") + "\n" + slow
    path.write_text("import time\n" + text.replace(body, slower), encoding="utf-8")
    return qualname


def harmless(text: str, rng: random.Random) -> str:
    """Another name of a local variable, a comment and an empty line where they do nothing."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    lines = text.splitlines()
    if functions:
        function = rng.choice(functions)
        lines = renamed(lines, function, rng)
        lines.insert(function.body[0].lineno - 1, "        # nothing changes here")
    return "\n".join([*lines, "", ""])


def renamed(lines: list[str], function: ast.FunctionDef, rng: random.Random) -> list[str]:
    """One local variable under another name, its arguments not among them."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    arguments = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)} - arguments
    if not stored:
        return lines
    old = rng.choice(sorted(stored))
    lines = list(lines)
    places = sorted(((n.lineno - 1, n.col_offset) for n in names if n.id == old), reverse=True)
    for row, column in places:
        line = lines[row].encode()
        lines[row] = (line[:column] + f"{old}_".encode() + line[column + len(old) :]).decode()
    return lines


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def cudal1_ci(root: Path, *words: str) -> str:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-m", "cudal1_ci", *words],
        cwd=root,
        env=environ,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode not in (0, 1, 3, 6):
        raise SystemExit(done.stderr)
    return done.stdout


def summary(trials: list[dict[str, Any]]) -> str:
    """Rates, and how long a comparison took."""
    lines = []
    for kind in ("slowed", "harmless"):
        some = [one for one in trials if one["kind"] == kind]
        right = sum(one["is_right"] for one in some)
        seconds = sorted(one["seconds"] for one in some)
        middle = seconds[len(seconds) // 2] if seconds else 0.0
        lines.append(f"{kind}: right in {right} of {len(some)}, {middle:.0f} s in the median")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
