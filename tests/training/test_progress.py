"""How far long work is."""

from __future__ import annotations

import logging

from model_training import work_queue as module
from model_training.work_queue import Progress


def test_it_is_said_now_and_then_and_not_at_every_step(monkeypatch, caplog):
    clock = iter([0.0, 10.0, 31.0, 40.0, 62.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    progress = Progress("answers judged", 40)
    with caplog.at_level(logging.INFO, logger="model_training"):
        for _ in range(4):
            progress.step(8)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["answers judged: 16 of 40 in 31 s", "answers judged: 32 of 40 in 62 s"]
