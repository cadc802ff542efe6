"""Read the workflow's inputs from `INPUT_*` variables: `fail-on` is `INPUT_FAIL_ON`.

Defaults are those of action.yml, which always sets every variable; an empty one is not given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal, TypeVar

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.projects import Expected
from cudal1_ci.stats.gate import Answer, FailOn, GateConfig, Policy

Comment = Literal["auto", "always", "never"]
WINDOWS_DRIVE = re.compile(r"[A-Za-z]:(?=[\\/]|$)")
T = TypeVar("T", bound=msgspec.Struct)
U = TypeVar("U")


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the inputs of action.yml. Durations stay text: the verbs get them as written."""

    path: str = "."
    base: str | None = None
    include: tuple[str, ...] = ()
    device: str | None = None
    budget: str = "10m"
    compare: bool = True
    optimize: bool = True
    optimize_budget: str = "10m"
    model: str | None = None
    fail_on: FailOn = "never"
    python: str = "python"
    traces: str | None = None
    executor: str | None = None
    container_image: str | None = None
    require_sandbox: bool = False
    allow_fork_code: str | None = None


class Machine(msgspec.Struct, frozen=True):
    """Hold the parts of a matrix's entry that say what is expected."""

    name: str
    gpu: bool = False


class GateInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the inputs that say what is expected and what follows; the base's own say goes first."""

    fail_on: FailOn = "never"
    on_missing: Answer = "auto"
    on_inconclusive: Answer = "auto"
    machines: tuple[Machine, ...] = ()
    projects: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        gate = GateConfig(
            on_missing=self.on_missing,
            on_inconclusive=self.on_inconclusive,
            machines=self.machine_names,
            gpus=self.gpus,
        )
        return Policy(fail_on=self.fail_on, gate=gate)

    @property
    def expected(self) -> Expected:
        return Expected(projects=self.projects, machines=self.machine_names)

    @property
    def machine_names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.machines)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return the machines that have to measure on a GPU."""
        return tuple(one.name for one in self.machines if one.gpu)


class PublishInputs(GateInputs, frozen=True, kw_only=True):
    """Hold the inputs of actions/publish/action.yml; the token stays in the environment."""

    reports: str = "reports/**/report.json"
    start: bool = False
    measured: Literal["success", "failure", "cancelled", "skipped", "unusable"] = "success"
    comment: Comment = "auto"
    check: bool = True
    artifact_url: str | None = None
    workflow: str | None = None
    commands: bool = False
    sweep: bool = False
    max_items: int = 20
    max_open_prs: int = 0
    dry_run: bool = False


class SweepInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the inputs of actions/sweep/action.yml."""

    path: str = "."
    include: tuple[str, ...] = ()
    device: str | None = None
    budget: str = "4h"
    model: str | None = None
    python: str = "python"
    executor: str | None = None
    container_image: str | None = None
    require_sandbox: bool = False


class CommandInputs(GateInputs, frozen=True, kw_only=True):
    """Hold the inputs of actions/commands/action.yml; the token stays in the environment."""

    workflow: str = "cudal1-ci"
    allow_fork_code: str | None = None


class TrendInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the inputs of actions/trend/action.yml; the token stays in the environment."""

    reports: str = "reports/**/report.json"
    checkout: str = "source"
    branch: str = "cudal1-ci-trend"
    site: str = "site"


def measure_inputs(environment: Mapping[str, str]) -> Inputs:
    """Read the inputs of action.yml. Raises: ConfigError, naming the input."""
    given = _read_inputs(environment, Inputs)
    include = given.pop("include", "")
    inputs = _convert({**given, "include": [line for line in include.split() if line]}, Inputs)
    for name in ("budget", "optimize_budget"):
        seconds_of(name, getattr(inputs, name))
    refuse_other_paths(inputs.path)
    return inputs


def sweep_inputs(environment: Mapping[str, str]) -> SweepInputs:
    """Read the inputs of actions/sweep/action.yml. Raises: ConfigError, naming the input."""
    given = _read_inputs(environment, SweepInputs)
    include = given.pop("include", "")
    inputs = _convert({**given, "include": include.split()}, SweepInputs)
    seconds_of("budget", inputs.budget)
    refuse_other_paths(inputs.path)
    return inputs


def refuse_other_paths(path: str) -> None:
    """Refuse a folder that is not below the workspace. Raises: ConfigError."""
    if "\\" in path or WINDOWS_DRIVE.match(path):
        raise ConfigError(
            f"input `path`: expected a folder with `/` between its parts, got {path!r}; write "
            f"{WINDOWS_DRIVE.sub('', path).replace(chr(92), '/').strip('/')!r}, relative to the "
            "workspace"
        )
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ConfigError(f"input `path`: expected a folder below the workspace, got {path!r}")


def publish_inputs(environment: Mapping[str, str]) -> PublishInputs:
    """Read the inputs of actions/publish/action.yml. Raises: ConfigError, naming the input."""
    given = _read_inputs(environment, PublishInputs)
    if "reports" not in given:
        raise ConfigError("input `reports`: expected a glob of report.json files, got nothing")
    return _convert(_with_lists(given), PublishInputs)


def command_inputs(environment: Mapping[str, str]) -> CommandInputs:
    """Read the inputs of actions/commands/action.yml. Raises: ConfigError, naming the input."""
    return _convert(_with_lists(_read_inputs(environment, CommandInputs)), CommandInputs)


def trend_inputs(environment: Mapping[str, str]) -> TrendInputs:
    """Read the inputs of actions/trend/action.yml."""
    return _convert(_read_inputs(environment, TrendInputs), TrendInputs)


def seconds_of(name: str, text: str) -> float:
    """Return a duration with its unit in seconds. Raises: ConfigError, naming the input."""
    from cudal1_ci.config.values import parse_duration  # imports all rooms

    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(
            f"input `{name.replace('_', '-')}`: expected a duration such as 90s or 10m, "
            f"got {text!r}"
        ) from error


def _read_inputs(environment: Mapping[str, str], record: type[msgspec.Struct]) -> dict[str, str]:
    names = record.__struct_fields__
    texts = {name: environment.get(f"INPUT_{name.upper()}", "").strip() for name in names}
    return {name: text for name, text in texts.items() if text}


def _with_lists(given: Mapping[str, str]) -> dict[str, object]:
    """Split the inputs that name several things: folders by lines, machines by spaces, or both as
    review.yml has them, in JSON: `["packages/a"]`, `[{"name": "h100", ...}]`.
    """
    read: dict[str, object] = dict(given)
    if given.get("machines", "").startswith("["):
        read["machines"] = _listed(given, "machines", Machine)
    elif "machines" in given:
        read["machines"] = [Machine(name) for name in given["machines"].split()]
    if given.get("projects", "").startswith("["):
        folders = _listed(given, "projects", str)
        read["projects"] = [] if folders == ["."] else folders
    elif "projects" in given:
        read["projects"] = [line.strip() for line in given["projects"].splitlines()]
    return read


def _listed(given: Mapping[str, str], name: str, kind: type[U]) -> list[U]:
    try:
        return msgspec.json.decode(given[name], type=list[kind])  # type: ignore[valid-type]
    except msgspec.DecodeError as error:
        raise ConfigError(f"input `{name}`: {error}, got {given[name]!r}") from error


def _convert(given: Mapping[str, object], record: type[T]) -> T:
    try:
        return msgspec.convert(given, record, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`").replace("_", "-")
        value = given.get(name.replace("-", "_"))
        raise ConfigError(f"input `{name}`: {what}, got {value!r}") from error
