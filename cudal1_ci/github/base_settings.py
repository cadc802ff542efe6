"""Read what the base says of the gate: never a report, and never the change itself.

The job that posts has no checkout, so the two files are asked of GitHub, at the commit of the base
that the event names. Only what the gate needs is read; the measuring job has checked the rest. What
the base does not say is the workflow's to say.

    settings_of_projects(client, base_sha, ["packages/a"])["packages/a"].policy(given)
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from glob import escape
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from cudal1_ci.compare.agreements import agreements, covering
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Acknowledgement, Entry, Record, Report
from cudal1_ci.stats.gate import GateConfig, Policy

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client

FILES = (".github/cudal1-ci.toml", "pyproject.toml")


class BaseSettings(Record, frozen=True, kw_only=True):
    """Hold the gate and the agreements of a project in the base."""

    fail_on: str | None = None
    """None where the base does not say."""
    gate: GateConfig = GateConfig()
    acks: tuple[Acknowledgement, ...] = ()
    folder: str = "."
    is_there: bool = False
    """Whether the folder has settings."""

    def policy(self, given: Policy) -> Policy:
        """Return the policy of the base, with the workflow's where the base is silent; for paths
        from the top.
        """
        gate, plain = self.gate, GateConfig()
        kept = {
            name: getattr(given.gate, name)
            for name in GateConfig.__struct_fields__
            if getattr(gate, name) == getattr(plain, name)
        }
        if self.folder != "." and "required" not in kept:
            kept["required"] = tuple(f"{escape(self.folder)}/{glob}" for glob in gate.required)
        return Policy(
            fail_on=self.fail_on or given.fail_on,
            gate=msgspec.structs.replace(gate, **kept),
        )


def base_settings(text_at: Callable[[str], str | None], folder: str) -> BaseSettings:
    """Return the settings of a project's folder; defaults where it has none.

    Raises:
        ConfigError: They cannot be read.
    """
    for name in FILES:
        path = (PurePosixPath(folder) / name).as_posix()
        text = text_at(path)
        table = _table(name, text) if text is not None else None
        if table is None:
            continue
        try:
            given = {key.replace("-", "_"): value for key, value in table.get("gate", {}).items()}
            return BaseSettings(
                fail_on=_text_of(table.get("fail-on")),
                gate=msgspec.convert(given, GateConfig, strict=True),
                acks=agreements(table.get("ack", ()), path),
                folder=folder,
                is_there=True,
            )
        except (msgspec.ValidationError, AttributeError, TypeError) as error:
            raise ConfigError(f"{path} of the base: {error}") from error
    return BaseSettings(folder=folder)


def settings_of_projects(
    client: Client, base: str | None, folders: Iterable[str], *, are_declared: bool = True
) -> dict[str, BaseSettings]:
    """Return what the base says of the gate of each project.

    Args:
        base: A commit; None is the default branch.
        are_declared: Whether the workflow names the folders. Those that only a report names do not
            choose their gate: the one of the top holds, where it has settings.

    Raises:
        Refusal: GitHub does not say.
        ConfigError: The base has settings that cannot be read.
    """
    text_at = partial(client.text_at, commit=base)
    if not are_declared and (top := base_settings(text_at, ".")).is_there:
        return dict.fromkeys(folders, top)
    return {folder: base_settings(text_at, folder) for folder in dict.fromkeys(folders)}


def with_agreements_of(document: Report, settings: BaseSettings) -> Report:
    """Return a report with the agreements of the base, whatever it says of them itself."""
    today = datetime.datetime.now(datetime.UTC).date()
    entries = tuple(
        _agreed(entry, settings.acks, settings.folder, today) for entry in document.entries
    )
    return msgspec.structs.replace(document, entries=entries)


def _agreed(
    entry: Entry, known: Sequence[Acknowledgement], folder: str, today: datetime.date
) -> Entry:
    comparison = entry.comparison
    if comparison is None:
        return entry
    path = PurePosixPath(entry.target.path)
    if folder != "." and path.is_relative_to(folder):
        path = path.relative_to(folder)
    found = None
    if comparison.verdict == "regression" and comparison.slowdown is not None:
        name = f"{path.as_posix()}:{entry.target.qualname}"
        found, _ = covering(name, comparison.slowdown, known, today)
    if found == comparison.acknowledged:
        return entry
    changed = msgspec.structs.replace(comparison, acknowledged=found)
    return msgspec.structs.replace(entry, comparison=changed)


def _table(name: str, text: str) -> dict[str, Any] | None:
    """Return the settings in a file; None where it has none."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} of the base is no TOML: {error}") from error
    if name == "pyproject.toml":
        table = read.get("tool", {}).get("cudal1-ci")
        return table if isinstance(table, dict) else None
    return read


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) else None
