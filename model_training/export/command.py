"""`python -m model_training export adapter | merge | gguf | verl`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
import msgspec

from model_training.export.adapter import LIMIT_BYTES, write_adapter
from model_training.export.gguf import KINDS, Kind, write_gguf
from model_training.export.merge import Precision, merge

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
ANYWHERE = click.Path(path_type=Path)


@click.group()
def export() -> None:
    """What leaves a training run: adapters, weights, GGUF files, data for verl."""


@export.command("adapter")
@click.argument("checkpoint", type=FOLDER)
@click.option("--output", required=True, type=ANYWHERE, help="Folder to write.")
@click.option("--limit", default=LIMIT_BYTES, show_default=True, help="Bytes of weights at most.")
def adapter_command(checkpoint: Path, output: Path, limit: int) -> None:
    """The LoRA adapter of CHECKPOINT in bf16, with its sha256."""
    written = write_adapter(checkpoint, output, limit)
    click.echo(f"{written.folder}: {written.num_bytes:,} bytes, rank {written.rank}")
    click.echo(f"sha256 {written.sha256}")


@export.command("merge")
@click.argument("base", type=FOLDER)
@click.argument("adapter", type=FOLDER)
@click.option("--output", required=True, type=ANYWHERE, help="Folder to write.")
@click.option(
    "--precision", default="bfloat16", show_default=True, type=click.Choice(get_args(Precision))
)
def merge_command(base: Path, adapter: Path, output: Path, precision: Precision) -> None:
    """The weights of BASE with ADAPTER in them, as safetensors with the tokenizer."""
    click.echo(merge(base, adapter, output, precision))


@export.command("gguf")
@click.argument("model", type=FOLDER)
@click.option("--output", required=True, type=ANYWHERE, help="File to write.")
@click.option("--kind", default="f16", show_default=True, type=click.Choice(KINDS))
def gguf_command(model: Path, output: Path, kind: Kind) -> None:
    """The Qwen2 or Llama weights of MODEL as one GGUF file."""
    click.echo(write_gguf(model, output, kind))


@export.command("verl")
@click.option("--tasks", required=True, type=FILE, help="Tasks for training, one a line as JSON.")
@click.option("--evaluation", required=True, type=FILE, help="Tasks for validation.")
@click.option("--archive", required=True, type=ANYWHERE, help="What was judged so far.")
@click.option("--device", default="auto", show_default=True, help="Where answers will be judged.")
@click.option("--output", required=True, type=ANYWHERE, help="Folder to write.")
@click.option("--seed", default=0, show_default=True)
def verl_command(
    tasks: Path, evaluation: Path, archive: Path, device: str, output: Path, seed: int
) -> None:
    """Prompts and settings for stage 3 on verl."""
    from cudal1_ci.trial import Session, TrialConfig

    with Session(TrialConfig(), device=device) as session:
        described = session.device()
    write_verl(tasks, evaluation, archive, msgspec.json.encode(described), output, seed)
    script = Path(__file__).parent / "verl" / "launch.sh"
    click.echo(f"DATA={output} MODEL=... bash {script}")


def write_verl(
    tasks: Path, evaluation: Path, archive: Path, device: bytes, output: Path, seed: int = 0
) -> None:
    """`train.parquet`, `test.parquet`, `device.json` and a copy of the archive that will grow."""
    from cudal1_ci.archive import Archive
    from cudal1_ci.schema import Device
    from model_training.export.verl.prompts import (
        TRAINING,
        Prompts,
        read_tasks,
        rows_of,
        write_parquet,
    )
    from model_training.stream import StreamConfig

    training, validation = read_tasks(tasks), read_tasks(evaluation)
    output.mkdir(parents=True, exist_ok=True)
    copied = output / "archive.sqlite"
    copy_archive(archive, copied)
    (output / "device.json").write_bytes(device)
    described = msgspec.json.decode(device, type=Device)
    with Archive.open(copied) as known:
        for name, some in ((TRAINING, training), ("test", validation)):
            prompts = Prompts(known, described, StreamConfig(seed=seed), batch_size=len(some))
            write_parquet(rows_of(some, prompts, name), output / f"{name}.parquet")


def copy_archive(archive: Path, output: Path) -> None:
    """As one file, whatever of it was still in a log beside it; nothing where there is none yet."""
    import contextlib
    import sqlite3

    if not archive.is_file():
        return
    with (
        contextlib.closing(sqlite3.connect(archive)) as source,
        contextlib.closing(sqlite3.connect(output)) as target,
    ):
        source.backup(target)
