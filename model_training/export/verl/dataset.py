"""verl's dataset, whose prompts of training are made when they are asked for: with the exemplars
that the archive has by then, and the words of the product.

    data.custom_cls.path=pkg://model_training.export.verl.dataset
    data.custom_cls.name=ContrastiveDataset
    data.dataloader_num_workers=0
    +data.contrastive.archive=archive.sqlite +data.contrastive.device=device.json

Rows of other splits, those of validation, stay as they are in their file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from verl.utils.dataset.rl_dataset import RLHFDataset

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Device
from cudal1_ci.records.archive import Archive
from model_training.export.verl.prompts import TRAINING, Prompts, chat_of
from model_training.stream import StreamConfig
from model_training.tasks.record import Task


class ContrastiveDataset(RLHFDataset):  # type: ignore[misc]
    """Rows as verl reads them, with `raw_prompt` of this moment."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        workers = self.config.get("dataloader_num_workers", 0)
        if workers:
            raise ConfigError(
                f"data.dataloader_num_workers: expected 0, got {workers}; workers ask ahead of "
                "training, so that their prompts know nothing of what it finds"
            )
        settings = self.config["contrastive"]
        device = msgspec.json.decode(Path(settings["device"]).read_bytes(), type=Device)
        self._prompts = Prompts(
            Archive.open(Path(settings["archive"])),
            device,
            StreamConfig(seed=settings.get("seed", 0)),
            batch_size=self.config["train_batch_size"],
        )

    def __getitem__(self, item: int) -> dict[str, Any]:
        """The row, its prompt made anew where it is for training."""
        row: dict[str, Any] = super().__getitem__(item)
        if row["extra_info"]["split"] != TRAINING:
            return row
        task = msgspec.json.decode(row["reward_model"]["ground_truth"], type=Task)
        prompt = self._prompts.of(task)
        row["raw_prompt"] = chat_of(prompt)
        row["extra_info"] = {**row["extra_info"], "exemplar_ids": " ".join(prompt.exemplar_ids)}
        return row
