"""`python -m model_training export adapter | merge | gguf | verl`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
import msgspec

from model_training.export.adapter import LIMIT_BYTES, write_adapter, write_sums
from model_training.export.gguf import KINDS, Kind, write_gguf
from model_training.export.merge import Precision, merge

PATH = click.Path(path_type=Path)


@click.group()
def export() -> None:
    """Write what leaves a run: adapter, weights, GGUF, verl."""


@export.command("adapter")
@click.argument("checkpoint", type=PATH)
@click.option("--output", required=True, type=PATH, help="Folder to write.")
@click.option("--id", "base_id", help="Of the base in the hub, instead of its folder.")
@click.option("--limit", default=LIMIT_BYTES, show_default=True, help="Bytes; weights are smaller.")
def adapter_command(checkpoint: Path, output: Path, base_id: str | None, limit: int) -> None:
    """Write the LoRA adapter of CHECKPOINT in bf16, with its sha256."""
    written = write_adapter(checkpoint, output, base_id=base_id, limit_bytes=limit)
    write_sums(written.folder)
    click.echo(f"{written.folder}: {written.num_bytes:,} bytes, rank {written.rank}")
    click.echo(f"sha256 {written.sha256}")


@export.command("merge")
@click.argument("base", type=PATH)
@click.argument("adapter", type=PATH)
@click.option("--output", required=True, type=PATH, help="Folder to write.")
@click.option(
    "--precision",
    default="bfloat16",
    show_default=True,
    type=click.Choice(get_args(Precision)),
    help="Of the sums.",
)
def merge_command(base: Path, adapter: Path, output: Path, precision: Precision) -> None:
    """Write the weights of BASE with ADAPTER in them.

    A folder that transformers and vLLM load, with the tokenizer.
    """
    click.echo(merge(base, adapter, output, precision))


@export.command("gguf")
@click.argument("model", type=PATH)
@click.option("--output", required=True, type=PATH, help="File to write.")
@click.option(
    "--kind", default="f16", show_default=True, type=click.Choice(KINDS), help="Of its numbers."
)
def gguf_command(model: Path, output: Path, kind: Kind) -> None:
    """Write the Qwen2 or Llama weights of MODEL as one GGUF file."""
    click.echo(write_gguf(model, output, kind))


@export.command("verl")
@click.argument("run", type=PATH)
@click.option("--device", default="auto", show_default=True, help="Where answers will be judged.")
@click.option("--output", required=True, type=PATH, help="Folder to write.")
@click.option("--seed", default=0, show_default=True, help="Of the exemplars that are shown.")
def verl_command(run: Path, device: str, output: Path, seed: int) -> None:
    """Write the tasks of RUN for stage 3 on verl.

    With them goes a copy of its archive, whose candidates are the exemplars.
    """
    from cudal1_ci.verification import Session, TrialConfig

    with Session(TrialConfig(), device=device) as session:
        described = session.device()
    write_verl(run, msgspec.json.encode(described), output, seed)
    script = Path(__file__).parent / "verl" / "launch.sh"
    click.echo(f"DATA={output} MODEL=... bash {script}")


def write_verl(run: Path, device: bytes, output: Path, seed: int = 0) -> None:
    """`train.parquet`, `test.parquet`, `device.json` and a copy of the archive that will grow.

    Raises:
        ConfigError: The run has no tasks yet.
    """
    from cudal1_ci.records import Device
    from cudal1_ci.records.archive import Archive
    from model_training.export.verl.prompts import TRAINING, Prompts, rows_of, write_parquet
    from model_training.run_files import copy_archive
    from model_training.stream import StreamConfig
    from model_training.tasks.prepared import FILES, read_tasks
    from model_training.workplace import ARCHIVE, TASKS

    training, validation = (read_tasks(run / TASKS / name) for name in FILES)
    output.mkdir(parents=True, exist_ok=True)
    copied = output / ARCHIVE
    copy_archive(run / ARCHIVE, copied)
    (output / "device.json").write_bytes(device)
    described = msgspec.json.decode(device, type=Device)
    with Archive.open(copied) as known:
        for name, some in ((TRAINING, training), ("test", validation)):
            prompts = Prompts(known, described, StreamConfig(seed=seed), batch_size=len(some))
            write_parquet(rows_of(some, prompts, name), output / f"{name}.parquet")
