"""Run the user's own command, confined, with the tracer in each of its Python processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cudal1_ci.errors import ConfigError, DiscoveryError
from cudal1_ci.git import repository_top
from cudal1_ci.processes.enclosed import CommandsConfig, Enclosure, enclosed, interpreter_of
from cudal1_ci.processes.local import SANDBOXED

MAX_TRACES = 4096
MAX_TRACE_BYTES = 256 * 2**20
"""Of all processes of a command together."""
DEFAULT = CommandsConfig()

SITECUSTOMIZE = """\
import importlib.machinery as _machinery, importlib.util as _util, os as _os, sys as _sys
from pathlib import Path as _Path
_here = _os.path.dirname(__file__)
_sys.path[:] = [p for p in _sys.path if p != _here]
_spec = _machinery.PathFinder.find_spec("sitecustomize")
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(_util.module_from_spec(_spec))
_folder = {tracer!r}
_spec = _util.spec_from_file_location(
    "cudal1_tracer", _folder + "/__init__.py", submodule_search_locations=[_folder])
_package = _util.module_from_spec(_spec)
_sys.modules["cudal1_tracer"] = _package
_spec.loader.exec_module(_package)
from cudal1_tracer.install import install as _install
_install(_Path({out!r}), _Path({root!r}), _Path({functions!r}))
"""
"""Runs the tracer after the `sitecustomize` that the command would have run."""


def run_trace(
    command: Sequence[str],
    root: Path,
    folder: Path,
    functions: Mapping[str, Sequence[str]],
    timeout_s: float,
    python: str | None = None,
    *,
    hidden: Sequence[Path] = (),
    config: CommandsConfig = DEFAULT,
    notice: Callable[[str], None] = lambda _: None,
) -> int:
    """Run a command in `root` and leave its trace in `folder`, which holds nothing else.

    `functions` are the names of the functions to record, by path. Return the command's exit code,
    or 124 when it was ended after `timeout_s` seconds. The command's output goes to stderr. It is
    confined (enclosed.py), and sees neither `folder` nor what is `hidden`.

    Raises:
        ConfigError: There is no such command.
        UnsupportedError: This machine confines no command.
    """
    root = root.resolve()
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="cudal1-ci-trace-") as scratch:
        out = Path(scratch) / "out"
        hook = Path(scratch) / "hook" / "sitecustomize.py"
        listed = hook.with_name("functions.json")
        for made in (out, hook.parent):
            made.mkdir()
        listed.write_text(json.dumps({k: list(v) for k, v in functions.items()}), encoding="utf-8")
        text = SITECUSTOMIZE.format(
            tracer=str(SANDBOXED / "tracer"),
            out=str(out),
            root=str(root),
            functions=str(listed),
        )
        hook.write_text(text, encoding="utf-8")
        top = top_of(root)
        enclosure = Enclosure(
            pythons=tuple(filter(None, (python, interpreter_of(command[0])))),
            readable=(str(hook.parent),),
            writable=(str(out),),
            copied=tuple(dict.fromkeys((str(top), str(root)))),
            hidden=(str(folder), *map(str, hidden)),
            config=config,
        )
        environment = traced_environment(str(hook.parent), python)
        try:
            with enclosed(command, root, enclosure, environment) as process:
                if process.refused:
                    notice(f"not confined by {', '.join(process.refused)}: not granted here")
                code = wait(process.process, timeout_s)
        except OSError as error:
            raise ConfigError(
                f"`{command[0]}` cannot be run ({error.strerror}); give a command that runs in "
                f"{root}, for example `python -m pytest -q`"
            ) from error
        take_over(out, folder)
    return code


def take_over(out: Path, folder: Path) -> None:
    """Copy the traces that the command has left: plain files of a limited size, and no links."""
    room = MAX_TRACE_BYTES
    for file in sorted(out.glob("trace-*.jsonl"))[:MAX_TRACES]:
        try:
            end = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        found = os.fstat(end)
        if not stat.S_ISREG(found.st_mode) or found.st_size > room:
            os.close(end)
            continue
        room -= found.st_size
        with os.fdopen(end, "rb") as stream:
            (folder / file.name).write_bytes(stream.read(found.st_size))


def top_of(root: Path) -> Path:
    """Return the top of the repository: tests of a folder may read what lies next to it."""
    try:
        return repository_top(root).resolve()
    except DiscoveryError:
        return root


def traced_environment(hook: str, python: str | None) -> dict[str, str]:
    """Return the user's environment with the hook first on the path of modules. The project's
    interpreter is first on the path of programs."""
    environment = dict(os.environ)
    paths = [hook, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    if python is not None:
        folder = str(Path(python).absolute().parent)
        environment["PATH"] = os.pathsep.join([folder, environment.get("PATH", os.defpath)])
    return environment


def wait(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Return the exit code. The whole group is ended after the time or an interrupt."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        end(process)
        return 124
    except BaseException:
        end(process)
        raise


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the group so that it writes its traces, then terminate and kill it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return
