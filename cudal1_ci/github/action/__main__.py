"""Run `python -m cudal1_ci.github.action DOOR`; turn failures into annotations and exit codes."""

from __future__ import annotations

import importlib
import os
import sys

from cudal1_ci.errors import CudaL1Error
from cudal1_ci.git import SETTINGS_VARIABLE
from cudal1_ci.github.action.git_settings import git_settings
from cudal1_ci.render.workflow_log import workflow_command
from cudal1_ci.unreadable import make_unreadable

DOORS = ("commands", "measure", "publish", "sweep", "trend")
"""Modules of this package, each with a function of its name. Only the one that is entered is
imported: the environment of a job that publishes holds nothing else."""


def main(arguments: list[str]) -> int:
    """Run one entry point; the exit codes are those of docs/exit-codes.md."""
    if len(arguments) != 1 or arguments[0] not in DOORS:
        sys.stderr.write(f"usage: python -m cudal1_ci.github.action {'|'.join(DOORS)}\n")
        return 2
    os.environ[SETTINGS_VARIABLE] = git_settings(os.environ)
    try:
        (door,) = arguments
        module = importlib.import_module(f"cudal1_ci.github.action.{door}")
        return int(getattr(module, door)(os.environ))
    except CudaL1Error as error:
        sys.stdout.write(workflow_command("error", str(error)) + "\n")
        return error.exit_code


if __name__ == "__main__":
    make_unreadable()
    sys.exit(main(sys.argv[1:]))
