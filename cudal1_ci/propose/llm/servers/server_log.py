"""Summarize the end of a model server's log.

log_end(place / "log", secrets)
"""

from __future__ import annotations

import re
from pathlib import Path

from cudal1_ci.propose.llm.servers.secrecy import Secrets

LOG_CHARS = 64 * 1024
"""Characters from the end of a log: vLLM writes the cause first, then a traceback for each of
its processes."""
LOG_LINES = 15
CAUSES = 3
CAUSE = re.compile(
    r"^(?:\([^)\n]*\) )?(?:ERROR [^]\n]*\] )?((?:\w+\.)*\w*(?:Error|Exception): .+)$", re.MULTILINE
)
"""A line of a log that names an exception, perhaps behind vLLM's process and place."""


def log_end(path: Path, secrets: Secrets) -> str:
    """Return a server's last lines, without secrets, after the first exceptions named before
    them.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_CHARS))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return excerpt(secrets.hidden(text))


def excerpt(log: str) -> str:
    """Return a log's last lines, and before them what they do not repeat."""
    end = [line for line in log.splitlines()[-LOG_LINES:] if line.strip()]
    named = dict.fromkeys(CAUSE.findall(log))
    causes = [cause for cause in named if not any(cause in line for line in end)]
    return "\n".join(f"  {line}" for line in (*causes[:CAUSES], *end))
