"""Decide which server may get which key, and take the keys out of this process.

The one rule: a key goes to a URL that a person or a workflow has named, by a flag or a variable. A
file is part of the checkout: anyone who writes it could redirect the key.
"""

from __future__ import annotations

from cudal1_ci.config.keys import Settings
from cudal1_ci.propose.llm.hack_review.config import OpinionConfig
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.relay import keep_keys_apart

KEY_NAMES = (ModelConfig().api_key_env, OpinionConfig().api_key_env)
"""Variables that hold keys, whatever the settings say."""


def keep_model_keys_apart(settings: Settings | None) -> None:
    """Start this program again without the keys of models, if it has any; a relay keeps them.
    Settings that cannot be read are None: then no server gets a key."""
    configs = (
        {"model": settings.model, "opinion": settings.opinion.client(settings.model)}
        if settings is not None
        else {}
    )
    names = {*KEY_NAMES, *(config.api_key_env for config in configs.values())}
    routed = [
        (config.model, config.api_key_env)
        for room, config in configs.items()
        if settings is not None
        if config.model is not None and config.is_url and file_of_url(settings, room) is None
    ]
    keep_keys_apart(names, routed)


def file_of_url(settings: Settings, room: str) -> str | None:
    """Return the file that names the model of a room; None where a flag or a variable does."""
    (origin,) = (origin for key, _, origin in settings.origins() if key == f"{room}.model")
    is_named = origin in ("command line", "default") or origin.startswith("CUDAL1_CI_")
    return None if is_named else origin
