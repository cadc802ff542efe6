"""The model card of an adapter, in the form of the Hugging Face hub, from the records of its runs.

    card_text(runs, Path("adapter"), base_model="Qwen/Qwen2.5-Coder-0.5B-Instruct",
              evaluation="contrastive", license_name="apache-2.0")

Nothing in it is written by hand but what it is for and what it cannot do; a number that the runs
have no record of is not there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cudal1_ci.errors import ReportError
from cudal1_ci.propose.llm.servers.adapter_record import sha256
from model_training.export.adapter import SETTINGS, WEIGHTS, settings_of
from model_training.report.cost import StageCost, costs_of
from model_training.report.markdown import differences, plain, results
from model_training.report.page import flat
from model_training.report.rows import Row, rows_of
from model_training.report.run_folder import Run, place_of
from model_training.report.words import duration
from model_training.run_files import EVALUATION
from model_training.table import Table

TAGS = ("lora", "grpo", "code", "cuda", "triton", "pytorch", "performance", "cuda-l1")
TASK, DATASET = "text-generation", "cudal1-ci/held-out"
CARD, LICENSE = "README.md", "apache-2.0"
KINDS = {"triton": "Triton kernels", "graph": "CUDA graphs", "compile": "calls of torch.compile"}
"""Of hand-made variants, beside plain PyTorch."""


def card_text(
    runs: Sequence[Run], adapter: Path, *, base_model: str, evaluation: str, license_name: str
) -> str:
    """The README.md of the adapter's folder.

    Args:
        evaluation: Label of the adapter's row in the table, or the name of its checkpoint.

    Raises:
        ReportError: The runs have no such evaluation.
        ConfigError: There is no LoRA adapter in the folder.
    """
    rows, settings = rows_of(runs), settings_of(adapter)
    row = row_named(rows, evaluation, runs)
    shown = rows[: rows.index(row) + 1]
    body = (
        card_environment()
        .get_template("card.md.j2")
        .render(
            name=adapter.resolve().name,
            folder=adapter.name,
            rank=settings["r"],
            base_model=base_model,
            kinds=kinds_of(runs[0]),
            results=results(rows),
            differences=differences(shown) if any(one.differences for one in shown) else "",
            costs=until(row, costs_of(runs)),
            configurations=[(run.name, without_folders(run.config)) for run in runs],
            wrong=f"{1 - row.table.correct.value:.1%}",
            gpus=plain(gpus_of(runs)),
            k=row.table.k,
            hacks=f"{row.table.hacks} of {row.table.num_samples}",
            hashes=hashes_of(adapter, runs),
            environments=[
                (run.name, number, flat({**one, "weights": None, "weights_sha256": None}))
                for run in runs
                for number, one in enumerate(run.environments)
            ],
        )
    )
    front = front_matter(row.table, adapter.resolve().name, base_model, license_name)
    text = re.sub(r"\n{3,}", "\n\n", body).strip()
    return f"---\n{front}\n---\n\n{text}\n"


def kinds_of(run: Run) -> str:
    """What it has learned to write, by stage 1's data."""
    collection = run.config.get("config", {}).get("collection", {})
    more = [KINDS[kind] for kind in collection.get("kinds", ()) if kind in KINDS]
    return " and ".join(["PyTorch code", *more])


def until(row: Row, costs: Sequence[StageCost]) -> list[StageCost]:
    """Without what its run has done after the weights were there."""
    last = place_of(row.name)
    return [
        one
        for one in costs
        if one.run != row.run or place_of(one.stage.removeprefix(EVALUATION)) <= last
    ]


def row_named(rows: Sequence[Row], evaluation: str, runs: Sequence[Run]) -> Row:
    found = [row for row in rows if evaluation in (row.label, row.policy)]
    if len(found) != 1:
        known = ", ".join(row.label for row in rows) or "none"
        folders = ", ".join(str(run.folder) for run in runs)
        raise ReportError(
            f"{folders}: expected the evaluation of the adapter by its label, one of {known}; got "
            f"{evaluation!r}"
        )
    return found[0]


def front_matter(table: Table, name: str, base_model: str, license_name: str) -> str:
    """What the hub reads: YAML by its own library."""
    from huggingface_hub import EvalResult, ModelCardData

    k = table.k
    values = {
        "pass@1": table.correct.value,
        f"pass@{k}": table.pass_at_k.value,
        f"mean speedup, best of {k}": table.mean.value,
        f"geometric mean speedup, best of {k}": table.geometric_mean.value,
        f"median speedup, best of {k}": table.median,
        "max speedup": table.max,
        "success": table.success / table.num_tasks,
    }
    measured = [
        EvalResult(
            task_type=TASK,
            dataset_type=DATASET,
            dataset_name=f"{table.num_tasks} held-out tasks of cudal1-ci",
            metric_type=metric.partition(",")[0].replace(" ", "_"),
            metric_name=metric,
            metric_value=round(value, 4),
        )
        for metric, value in values.items()
    ]
    return str(
        ModelCardData(
            base_model=base_model,
            license=license_name,
            library_name="peft",
            pipeline_tag=TASK,
            tags=list(TAGS),
            model_name=name,
            eval_results=measured,
        ).to_yaml()
    )


def gpus_of(runs: Sequence[Run]) -> str:
    """Names of what the runs have had, once each."""
    names: dict[str, None] = {}
    for environment in (one for run in runs for one in run.environments):
        for gpu in environment.get("gpus") or ["a machine without a GPU"]:
            names[gpu] = None
    return ", ".join(names) or "a machine of which there is no record"


def hashes_of(adapter: Path, runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Of the adapter's files, and of the weights that the runs began with."""
    found = [(name, sha256(adapter / name)) for name in (WEIGHTS, SETTINGS)]
    base: dict[str, str] = {}
    for environment in (one for run in runs for one in run.environments[:1]):
        base.update(environment.get("weights_sha256") or {})
    return [*found, *((f"base: {name}", sha) for name, sha in base.items())]


def without_folders(value: Any) -> Any:
    """Of paths of the machine the last name: a reader has others."""
    if isinstance(value, dict):
        return {key: without_folders(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_folders(one) for one in value]
    is_path = isinstance(value, str) and value.startswith(("/", "~"))
    return Path(value).name if is_path else value


def card_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        plain=plain,
        duration=duration,
        json=lambda value: msgspec.json.format(msgspec.json.encode(value), indent=2).decode(),
    )
    return environment
