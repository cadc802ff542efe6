"""State where, when and on what code a result was measured."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any


def provenance() -> dict[str, Any]:
    """Return where, when and on what code a result is measured. In a copy without .git the variable
    COMMIT holds the commit."""
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
    """Return the processor's model name, or the machine's type where the system has none."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
