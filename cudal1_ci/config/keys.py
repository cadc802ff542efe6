"""List the keys: what can be set, and which field of which record it fills.

Each room has its own Config record, and the fields of `Settings` name those records. A new field of
a room's Config is a key at once: `TrialConfig.max_calls` is `trial.max-calls` in a file and
`CUDAL1_CI_TRIAL_MAX_CALLS` in the environment. A field in seconds (`load_s`) is a key without the
suffix, because its value has the unit.

No key holds a secret. The keys are listed in docs/configuration.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from cudal1_ci.compare.config import CompareConfig
from cudal1_ci.discover.files import DiscoveryConfig
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.sweep.config import SweepConfig
from cudal1_ci.processes import ContainerConfig, ExecutorName
from cudal1_ci.processes.enclosed import CommandsConfig
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.llm.config import ContrastConfig, OptimizerConfig
from cudal1_ci.propose.llm.hack_review.config import OpinionConfig
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.records import Record
from cudal1_ci.render.config import ReportConfig
from cudal1_ci.stats.gate import GateConfig
from cudal1_ci.verification import BuildsConfig, TrialConfig

ENVIRONMENT_PREFIX = "CUDAL1_CI_"

DeviceName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(auto|cpu|cuda|cuda:all|cuda:\d+(,cuda:\d+)*)$",
        description="`auto`, `cpu`, `cuda`, `cuda:N`, several as `cuda:0,cuda:1`, or `cuda:all`",
    ),
]


class Setting(Record, frozen=True, kw_only=True):
    """Hold one key, its value as a person would write it, and where it came from."""

    key: str
    value: Any
    origin: str
    """`default`, `pyproject.toml`, `CUDAL1_CI_BUDGET` or `command line`."""


class Settings(Record, frozen=True, kw_only=True):
    """Hold all settings of a run. A field that is a Config record is the table of that
    room's keys.
    """

    trace: str | None = None
    """Command whose calls of the project's code become workloads: `pytest -q`."""
    harvest: bool = False
    """Run the repository for its calls, confined: README, docs, examples, notebooks, tests."""
    python: str | None = None
    """Interpreter of the project; None is found: an activated environment, or the project's own."""
    device: DeviceName = "auto"
    verifiers_per_gpu: int = 3
    """How many verifiers share a GPU in `scan`, `sweep` and `bench` where `device` is `auto` or
    `cuda`: while one compiles another one times. Only one times at once. A verifier needs four
    processor cores; fewer are started where there are fewer."""
    fail_on: Literal["never", "proposal", "regression", "contract", "inconclusive"] = "never"
    """What makes the exit code say no."""
    require_sandbox: bool = False
    """Refuse to run programs where a layer of the sandbox is not granted."""
    executor: Literal[ExecutorName, "ray"] = "local"
    """Where the verifier and the programs run: as processes, in a container, or, by several
    verifiers, on a cluster of Ray."""
    address: str = "auto"
    """Of that cluster: `auto`, `host:6379`, or `local`, which starts one on this machine."""
    state_dir: str = ".cudal1-ci"
    """Folder of the archive and the traces, relative to the tree that is scanned."""

    container: ContainerConfig = ContainerConfig()
    commands: CommandsConfig = CommandsConfig()
    discover: DiscoveryConfig = DiscoveryConfig()
    trial: TrialConfig = TrialConfig()
    builds: BuildsConfig = BuildsConfig()
    playbook: PlaybookConfig = PlaybookConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    contrast: ContrastConfig = ContrastConfig()
    opinion: OpinionConfig = OpinionConfig()
    review: ReviewConfig = ReviewConfig()
    compare: CompareConfig = CompareConfig()
    gate: GateConfig = GateConfig()
    sweep: SweepConfig = SweepConfig()
    report: ReportConfig = ReportConfig()

    # What follows is not made of keys.
    workloads: tuple[dict[str, Any], ...] = ()
    """The `[[workload]]` tables as they stand in the file; discover reads them."""
    acks: tuple[dict[str, Any], ...] = ()
    """The `[[ack]]` tables; comparison reads them."""
    file: Path | None = None
    """The file that configures this tree; None when there is none."""
    sources: tuple[Setting, ...] = ()

    def origins(self) -> Iterator[tuple[str, Any, str]]:
        """Yield every key with its value and where that came from, in the order of the records."""
        for setting in self.sources:
            yield setting.key, setting.value, setting.origin


NOT_KEYS = frozenset({"workloads", "acks", "file", "sources"})
PROMOTED = {
    "review.budget": "budget",
    "container.image": "container-image",
    "container.python": "container-python",
}
"""Keys of a room that stand at the top of the file, where people look for them."""


class Key(Record, frozen=True, kw_only=True):
    """A setting that can be given, and the field of a record that it fills."""

    name: str
    """In a file: `budget`, `trial.max-calls`."""
    room: str | None
    """Field of Settings that holds the record; None for Settings itself."""
    field: str
    type: Any
    default: Any

    @property
    def variable(self) -> str:
        """Return the name in the environment: `CUDAL1_CI_TRIAL_MAX_CALLS`."""
        return ENVIRONMENT_PREFIX + re.sub(r"[.-]", "_", self.name).upper()

    @property
    def is_duration(self) -> bool:
        return self.field.endswith("_s")


def all_keys() -> dict[str, Key]:
    """Return every key by its name."""
    keys: dict[str, Key] = {}
    for field in msgspec.structs.fields(Settings):
        if field.name in NOT_KEYS:
            continue
        room = field.name if is_room(field.type) else None
        for inner in msgspec.structs.fields(field.type) if room else (field,):
            name = kebab(inner.name.removesuffix("_s"))
            name = f"{kebab(room)}.{name}" if room else name
            name = PROMOTED.get(name, name)
            keys[name] = Key(
                name=name, room=room, field=inner.name, type=inner.type, default=inner.default
            )
    return keys


def all_rooms() -> dict[str, type[Record]]:
    """Return the Config record of each field of Settings that is one."""
    return {f.name: f.type for f in msgspec.structs.fields(Settings) if is_room(f.type)}


def is_room(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Record)


def kebab(name: str) -> str:
    return name.replace("_", "-")
