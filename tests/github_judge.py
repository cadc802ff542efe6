"""GitHub's own description of its API between `publish` and the fake: whoever breaks it is told.

Prism (`.ci/github-rig`) holds each request against the description before it passes it on, and each
answer of the fake before it hands that back. It answers 422 to a wrong request and 500 to a wrong
answer, which `publish` may take for a refusal of GitHub's, and live with; so what it objected to is
read from its log as well. The description says nothing of some things that GitHub refuses: a
comment of 70,000 characters, a completed check without a conclusion, a line outside of the diff,
what a token may. The fake has rules for those.

    with Judge() as judge, judge.serving(GitHub()) as github: ...
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.github_fake import GitHub, Server

RIG = Path(__file__).parents[1] / "build" / "github-rig"
PRISM = RIG / "node_modules" / ".bin" / "prism"
DESCRIPTION = RIG / "github.json"
EVENTS = RIG / "events.json"
START_S = 60.0
"""It takes one second; a busy machine is given more."""
_OBJECTION = re.compile(r"\[HTTP SERVER\] (\w+ \S+) .*terminated with error: (.*)")
_MARK = "/has-all-been-written"


def has_rig() -> bool:
    """Whether there is what `.ci/github-rig` installs, or has to be."""
    return not _missing() or os.environ.get("CI") == "true"


def needs_rig() -> None:
    """Without what `.ci/github-rig` installs CI fails, and elsewhere a test is skipped."""
    missing = _missing()
    if not missing:
        return
    why = f"build/github-rig has no {', '.join(missing)}: run .ci/github-rig, which needs npm"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def _missing() -> list[str]:
    return [path.name for path in (PRISM, DESCRIPTION, EVENTS) if not path.exists()]


@cache
def _events() -> dict[str, str]:
    return {kind["name"]: json.dumps(kind["examples"]) for kind in json.loads(EVENTS.read_text())}


def recorded(name: str) -> list[dict[str, Any]]:
    """The events of a name that GitHub has recorded, for the caller to change."""
    needs_rig()
    return json.loads(_events()[name])


class Judge:
    """One Prism and one port of the fake, for any number of GitHubs one after another."""

    def __init__(self) -> None:
        self._server = Server()
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed with the judge
        self._num_marks = 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = ["proxy", "--errors", "--host", "127.0.0.1", "--port", str(port)]
        self._process = subprocess.Popen(
            [PRISM, *words, DESCRIPTION, self._server.url],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> Judge:
        self.objections(START_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._server.close()
        self._log.close()

    def show(self, github: GitHub) -> None:
        """Let this one answer; the addresses in its answers lead past the judge as well."""
        self._server.show(github)
        github.url = self.url

    @contextmanager
    def serving(self, github: GitHub) -> Iterator[GitHub]:
        """Answer for this one, and see in the end that nothing was objected to."""
        self.show(github)
        yield github
        assert not self.objections()

    def objections(self, limit_s: float = 10.0) -> list[str]:
        """What was wrong since this was asked last: `post /repos/...: why`. A request of our own,
        which is waited for in the log, shows that all before it has been written."""
        self._num_marks += 1
        mark = f"{_MARK}-{self._num_marks}"
        began = time.monotonic()
        while f"get {mark} " not in (log := self._read()):
            if self._process.poll() is not None or time.monotonic() - began > limit_s:
                pytest.fail(f"Prism does not answer ({self._process.poll()}):\n{log}")
            self._ask(mark)
            time.sleep(0.02)
        since = log.rpartition(f"get {_MARK}-{self._num_marks - 1} ")[2]
        return [f"{what}: {why}" for what, why in _OBJECTION.findall(since) if _MARK not in what]

    def _ask(self, path: str) -> None:
        try:
            urllib.request.urlopen(self.url + path, timeout=5).close()
        except urllib.error.HTTPError as refused:
            refused.close()
        except OSError:
            pass  # it does not listen yet

    def _read(self) -> str:
        return os.pread(self._log.fileno(), 2**26, 0).decode("utf-8", "replace")
