"""The tests with other versions of torch than the one that is pinned.

    python benchmarks/torch_versions.py 2.6.0 2.14.1

Each has an environment of its own in `--folder`, with everything else as constraints.txt pins it,
or with `--lowest` what the tool itself needs in the lowest versions that pyproject.toml allows, and
runs what `make test` runs. Tests that measure are run by themselves, so that nothing else
should run meanwhile. A test that fails is named; one that cannot run for want of a tool is skipped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
import venv
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from discovery_speed import provenance
from text_trials import write

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = Path(__file__).parent / "results" / "torch-versions.json"
OF_TORCH = ("torch", "triton", "nvidia-c", "cuda", "sympy", "setuptools")
"""How the names begin of what a version of torch brings along."""
USUAL = "not gpu and not model and not network and not slow"
PARTS = {
    "beside": (f"{USUAL} and not alone", ("-n", "auto", "--dist", "loadfile")),
    "alone": (f"{USUAL} and alone", ()),
}


def lowest() -> dict[str, str]:
    """The lowest version of each dependency that is allowed, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pairs = (one.partition(">=") for one in project["dependencies"])
    return {name.lower(): version for name, _, version in pairs}


def environment_of(version: str, folder: Path, *, is_lowest: bool) -> Path:
    """Its interpreter."""
    name = f"{version}-lowest" if is_lowest else version
    python = folder / name / "bin" / "python"
    if not python.exists():
        venv.create(folder / name, with_pip=True, symlinks=True)
    pinned = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in pinned if "==" in line)
    pins = {key: pin for key, pin in pins.items() if not key.lower().startswith(OF_TORCH)}
    if is_lowest:
        own = lowest()
        pins = {key: pin for key, pin in pins.items() if key.lower() not in own} | own
    pins["torch"] = version
    constraints = folder / f"{name}.txt"
    lines = [f"{key}=={pin}\n" for key, pin in pins.items()]
    constraints.write_text("".join(lines), encoding="utf-8")
    install = [python, "-m", "pip", "install", "-q", "-c", constraints, "-e", f"{ROOT}[test]"]
    subprocess.run(install, check=True)
    return python


def tested(python: Path, folder: Path) -> dict[str, Any]:
    """What became of the tests, part by part."""
    found: dict[str, Any] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name, (marks, more) in PARTS.items():
        report = folder / f"{python.parents[1].name}-{name}.xml"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marks, *more]
        if name == "beside":
            command += ["-p", "no:benchmark"]
        subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, env=environment, check=False)
        found[name] = counted(report)
    return found


def counted(report: Path) -> dict[str, Any]:
    """Of pytest's report in JUnit's form."""
    cases = list(ET.parse(report).iter("testcase"))
    failed = [case for case in cases if {"failure", "error"} & {child.tag for child in case}]
    skipped = [case for case in cases if case.find("skipped") is not None]
    return {
        "passed": len(cases) - len(failed) - len(skipped),
        "skipped": len(skipped),
        "failed": [f"{case.get('classname')}::{case.get('name')}" for case in failed],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--lowest", action="store_true", help="of what the tool itself needs")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "torch-versions")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for version in options.versions:
        folder = options.folder.resolve()
        python = environment_of(version, folder, is_lowest=options.lowest)
        rows.append({"torch": version, "lowest": options.lowest, **tested(python, folder)})
        print(rows[-1], file=sys.stderr, flush=True)
        write(options.output, {**provenance(), "rows": rows})


if __name__ == "__main__":
    main()
