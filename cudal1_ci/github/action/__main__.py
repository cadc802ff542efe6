"""Run `python -m cudal1_ci.github.action DOOR`; turn failures into annotations and exit codes."""

from __future__ import annotations

import os
import sys

from cudal1_ci.errors import CudaL1Error
from cudal1_ci.github.action.commands import commands
from cudal1_ci.github.action.measure import measure
from cudal1_ci.github.action.publish import publish
from cudal1_ci.github.action.sweep import sweep
from cudal1_ci.github.action.trend import trend
from cudal1_ci.render.workflow_log import workflow_command
from cudal1_ci.unreadable import make_unreadable

DOORS = {
    "commands": commands,
    "trend": trend,
    "measure": measure,
    "publish": publish,
    "sweep": sweep,
}


def main(arguments: list[str]) -> int:
    """Run one entry point; the exit codes are those of docs/exit-codes.md."""
    if len(arguments) != 1 or arguments[0] not in DOORS:
        sys.stderr.write(f"usage: python -m cudal1_ci.github.action {'|'.join(DOORS)}\n")
        return 2
    try:
        return DOORS[arguments[0]](os.environ)
    except CudaL1Error as error:
        sys.stdout.write(workflow_command("error", str(error)) + "\n")
        return error.exit_code


if __name__ == "__main__":
    make_unreadable()
    sys.exit(main(sys.argv[1:]))
