"""How long discovery takes over a source tree, next to `ast.parse` of the same Python files.

Every measurement runs in a fresh interpreter, so that imports and process start count. Peak memory
is an upper bound: the parent's own peak and, for each child, that of the largest. With `--cold`
the page cache is dropped before each run (needs root). Trees default to the largest packages of
this environment.

    python benchmarks/discovery_speed.py --output benchmarks/results/discovery-speed.json
    python benchmarks/discovery_speed.py --tree ../transformers/src --repeat 5
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cudal1_ci.discover import DiscoveryConfig
from cudal1_ci.discover.files import source_files

DEFAULT_PACKAGES = ("transformers", "torch", "timm", "torchvision")
DISCOVER = """
import resource
import sys
from pathlib import Path
from cudal1_ci.discover import DiscoveryConfig, discover
found = discover(Path(sys.argv[1]), DiscoveryConfig(num_processes=int(sys.argv[2])))
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(len(found.targets), (own + child * (int(sys.argv[2]) - 1)) * 1024)
"""
PARSE = """
import ast, sys, warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
warnings.simplefilter("ignore")
def parse(paths):
    parsed = 0
    for path in paths:
        try:
            ast.parse(Path(path).read_bytes())
            parsed += 1
        except (SyntaxError, ValueError):
            pass
    return parsed
if __name__ == "__main__":
    paths = Path(sys.argv[1]).read_text().splitlines()
    num_processes = int(sys.argv[2])
    if num_processes == 1:
        print(parse(paths))
    else:
        chunks = [paths[at : at + 16] for at in range(0, len(paths), 16)]
        with ProcessPoolExecutor(num_processes) as pool:
            print(sum(pool.map(parse, chunks)))
"""


def provenance() -> dict[str, Any]:
    """Where, when and of what code a result was measured. A copy without .git is told its commit
    in the variable COMMIT."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit or os.environ.get("COMMIT"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "num_cores": len(os.sched_getaffinity(0)),
    }


def processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def measured(command: list[str], *, cold: bool) -> tuple[float, str]:
    """Seconds that a command takes, and what it prints."""
    if cold:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    started_s = time.perf_counter()
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return time.perf_counter() - started_s, result.stdout


def measure_tree(root: Path, repeat: int, num_processes: int, cold: bool) -> dict[str, Any]:
    """All measurements of one tree; times are those of the runs, in seconds."""
    listing = source_files(root, DiscoveryConfig())
    python = [file.path for file in listing.files if file.is_python]
    cuda = [file.path for file in listing.files if file.path.endswith((".cu", ".cuh"))]
    list_file = Path(tempfile.mkstemp(suffix=".txt")[1])
    list_file.write_text("\n".join(str(listing.root / path) for path in python), encoding="utf-8")
    discover = [sys.executable, "-c", DISCOVER, str(root), str(num_processes)]
    listing_words = ["scan", str(root), "--list", "--json", "-", "-q"]
    commands = {
        "discover_s": discover,
        "scan_list_s": [sys.executable, "-m", "cudal1_ci", *listing_words],
        "ast_parse_one_process_s": [sys.executable, "-c", PARSE, str(list_file), "1"],
        "ast_parse_pool_s": [sys.executable, "-c", PARSE, str(list_file), str(num_processes)],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    num_targets = peak_bytes = 0
    try:
        for _ in range(repeat):  # in turn, so that a busy minute hurts all alike
            for name, command in commands.items():
                elapsed_s, printed = measured(command, cold=cold)
                times[name].append(round(elapsed_s, 3))
                if name == "discover_s":
                    num_targets, bytes_now = map(int, printed.split())
                    peak_bytes = max(peak_bytes, bytes_now)
    finally:
        list_file.unlink()
    num_lines = sum((listing.root / path).read_bytes().count(b"\n") for path in [*python, *cuda])
    median_s = statistics.median(times["discover_s"])
    return {
        "tree": root.name,
        "version": version_of(root.name),
        "num_files": len(python) + len(cuda),
        "num_lines": num_lines,
        "num_targets": num_targets,
        "num_processes": num_processes,
        "is_cold": cold,
        **times,
        "seconds_per_million_lines": round(median_s / num_lines * 1e6, 2),
        "peak_resident_bytes": peak_bytes,
    }


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def default_trees() -> list[Path]:
    found = []
    for name in DEFAULT_PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found.append(Path(spec.submodule_search_locations[0]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tree", type=Path, action="append", help="default: installed packages")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cold", action="store_true", help="drop the page cache before each run")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    trees = arguments.tree or default_trees()
    results = [
        measure_tree(tree, arguments.repeat, arguments.processes, arguments.cold) for tree in trees
    ]
    document = {**provenance(), "results": results}
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for each in results:
        median = {name: statistics.median(each[name]) for name in each if name.endswith("_s")}
        print(
            f"{each['tree']}: {each['num_lines']:,} lines, {each['num_targets']:,} targets in "
            f"{median['discover_s']:.2f} s ({each['seconds_per_million_lines']} s per million "
            f"lines), scan --list {median['scan_list_s']:.2f} s, "
            f"{each['peak_resident_bytes'] / 1e6:.0f} MB; ast.parse of the same files "
            f"{median['ast_parse_one_process_s']:.2f} s, in {each['num_processes']} processes "
            f"{median['ast_parse_pool_s']:.2f} s"
        )


if __name__ == "__main__":
    main()
