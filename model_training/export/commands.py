"""Run `python -m model_training export adapter | merge`."""

from __future__ import annotations

from pathlib import Path

import click

from model_training.export.adapter import LIMIT_BYTES, write_adapter
from model_training.export.merge import merge

PATH = click.Path(path_type=Path)


@click.group()
def export() -> None:
    """Write what leaves a run: adapter or weights."""


@export.command("adapter")
@click.argument("checkpoint", type=PATH)
@click.option("--output", required=True, type=PATH, help="Folder to write.")
@click.option("--id", "base_id", help="Of the base in the hub, instead of its folder.")
@click.option("--limit", default=LIMIT_BYTES, show_default=True, help="Bytes; weights are smaller.")
def adapter_command(checkpoint: Path, output: Path, base_id: str | None, limit: int) -> None:
    """Write the LoRA adapter of CHECKPOINT in bf16, with its sha256."""
    written = write_adapter(checkpoint, output, base_id=base_id, limit_bytes=limit)
    click.echo(f"{written.folder}: {written.num_bytes:,} bytes, rank {written.rank}")
    click.echo(f"sha256 {written.sha256}")


@export.command("merge")
@click.argument("base", type=PATH)
@click.argument("adapter", type=PATH)
@click.option("--output", required=True, type=PATH, help="Folder to write.")
def merge_command(base: Path, adapter: Path, output: Path) -> None:
    """Write the weights of BASE with ADAPTER in them, in bf16. A folder that transformers and vLLM
    load, with the tokenizer."""
    click.echo(merge(base, adapter, output))
