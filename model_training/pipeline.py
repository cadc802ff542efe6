"""Run all stages, one after another, with an evaluation after each.

pipeline(setup)           # skip what is finished, resume what was begun

evaluate base -> collect -> supervised -> evaluate -> self_supervised -> evaluate
    -> contrastive -> evaluate
"""

from __future__ import annotations

from collections.abc import Callable

from model_training import collect, contrastive, evaluate, self_supervised, sft
from model_training.config import StageName
from model_training.run_setup import BASE, RunSetup

STAGES: dict[StageName, Callable[[RunSetup], None]] = {
    "collect": collect.main,
    "supervised": sft.main,
    "self_supervised": self_supervised.main,
    "contrastive": contrastive.main,
}


def pipeline(setup: RunSetup, echo: Callable[[str], None] = lambda _: None) -> None:
    """Run all stages of a configuration.

    Raises: Stopped where the run must stop before its end.
    """
    config = setup.config.run
    if BASE in config.evaluates:
        evaluate.main(setup, BASE)
    for stage in config.stages:
        if stage in setup.run.finished():
            echo(f"{stage}: finished before")
        else:
            setup.run.go_on()
            echo(f"{stage}: begins")
            STAGES[stage](setup)
        if stage in config.evaluates:
            for one in evaluate.main(setup, stage):
                echo(f"{stage}: {evaluate.summary(one)}")
