"""Which GPUs of a machine serve, which train, which score, as its operators number them.

    eval "$(python -m model_training.launch.placement placements/node-8gpu-contrastive.toml)"
    CUDA_VISIBLE_DEVICES=$RUN_GPUS python -m model_training contrastive ...

What trains or generates disturbs what is timed, so GPUs that score are no others', but for a
machine with one GPU whose parts take turns, which its file must say.

A run's process sees those that train and then those that score. Its devices are numbered by that
order, so that a judge on the first of two that score beside four that train is `cuda:4`:
`JUDGE_DEVICES` is what the run's configuration must have in `judge.devices`, and `--config` refuses
one that has not.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from cudal1_ci.errors import ConfigError, CudaL1Error
from cudal1_ci.records import Record

ROLES = ("serve", "train", "score")


class Placement(Record, frozen=True, kw_only=True, rename="kebab"):
    """Numbers of GPUs, each role's in the order in which it uses them."""

    serve: tuple[int, ...] = ()
    train: tuple[int, ...] = ()
    score: tuple[int, ...]
    takes_turns: bool = False
    """Whether GPUs may have several roles, one at a time."""

    def __post_init__(self) -> None:
        for role in ROLES:
            numbers: tuple[int, ...] = getattr(self, role)
            if len(set(numbers)) < len(numbers) or any(one < 0 for one in numbers):
                raise ConfigError(
                    f"{role}: expected each GPU once, by its number, got {list(numbers)}"
                )
        if not self.score:
            raise ConfigError("score: expected a GPU or more, got none")
        shared = set(self.serve) & set(self.train) | {*self.serve, *self.train} & set(self.score)
        if shared and not self.takes_turns:
            raise ConfigError(
                f"score: expected GPUs that neither serve nor train, and those apart, got "
                f"{sorted(shared)} twice; take others, or set takes-turns = true where there are "
                "none"
            )

    @property
    def run(self) -> tuple[int, ...]:
        """What the process of a run sees: GPUs that train, then those that only score."""
        return (*self.train, *(one for one in self.score if one not in self.train))

    @property
    def judge_devices(self) -> tuple[str, ...]:
        """GPUs that score, by the names that the process of a run has for them."""
        return tuple(f"cuda:{self.run.index(one)}" for one in self.score)


def read_placement(path: Path) -> Placement:
    """Raises: ConfigError where it cannot be read, or has a GPU in two roles."""
    try:
        return msgspec.convert(read_toml(path), Placement)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def check_config(config: Mapping[str, Any], placement: Placement, path: Path) -> None:
    """Raises: ConfigError where a run's configuration would judge elsewhere."""
    found = tuple(config.get("judge", {}).get("devices", ("auto",)))
    if found != placement.judge_devices:
        raise ConfigError(
            f"{path}, judge.devices: expected {json.dumps(placement.judge_devices)} for these "
            f"GPUs, got {json.dumps(found)}"
        )


def variables(placement: Placement) -> str:
    """Assignments of a shell."""

    def listed(numbers: tuple[int, ...]) -> str:
        return ",".join(map(str, numbers))

    return "\n".join(
        (
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
            f"SERVE_GPUS={listed(placement.serve)}",
            f"TRAIN_GPUS={listed(placement.train)}",
            f"SCORE_GPUS={listed(placement.score)}",
            f"RUN_GPUS={listed(placement.run)}",
            f"NUM_SERVE={len(placement.serve)}",
            f"NUM_TRAIN={len(placement.train)}",
            f"JUDGE_DEVICES='{json.dumps(placement.judge_devices)}'",
        )
    )


@click.command()
@click.argument("placement", type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), help="Of the run, to be checked.")
def main(placement: Path, config: Path | None) -> None:
    """The GPUs of PLACEMENT as assignments of a shell."""
    try:
        found = read_placement(placement)
        if config is not None:
            check_config(read_toml(config), found, config)
    except CudaL1Error as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from error
    click.echo(variables(found))


if __name__ == "__main__":
    main()
