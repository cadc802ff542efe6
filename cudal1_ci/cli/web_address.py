"""Say where a repository's files and commits can be looked at, for links of a page.

The address comes from Actions or from the checkout, never from a report or a history.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cudal1_ci import git

ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?(?:/[\w.~-]+)+/?")


def web_address(repository: str) -> str | None:
    """Return `https://github.com/owner/name`; None where it is not known."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and name:
        url = f"{server}/{name}"
        return url if name == repository and ADDRESS.fullmatch(url) else None
    return git.web_address(Path.cwd(), repository)
