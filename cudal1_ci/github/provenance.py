"""Say what may be believed of a report: who made it, by which workflow and settings.

A report is what the measuring job says. A job of this repository runs what people with the right to
push have written. A fork's job runs the fork's workflow, and its project's code builds the
environment: it may write any number. So its report is unverified, whatever it says: no success and
no suggestion comes of it. A maintainer who has read the commit has it measured here, by the base's
workflow (`/cudal1 run SHA`); that run's report is this repository's own.

The label also names what the fork's job had of its own: the tree `.github`, with the
workflow, the commit of each action and local actions, and the settings of each project, compared by
git's ids with those of the base. Agreements and the gate are read from the base in any case.

    provenance(client, run, pull_number, folders)
"""

from __future__ import annotations

import tomllib
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.event import Occasion
from cudal1_ci.records import Notice, Record, Report

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client

CONFIGURATION = ".github/cudal1-ci.toml"
SETTINGS = "pyproject.toml"
MAX_NAMED = 3
MAX_DEPTH = 16
WORKFLOWS = "`.github` (workflows and actions)"


class Provenance(Record, frozen=True, kw_only=True):
    """Describe who made a report."""

    is_verified: bool
    """Whether it is of a job that only this repository's people control."""
    changed: tuple[str, ...] | None = ()
    """What the job had of its own, in words; None where GitHub does not say."""

    @property
    def text(self) -> str:
        """Return the label of a report that is not verified; empty for others."""
        if self.is_verified:
            return ""
        if self.changed is None:
            how = "it is not known by which workflow"
        elif self.changed:
            named = ", ".join(self.changed[:MAX_NAMED])
            how = f"with changes of its own to {named}"
        else:
            how = "with this repository's workflow, actions and settings"
        return (
            f"Unverified: a job of the fork measured this, {how}, and may have written any number. "
            "A maintainer who has read the commit has it measured here: `/cudal1 run SHA`."
        )


UNKNOWN = Provenance(is_verified=False, changed=None)


def provenance(
    client: Client | None, run: Occasion, number: int | None, folders: Sequence[str] = (".",)
) -> Provenance:
    """Return what may be believed of the report of a run on a pull request."""
    if not run.is_of_a_fork:
        return Provenance(is_verified=True)
    if client is None or number is None:
        return UNKNOWN
    try:
        base = client.read(f"pulls/{number}")["base"]["sha"]
        changed = differences(client, base, run.head_sha, folders)
    except (Refusal, AttributeError, KeyError, TypeError, ValueError):
        changed = None
    return Provenance(is_verified=False, changed=changed)


def labeled(document: Report, found: Provenance) -> Report:
    """Return a report under its label. What an unverified one says of agreements is dropped."""
    if found.is_verified:
        return document
    entries = [
        msgspec.structs.replace(
            entry, comparison=msgspec.structs.replace(entry.comparison, acknowledged=None)
        )
        if entry.comparison is not None
        else entry
        for entry in document.entries
    ]
    notice = Notice(path=".", message=found.text)
    return msgspec.structs.replace(
        document, entries=tuple(entries), warnings=(notice, *document.warnings)
    )


def differences(client: Client, base: str, head: str, folders: Sequence[str]) -> tuple[str, ...]:
    """Return what of the workflow and the settings differs between two commits."""
    before, after = top_of(client, base), top_of(client, head)
    found = [] if before.get(".github") == after.get(".github") else [WORKFLOWS]
    for folder in dict.fromkeys((".", *folders)):
        for name in (SETTINGS, *((CONFIGURATION,) if folder != "." else ())):
            path = (PurePosixPath(folder) / name).as_posix()
            ids = (id_of(client, before, path), id_of(client, after, path))
            if ids[0] != ids[1] and settings_at(client, name, ids[0]) != settings_at(
                client, name, ids[1]
            ):
                found.append(f"the settings in `{path}`")
    return tuple(found)


def top_of(client: Client, commit: str) -> Mapping[str, str]:
    """Return the ids of what is at the top of a commit."""
    return entries(client, client.read(f"git/commits/{commit}")["tree"]["sha"])


def entries(client: Client, tree: str) -> Mapping[str, str]:
    """Return the ids of what is in a tree, by name. Raises ValueError for one that is cut."""
    answer = client.read(f"git/trees/{tree}")
    if answer.get("truncated"):
        raise ValueError("the tree has too many entries")
    return {one["path"]: one["sha"] for one in answer["tree"]}


def id_of(client: Client, top: Mapping[str, str], path: str) -> str | None:
    """Return the id of a file; None where there is none."""
    *folders, name = PurePosixPath(path).parts
    if len(folders) > MAX_DEPTH:
        raise ValueError("the folder is too deep")
    for folder in folders:
        if folder not in top:
            return None
        top = entries(client, top[folder])
    return top.get(name)


def settings_at(client: Client, name: str, blob: str | None) -> object:
    """Return the settings in a file of that id."""
    if blob is None:
        return settings_in(name, None)
    content = b64decode(client.read(f"git/blobs/{blob}")["content"])
    return settings_in(name, content.decode("utf-8", "replace"))


def settings_in(name: str, text: str | None) -> object:
    """Return a file's settings of this tool; the text itself if it is no TOML."""
    if text is None or name == CONFIGURATION:
        return text
    try:
        table: Any = tomllib.loads(text).get("tool", {}).get("cudal1-ci")
    except (tomllib.TOMLDecodeError, AttributeError):
        return text
    return table
