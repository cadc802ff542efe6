"""Check what this machine can and cannot do, and how to fix it: `cudal1-ci doctor`.

Each check is a function that returns a Diagnosis; the verb prints them. Nothing is changed.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click
import rich.table
from rich.text import Text

from cudal1_ci import __version__
from cudal1_ci.cli.devices import unplaced
from cudal1_ci.cli.diagnosis import Diagnosis, Grade
from cudal1_ci.cli.execution import PYTHON_HELP, executor_of, with_interpreter
from cudal1_ci.cli.group import EXIT_UNSUPPORTED
from cudal1_ci.cli.model_check import model_diagnoses
from cudal1_ci.cli.noise import noise
from cudal1_ci.config import Settings, load_settings
from cudal1_ci.errors import CudaL1Error
from cudal1_ci.processes.container import find_engine
from cudal1_ci.processes.interpreter import OWN, SEARCHED, find_interpreter
from cudal1_ci.render.text import console_on
from cudal1_ci.verification import Session, TrialConfig

EPILOG = """\b
Examples:
  cudal1-ci doctor
  cudal1-ci doctor --python ~/project/.venv/bin/python
  cudal1-ci doctor --model http://127.0.0.1:8000/v1
  cudal1-ci doctor --show-config
"""

PROBE = """
import importlib.util, json, sys
from importlib import metadata
found = {"python": sys.version.split()[0], "executable": sys.executable}
for name in ("torch", "triton", "transformers", "vllm"):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 6)


