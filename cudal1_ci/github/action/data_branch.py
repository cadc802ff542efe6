"""Fetch a branch that holds data and no code, and push it with one more commit.

The branch shares no history with the code, so neither can be merged into the other by mistake. Git
gets the token from its environment: other users of the machine can read a command line.
"""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path

from cudal1_ci.errors import ConfigError, ForgeError
from cudal1_ci.git import git_environment

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)*")
# The author of commits in a workflow, by GitHub's own number.
AUTHOR = ("github-actions[bot]", "41898282+github-actions[bot]@users.noreply.github.com")
LIMIT_S = 300.0


class DataBranch:
    """Hold a branch of a remote in a new folder of its own."""

    def __init__(self, folder: Path, remote: str, branch: str, token: str | None) -> None:
        if not NAME.fullmatch(branch) or ".." in branch or branch.endswith(".lock"):
            raise ConfigError(f"input `branch`: expected the name of a branch, got {branch!r}")
        self.folder = folder
        self._remote, self._branch, self._token = remote, branch, token

    def fetch(self) -> None:
        """Fetch the branch; leave the folder empty if the branch does not exist yet.

        Raises:
            ForgeError: It cannot be fetched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._git("init", "--quiet", "--template=")
        ref = f"refs/heads/{self._branch}"
        if self._git("ls-remote", self._remote, ref).strip():
            self._git("fetch", "--quiet", "--depth=1", "--no-tags", self._remote, ref)
            self._git("checkout", "--quiet", "-B", self._branch, "FETCH_HEAD")
        else:
            self._git("symbolic-ref", "HEAD", ref)

    def push(self, name: str, message: str) -> bool:
        """Commit one file and push it; return whether the file had changed.

        Raises:
            ForgeError: The token may not write, or another push came first.
        """
        self._git("add", "--", name)
        if not self._git("status", "--porcelain", "--", name).strip():
            return False
        self._git("commit", "--quiet", "-m", message)
        self._git("push", "--quiet", self._remote, f"HEAD:refs/heads/{self._branch}")
        return True

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.folder,
            env=git_environment() | self._settings(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise ForgeError(
                f"git {words[0]} of the branch {self._branch}: {_last_line(done.stderr)}; the job "
                "needs `permissions: contents: write`, and one job at a time writes the branch"
            )
        return done.stdout

    def _settings(self) -> dict[str, str]:
        """Return git's settings; a link in the branch becomes a file with a path, not a link."""
        settings = {
            "user.name": AUTHOR[0],
            "user.email": AUTHOR[1],
            "core.symlinks": "false",
            "core.hooksPath": "/dev/null",
        }
        if self._token:
            known = base64.b64encode(f"x-access-token:{self._token}".encode()).decode()
            settings[f"http.{self._remote}.extraHeader"] = f"AUTHORIZATION: basic {known}"
        numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (key, value) in enumerate(settings.items()):
            numbered[f"GIT_CONFIG_KEY_{number}"] = key
            numbered[f"GIT_CONFIG_VALUE_{number}"] = value
        return numbered


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "git gave no reason"
