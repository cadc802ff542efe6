"""Let git read a workspace of another user, as in a job in a container.

The runner's user owns the workspace, and the container's user is another one, so git refuses it.
`actions/checkout` allows it for its own step alone. Our own git gets settings that allow it; no
other program's change. The job runs the code of this workspace anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

INCLUDED = (".gitconfig", ".config/git/config")


def git_settings(environment: Mapping[str, str]) -> str:
    """Write settings into the job's folder for temporary files; return the file."""
    workspace = environment.get("GITHUB_WORKSPACE") or "."
    folder = Path(environment.get("RUNNER_TEMP") or Path(workspace) / ".cudal1-ci") / "cudal1-ci"
    folder.mkdir(parents=True, exist_ok=True)
    home = environment.get("HOME")
    users = [Path(home) / name for name in INCLUDED] if home else []
    if environment.get("XDG_CONFIG_HOME"):
        users.append(Path(environment["XDG_CONFIG_HOME"]) / "git" / "config")
    lines = [f'[include]\n\tpath = "{user}"\n' for user in users if user.is_file()]
    file = folder / "git-settings"
    file.write_text("".join(lines) + "[safe]\n\tdirectory = *\n", encoding="utf-8")
    return str(file.resolve())
