"""Run the user's own command with the tracer in each of its Python processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cudal1_ci.errors import ConfigError
from cudal1_ci.processes.local import SANDBOXED

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
) -> int:
    """Run a command in `root` and leave its trace in `folder`, which holds nothing else.

    `functions` are the names of the functions to record, by path. Return the command's exit code,
    or 124 when it was ended after `timeout_s` seconds. The command's output goes to stderr.

    Raises:
        ConfigError: There is no such command.
    """
    root = root.resolve()
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="cudal1-ci-trace-") as scratch:
        hook = Path(scratch) / "sitecustomize.py"
        listed = Path(scratch) / "functions.json"
        listed.write_text(json.dumps({k: list(v) for k, v in functions.items()}), encoding="utf-8")
        text = SITECUSTOMIZE.format(
            tracer=str(SANDBOXED / "tracer"),
            out=str(folder),
            root=str(root),
            functions=str(listed),
        )
        hook.write_text(text, encoding="utf-8")
        environment = traced_environment(scratch, python)
        try:
            with hearing_interrupts():
                process = subprocess.Popen(
                    list(command), cwd=root, env=environment, stdout=2, start_new_session=True
                )
        except OSError as error:
            raise ConfigError(
                f"`{command[0]}` cannot be run ({error.strerror}); give a command that runs in "
                f"{root}, for example `python -m pytest -q`"
            ) from error
        return wait(process, timeout_s)


@contextlib.contextmanager
def hearing_interrupts() -> Iterator[None]:
    """Let processes that are started in this context receive interrupts. A shell starts
    background commands with interrupts ignored, and child processes inherit that. They do not
    inherit a handler."""
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not is_ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def traced_environment(scratch: str, python: str | None) -> dict[str, str]:
    """Return the user's environment with the hook first on the path of modules. The project's
    interpreter is first on the path of programs."""
    environment = dict(os.environ)
    paths = [scratch, environment.get("PYTHONPATH", "")]
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
