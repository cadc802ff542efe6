"""The model that a scan asks: where it is, whether it may write meanwhile, and who gets the key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cudal1_ci.cli.device import measures_on_gpu
from cudal1_ci.config import Settings
from cudal1_ci.errors import ConfigError
from cudal1_ci.optimization import Optimizer
from cudal1_ci.propose.models import LanguageModel
from cudal1_ci.propose.models.opening import opened
from cudal1_ci.report.progress import Progress
from cudal1_ci.survey import Plan


@contextmanager
def model_for(
    plan: Plan, settings: Settings, progress: Progress, *, is_wanted: bool
) -> Iterator[LanguageModel | None]:
    """The model that is configured, served while this lasts; None where none is wanted, or where
    there is nothing to ask it."""
    if all(planned.problem is None for planned in plan.targets):
        yield None
        return
    if not is_wanted or settings.model.model is None:
        progress.notice("no model: rewrites of the playbook alone (--model)")
        yield None
        return
    refuse_a_key_for_a_url_in_a_file(settings)
    progress.notice(f"model: {settings.model.model}")
    with opened(settings.model) as model:
        yield model


def refuse_a_key_for_a_url_in_a_file(settings: Settings) -> None:
    """Whoever writes the file of a repository could have the key sent anywhere.

    Raises:
        ConfigError: The URL is from a file, and there is a key.
    """
    (origin,) = (origin for key, _, origin in settings.origins() if key == "model.model")
    is_from_file = origin != "command line" and not origin.startswith("CUDAL1_CI_")
    key = settings.model.api_key_env
    if settings.model.is_url and is_from_file and os.environ.get(key):
        raise ConfigError(
            f"`model.model` in {origin} is a URL, and {key} holds a key: give the URL by --model "
            f"or CUDAL1_CI_MODEL_MODEL, or unset {key}"
        )


def optimizer_of(model: LanguageModel | None, settings: Settings, since: float) -> Optimizer | None:
    """How a model is asked, in a run that began then."""
    if model is None:
        return None
    return Optimizer(
        model=model,
        config=settings.optimizer,
        contrast=settings.contrast,
        num_concurrent=settings.model.num_concurrent,
        overlaps=has_own_device(settings),
        since=since,
    )


def has_own_device(settings: Settings) -> bool:
    """Whether the model may write while something is timed. A URL is taken for another machine's;
    what is started here shares the processor or the GPU, unless it was given another one."""
    if settings.model.is_url:
        return True
    gpu = settings.model.gpu
    if not measures_on_gpu(settings.device):
        return gpu != "" and measures_on_gpu("auto")
    timed = settings.device.partition(":")[2] or "0"
    return gpu is not None and timed not in gpu.split(",")
