"""Set up the models of a scan: where they are, whether one may write meanwhile, who gets a key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudal1_ci.cli.devices import has_own_device
from cudal1_ci.config import Settings
from cudal1_ci.config.model_keys import file_of_url
from cudal1_ci.discover.plan import Plan
from cudal1_ci.errors import ConfigError
from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.propose.llm.hack_review.cases import Database, known_cases, read_cases
from cudal1_ci.propose.llm.hack_review.review import Reviewer
from cudal1_ci.propose.llm.servers import LanguageModel
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import Progress


@contextmanager
def model_for(
    plan: Plan, settings: Settings, progress: Progress, *, is_wanted: bool
) -> Iterator[LanguageModel | None]:
    """Serve the configured model in this context; yield None where it is not wanted or
    not needed.
    """
    if all(planned.problem is None for planned in plan.targets):
        yield None
        return
    if not is_wanted or settings.model.model is None:
        yield None
        return
    refuse_a_key_for_a_url_in_a_file(settings, "model", settings.model)
    progress.notice(f"model: {settings.model.model}")
    with opened(settings.model, told=progress.notice) as model:
        yield model


@contextmanager
def opinion_of(settings: Settings, progress: Progress) -> Iterator[LanguageModel | None]:
    """Serve the model that reviews jumps in this context; yield None where none is wanted."""
    config = settings.opinion.client(settings.model)
    if config.model is None:
        yield None
        return
    refuse_a_key_for_a_url_in_a_file(settings, "opinion", config)
    if config.model == settings.model.model and config.name == settings.model.name:
        progress.notice("opinion.model is the model that writes: it is asked about its own work")
    progress.notice(f"second opinion: {config.model}")
    with opened(config, told=progress.notice) as model:
        yield model


def reviewer_of(
    model: LanguageModel | None, settings: Settings, root: Path, archive: Archive, since: float
) -> Reviewer | None:
    """Return the reviewer of a run that began at `since`, for the checkout at `root`."""
    if model is None:
        return None
    proven = known_cases()
    if settings.opinion.cases is not None:
        proven += read_cases(root / settings.opinion.cases)
    database = Database(proven=proven, archive=archive, since=since)
    return Reviewer(model=model, database=database, prompt_tokens=settings.opinion.prompt_tokens)


def refuse_a_key_for_a_url_in_a_file(settings: Settings, room: str, config: ModelConfig) -> None:
    """Refuse to send the key to a URL from a file: anyone who writes that file could redirect the
    key.

    Raises:
        ConfigError: The URL is from a file, and there is a key.
    """
    origin, key = file_of_url(settings, room), config.api_key_env
    if config.is_url and origin is not None and os.environ.get(key):
        flag = "--model or " if room == "model" else ""
        raise ConfigError(
            f"`{room}.model` in {origin} is a URL, and {key} holds a key: give the URL by {flag}"
            f"CUDAL1_CI_{room.upper()}_MODEL, or unset {key}"
        )


def optimizer_of(model: LanguageModel | None, settings: Settings, since: float) -> Optimizer | None:
    """Return the optimizer that uses a model, in a run that began at `since`."""
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


def refuse_a_model_that_disturbs(settings: Settings, config: ModelConfig) -> None:
    """Refuse a model that runs while other verifiers time something on its device.

    Raises:
        ConfigError: It is started here, on a device that one of them may use.
    """
    if config.model is None or config.is_url or has_own_device(settings):
        return
    raise ConfigError(
        f"model.model: {config.model} would be served on a device that a verifier times on; "
        "give the model its own GPU (`model.gpu`), or the URL of a server"
    )
