"""Check a language model for `cudal1-ci doctor --model`: is it there, is it named, does it answer?

A server is asked for its models and for one short answer. Of weights only the files are looked for:
to serve them is the affair of a run.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cudal1_ci.cli.diagnosis import Diagnosis
from cudal1_ci.errors import CudaL1Error, ModelError
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.propose.llm.servers.client import Client
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import refuse_missing_weights, remote

QUESTION = Message(role="user", content="Reply with the word ready.")
SHORT = {"max_retries": 0, "request_s": 60.0, "max_tokens": 256, "token_budget": None}
"""Settings of the one request. A model that reasons first needs some hundred tokens."""
MOST_NAMES = 5
NAME_FIX = "set `model.name` to one of them"


def model_diagnoses(config: ModelConfig) -> Iterator[Diagnosis]:
    """Check the configured model; the checks end at the first that fails."""
    if not config.is_url:
        yield weights(config)
        return
    if importlib.util.find_spec("openai") is None:
        found = "the openai package is not installed with cudal1-ci"
        fix = "install cudal1-ci with its extra: `uv tool install 'cudal1-ci[model]'`"
        yield Diagnosis(name="model", grade="missing", found=found, fix=fix)
        return
    asked = msgspec.structs.replace(config, **SHORT)
    try:
        # Any name will do to ask for the names.
        with Client(asked, remote(named(asked, asked.name or "any"), os.environ)) as client:
            listed = client.models()
    except ModelError as error:
        # A server that lists nothing may still answer.
        is_last = asked.name is None
        yield Diagnosis(
            name="model server",
            grade="missing" if is_last else "limited",
            found=str(error).partition("; ")[0],
            fix="start the server, or correct the URL" if is_last else "",
        )
        if asked.name is None:
            return
        listed = [asked.name]
    else:
        more = f" and {len(listed) - MOST_NAMES} more" if len(listed) > MOST_NAMES else ""
        found = f"{asked.model} lists {', '.join(listed[:MOST_NAMES])}{more}"
        yield Diagnosis(name="model server", grade="ok", found=found)
    name = asked.name or listed[0]
    if name not in listed:
        near = difflib.get_close_matches(name, listed, n=1, cutoff=0.3)
        fix = f"did you mean `{near[0]}`? " if near else ""
        found = f"`{name}` is not among the server's models"
        yield Diagnosis(name="model", grade="missing", found=found, fix=f"{fix}{NAME_FIX}")
        return
    yield answer(named(asked, name), num_listed=0 if asked.name else len(listed))


def named(config: ModelConfig, name: str) -> ModelConfig:
    """Return the configuration with the name of one of the server's models."""
    return msgspec.structs.replace(config, name=name)


def answer(config: ModelConfig, num_listed: int) -> Diagnosis:
    """Ask for one short answer. `num_listed` is the number of models of which the first was taken;
    0 where one was named."""
    with Client(config, remote(config, os.environ)) as client:
        (said,) = client.ask([QUESTION], n=1, seed=0)
    chosen = "" if num_listed < 2 else f" (the first of {num_listed}; `model.name` chooses)"
    if said.failure is not None:
        return Diagnosis(
            name="model",
            grade="missing",
            found=f"{config.name}{chosen} does not answer: {said.message or said.failure}",
            fix=f"see the server's log; the key of a URL is read from {config.api_key_env}",
        )
    tokens = f", {said.completion_tokens} tokens" if said.completion_tokens else ""
    found = f"{config.name}{chosen} answers in {said.elapsed_s:.1f} s{tokens}"
    return Diagnosis(name="model", grade="ok", found=found)


def weights(config: ModelConfig) -> Diagnosis:
    """Look for the files of weights, and of the adapter that is configured."""
    try:
        refuse_missing_weights(config)
    except CudaL1Error as error:
        found, _, fix = str(error).removeprefix("model.model: ").partition("; ")
        return Diagnosis(name="model", grade="missing", found=found, fix=fix)
    place = "a folder" if Path(str(config.model)).is_dir() else "an id of the hub"
    return Diagnosis(name="model", grade="ok", found=f"{config.model} is {place}; not asked")