@click.command(
    epilog=EPILOG, short_help="Check what this machine can do and how to fix what it cannot."
)
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--python", help=PYTHON_HELP)
@click.option(
    "--model", metavar="URL", help="Also ask this server for an answer; or find these weights."
)
@click.option("--show-config", is_flag=True, help="Print each setting and where it came from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
def doctor(
    path: Path, python: str | None, model: str | None, show_config: bool, as_json: bool
) -> None:
    """Show what this machine can do for the repository at PATH, and how to get what is missing.

    Exit code 0 when a scan can run here, 4 when it cannot.
    """
    flags = {"python": python, "model.model": model}
    written = load_settings(path, overrides={key: one for key, one in flags.items() if one})
    settings = with_interpreter(written, path)
    if show_config:
        show_settings(settings.origins(), as_json)
        return
    diagnoses = [
        tool(),
        *project(settings, path),
        git(path),
        gpu(),
        *noise(),
        sandbox(settings, path),
        *([container(settings)] if settings.executor == "container" else []),
        compiler(),
        state_folder(path / settings.state_dir),
        configuration(settings.file),
        *(model_diagnoses(settings.model) if model else ()),
    ]
    if as_json:
        click.echo(json.dumps([asdict(d) for d in diagnoses], indent=2))
    else:
        print_table(diagnoses)
    if any(d.grade == "missing" for d in diagnoses):
        sys.exit(EXIT_UNSUPPORTED)


def show_settings(origins: Iterable[tuple[str, object, str]], as_json: bool) -> None:
    """Show every key, its value and the file, variable or flag it came from."""
    if as_json:
        rows = [{"key": k, "value": v, "origin": o} for k, v, o in origins]
        click.echo(json.dumps(rows, indent=2, default=str))
        return
    table = rich.table.Table("key", "value", "from", box=None)
    for key, value, origin in origins:
        table.add_row(key, str(value), origin)
    console_on(sys.stdout).print(table)


def tool() -> Diagnosis:
    """Describe this tool and the machine."""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    grade: Grade = "ok" if platform.system() == "Linux" else "missing"
    return Diagnosis(
        name="cudal1-ci",
        grade=grade,
        found=f"{__version__} on {system}",
        fix=""
        if grade == "ok"
        else "measurements need Linux (fork, shared memory); use WSL or a container",
    )


def project(settings: Settings, path: Path) -> Iterable[Diagnosis]:
    """Describe where the user's code runs. The content of a container's image is checked by
    `sandbox`, when the verifier is started in it.
    """
    inside = settings.container.python
    if settings.executor == "container" and inside is not None:
        found = f"{inside} of {settings.container.image}"
        return [Diagnosis(name="project's Python", grade="ok", found=found)]
    ((_, python, origin),) = (one for one in settings.origins() if one[0] == "python")
    if python is None:  # a cluster: each of its machines has its own
        return interpreters(sys.executable, OWN)
    passed_over = find_interpreter(path, os.environ).passed_over
    return interpreters(str(python), origin, passed_over)


def version_of(text: str) -> tuple[int, ...]:
    """Return major and minor of a version: (2, 13) of `2.13.0+cpu`."""
    return tuple(int(part) for part in text.split("+")[0].split(".")[:2])


def interpreters(
    python: str, origin: str, passed_over: tuple[str, ...] = ()
) -> Iterable[Diagnosis]:
    """Check the interpreter that runs the user's code, why it is that one, and whether it has
    torch."""
    try:
        done = subprocess.run(
            [python, "-c", PROBE], capture_output=True, text=True, timeout=60, check=True
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        yield Diagnosis(
            name="project's Python",
            grade="missing",
            found=f"{python}: {error}",
            fix="name the interpreter of the project: --python PATH, or the `python` setting",
        )
        return
    old = version_of(found["python"]) < OLDEST_PYTHON
    yield Diagnosis(
        name="project's Python",
        grade="missing" if old else "ok",
        found=f"{found['python']} ({found['executable']}); chosen by: {origin}",
        fix="Python 3.10 or newer is needed in the project's environment"
        if old
        else "; ".join(f"not used: {one}" for one in passed_over),
    )
    version = found["torch"]
    if version is None:
        yield Diagnosis(
            name="torch",
            grade="missing",
            found=f"not installed in {found['executable']}",
            fix=f"no environment of the project was found (searched: {SEARCHED}); name its "
            "interpreter: --python PATH, or the `python` setting"
            if origin == OWN
            else "install the project's requirements there, or name another interpreter: "
            "--python PATH, or the `python` setting",
        )
        return
    old = version_of(version) < OLDEST_TORCH
    yield Diagnosis(
        name="torch",
        grade="missing" if old else "ok",
        found=version,
        fix="torch 2.6 or newer is needed in the project's environment" if old else "",
    )
    yield Diagnosis(
        name="triton",
        grade="ok" if found["triton"] else "limited",
        found=found["triton"] or "not installed",
        fix="" if found["triton"] else "only needed for Triton kernels on a GPU",
    )


def git(path: Path) -> Diagnosis:
    """Check whether changes can be found."""
    if shutil.which("git") is None:
        return Diagnosis(
            name="git",
            grade="limited",
            found="not installed",
            fix="`apt-get install git`: needed by --changed and --apply",
        )
    inside = subprocess.run(
        ["git", "-C", str(path), "rev-parse", "--is-inside-work-tree"],
        capture_output=True,
        text=True,
        check=False,
    )
    if inside.returncode != 0:
        return Diagnosis(
            name="git",
            grade="limited",
            found=f"{path.resolve()} is not in a git checkout",
            fix="scan works; --changed needs a git checkout",
        )
    return Diagnosis(name="git", grade="ok", found="a checkout")


def gpu() -> Diagnosis:
    """Describe NVIDIA GPUs; nvidia-smi makes no CUDA context."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return Diagnosis(
            name="GPU",
            grade="limited",
            found="no NVIDIA driver (nvidia-smi not found)",
            fix="times are CPU times, and labeled so; kernels are listed, not measured",
        )
    done = subprocess.run(
        [smi, "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    names = "; ".join(done.stdout.strip().splitlines()) or done.stderr.strip()
    return Diagnosis(name="GPU", grade="ok", found=names)


def sandbox(settings: Settings, path: Path) -> Diagnosis:
    """Check what confines the verified programs to their processes."""
    executor = executor_of(unplaced(settings), path.resolve())
    try:
        with Session(TrialConfig(), device="cpu", executor=executor) as session:
            absent = session.device().sandbox_missing
    except CudaL1Error as error:
        grade: Grade = "missing" if settings.executor == "container" else "limited"
        return Diagnosis(name="sandbox", grade=grade, found=f"not tried: {error}")
    if not absent:
        return Diagnosis(name="sandbox", grade="ok", found="all layers")
    is_contained = settings.executor == "container"
    return Diagnosis(
        name="sandbox",
        grade="limited",
        found=f"without {', '.join(absent)}{', in a container' if is_contained else ''}",
        fix="docs/security.md describes each layer; "
        + (
            "as an ordinary user a container has more of them"
            if is_contained
            else 'allow user namespaces, or set `executor = "container"`'
        ),
    )


def container(settings: Settings) -> Diagnosis:
    """Check whether the configured container can be started."""
    try:
        engine = find_engine(settings.container)
    except CudaL1Error as error:
        what, _, fix = str(error).partition(": ")
        return Diagnosis(name="container", grade="missing", found=f"not usable ({what})", fix=fix)
    found = f"{engine.version}; {settings.container.image} sha256:{engine.image_id[:12]}"
    return Diagnosis(name="container", grade="ok", found=found)


def compiler() -> Diagnosis:
    """Find a C++ compiler, for torch.compile and extensions."""
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    return Diagnosis(
        name="C++ compiler",
        grade="ok" if found else "limited",
        found=found or "none",
        fix="" if found else "`apt-get install g++`: torch.compile on the CPU needs one",
    )


def state_folder(folder: Path) -> Diagnosis:
    """Check the folder of the archive and the traces."""
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if os.access(existing, os.W_OK):
        return Diagnosis(name="state", grade="ok", found=str(folder))
    return Diagnosis(
        name="state",
        grade="missing",
        found=f"{existing} is not writable",
        fix="set `state-dir` (or CUDAL1_CI_STATE_DIR) to a folder that is",
    )


def configuration(file: Path | None) -> Diagnosis:
    """Name the file that configures this repository."""
    if file is None:
        return Diagnosis(
            name="configuration",
            grade="ok",
            found="defaults",
            fix="`cudal1-ci init` writes a file to start from",
        )
    return Diagnosis(name="configuration", grade="ok", found=str(file))


def print_table(diagnoses: list[Diagnosis]) -> None:
    """Print a table for people: what, how good, what was found, what to do."""
    color = {"ok": "green", "limited": "yellow", "missing": "red", "unknown": "dim"}
    table = rich.table.Table(box=None, pad_edge=False)
    for column in ("", "", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for d in diagnoses:
        # Text: in a plain string `[torch]` would be taken for a style.
        table.add_row(d.name, Text(d.grade, color[d.grade]), Text(d.found), Text(d.fix))
    console_on(sys.stdout).print(table)
