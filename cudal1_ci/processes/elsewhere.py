"""Programs built on another machine, whose products come here.

A builder here (builds/builder.py) has one elsewhere beside it, which is given what is to be built,
if it has the same software: what it has made is put where the judge of this machine looks. What it
cannot do, or is lost with it, is built here, or by the judge. Knows nothing of how the other
machine is reached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes import Executor, Worker

_FOR_ITS_PROCESSOR = re.compile(r"\b(?:march|mcpu|mtune|xHost)\b")
"""In a text: what is built may then be for the processor that it is built on."""
OPEN_S = 60.0
"""For a builder elsewhere to be there, while what is to be built waits."""
SHORT_S = 60.0
"""For a parcel."""


class Remote(Protocol):
    """A builder on another machine."""

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """As of a Worker. Raises WorkerError."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class BuildsElsewhere:
    """An executor whose builders have one elsewhere, as far as `found` finds one."""

    def __init__(self, executor: Executor, found: Callable[[], Remote | None]):
        self.executor, self.found = executor, found

    @property
    def has_disk(self) -> bool:
        return self.executor.has_disk

    def start(self, role: str, *, num_threads: int, device: str) -> AbstractContextManager[Worker]:
        """A worker that runs inside of a `with`."""
        started = self.executor.start(role, num_threads=num_threads, device=device)
        return TwoBuilders(started, self.found) if role == "builder" else started


class TwoBuilders:
    """One here and one elsewhere, asked as if they were one."""

    def __init__(self, here: AbstractContextManager[Worker], found: Callable[[], Remote | None]):
        self._starting, self._found = here, found
        self._remote: Remote | None = None
        self._sent: dict[int, Mapping[str, Any]] = {}
        """What was begun elsewhere, by number."""

    def __enter__(self) -> Self:
        self._here = self._starting.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._give_up()
        self._starting.__exit__(kind, error, traceback)

    @property
    def pid(self) -> int:
        return self._here.pid

    @property
    def software(self) -> dict[str, str]:
        return self._here.software

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """What `builds/builder.py` is asked. Raises WorkerError when the one here is gone."""
        if request["op"] == "open":
            said = self._here.ask(request, timeout_s)
            return said | self._opened(request, said, timeout_s)
        if request["op"] == "poll" and self._sent:
            return {"ended": [*self._ended_there(request, timeout_s), *self._ended_here(timeout_s)]}
        if request["op"] == "begin" and self._remote and is_portable(request["program"]):
            self._sent[request["number"]] = request
            return self._said_there(request, timeout_s) or {}
        if request["op"] == "cancel" and request["number"] in self._sent:
            return self._said_there(request, timeout_s) or {}
        return self._here.ask(request, timeout_s)

    def _opened(
        self, request: Mapping[str, Any], here: dict[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """What is other with one elsewhere; nothing where there is none that builds alike."""
        if not here["is_kept"]:
            return {}
        try:
            self._remote = self._found()
        except WorkerError:
            return {}
        there = self._said_there(request, min(timeout_s, OPEN_S))
        if there is None or not is_alike(there, here):
            self._give_up()
            return {}
        return {"num_at_once": there["num_at_once"]}

    def _ended_there(self, request: Mapping[str, Any], timeout_s: float) -> list[dict[str, Any]]:
        """With what they built put here. What does not compile there is built here: a header may be
        missing on that machine alone. Where it is lost, all that it had ended: the judge will see
        for itself."""
        said = self._said_there(request, timeout_s)
        if said is None:
            lost, self._sent = self._sent, {}
            return [{"number": number, "verdict": None} for number in lost]
        ended = []
        for one in said["ended"]:
            begun = self._sent.pop(one["number"])
            if one["verdict"] is None:
                self._fetch(begun["program"])
                ended.append(one)
            else:
                self._here.ask(begun, timeout_s)
        return ended

    def _ended_here(self, timeout_s: float) -> list[dict[str, Any]]:
        """What was not sent, or came back."""
        ended: list[dict[str, Any]] = self._here.ask({"op": "poll", "wait_s": 0.0}, timeout_s)[
            "ended"
        ]
        return ended

    def _fetch(self, program: dict[str, Any]) -> None:
        """What was built, if anything was. Raises WorkerError when the builder here is gone."""
        said = self._said_there({"op": "pack", "program": program}, SHORT_S)
        if said is not None and said["parcel"] is not None:
            self._here.ask({"op": "unpack", "program": program, **said}, SHORT_S)

    def _said_there(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """Its answer; None where there is nobody, from then on."""
        if self._remote is None:
            return None
        try:
            return self._remote.ask(request, timeout_s)
        except WorkerError:
            self._give_up()
            return None

    def _give_up(self) -> None:
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()


def is_alike(there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether one elsewhere builds the same at the same path, and confines programs as well as the
    one here."""
    same = ("is_kept", "software", "store")
    less = set(there["sandbox_missing"]) - set(here["sandbox_missing"])
    return not less and all(there[name] == here[name] for name in same)


def is_portable(program: Mapping[str, Any]) -> bool:
    """Whether what it builds is no other on another processor."""
    return _FOR_ITS_PROCESSOR.search(json.dumps(program)) is None
