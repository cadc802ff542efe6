"""Run a verb of the command line from a job, with a limited environment, time and output.

A verb starts code of the pull request: its tests, to record workloads, the modules that are
measured, the build commands of a comparison. So the verb gets an isolated interpreter, and an
environment without secrets. The runner shows the verb's output as text, not as commands.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import cudal1_ci
from cudal1_ci.processes.environment import without_secrets
from cudal1_ci.render.workflow_log import workflow_command

# The runner uses this to find and end processes that a job has left.
TRACKED_BY = "RUNNER_TRACKING_ID"

# Enough time to end a measurement and to write the report.
GRACE_S = 180.0
KILL_AFTER_S = 30.0
TIMED_OUT = 124

# -I keeps the working folder, PYTHONPATH and the user's packages out. The checkout of this tool,
# which need not be installed, is added by name.
BOOTSTRAP = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('cudal1_ci', run_name='__main__', alter_sys=True)"
)


class Runner(Protocol):
    """Run a verb: `run_verb`, or a replacement in tests."""

    def __call__(
        self, words: Sequence[str], *, cwd: Path, environment: Mapping[str, str], limit_s: float
    ) -> int: ...


def command(words: Sequence[str]) -> list[str]:
    """Return the command line of a verb, in this interpreter and of this checkout."""
    checkout = Path(cudal1_ci.__file__).resolve().parents[1]
    return [sys.executable, "-I", "-c", BOOTSTRAP, str(checkout), *words]


def scrubbed(
    environment: Mapping[str, str], state: Path, keys: Sequence[str] = ()
) -> dict[str, str]:
    """Return the part of the job's environment that a verb may read.

    Args:
        state: The archive's folder: outside the checkout, which may bring one along.
        keys: Names of secrets that the verb needs itself.
    """
    kept = without_secrets(environment) | {
        name: value
        for name, value in environment.items()
        # A setting of the tool holds no secret, but may name the variable that does.
        if name in (TRACKED_BY, *keys) or name.startswith("CUDAL1_CI_")
    }
    kept.setdefault("CUDAL1_CI_STATE_DIR", str(state))
    return kept


def run_verb(
    words: Sequence[str], *, cwd: Path, environment: Mapping[str, str], limit_s: float
) -> int:
    """Run a verb with its output in a group of the log.

    After `limit_s` seconds the verb is interrupted, as with Ctrl-C, and in the end killed:
    TIMED_OUT.
    """
    _say(workflow_command("group", f"cudal1-ci {' '.join(words)}"))
    # The output may hold text of the pull request: `::add-path::`, `::set-output::`.
    with _SilentCommands():
        process = subprocess.Popen(
            command(words), cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL
        )
        code = _wait(process, limit_s)
    _say("::endgroup::")
    return code


class _SilentCommands:
    """Turn off workflow commands in the log, except one that cannot be guessed."""

    def __init__(self) -> None:
        self._word = f"cudal1-ci-{secrets.token_hex(16)}"

    def __enter__(self) -> None:
        _say(f"::stop-commands::{self._word}")

    def __exit__(self, *_: object) -> None:
        # The newline: the last output may have been cut in the middle of a line.
        _say(f"\n::{self._word}::")


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Return the exit code; never leave the process running, even if this one is interrupted."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_AFTER_S)
        return TIMED_OUT
    finally:
        process.kill()
        process.wait()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
