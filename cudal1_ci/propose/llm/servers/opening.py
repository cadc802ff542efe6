"""Open the model of a configuration, wherever it is.

with opened(ModelConfig(model="/models/qwen"), offline=True) as model:
    for answer in model.ask(messages, n=4, seed=0):
        ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers import LanguageModel
from cudal1_ci.propose.llm.servers.adapters import chosen
from cudal1_ci.propose.llm.servers.client import Client, Endpoint
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.relay import api_url, relayed_url
from cudal1_ci.propose.llm.servers.serving import Server, untold
from cudal1_ci.propose.llm.servers.weights import found
from cudal1_ci.records import Identity


@contextmanager
def opened(
    config: ModelConfig, *, offline: bool = False, told: Callable[[str], None] = untold
) -> Iterator[LanguageModel]:
    """Yield the model inside a `with`. A URL is used as it is; for weights a server starts and ends
    with the `with`. With `offline`, here or in the configuration, nothing is downloaded. `told`
    receives the adapter's description.

    Raises:
        ConfigError: The configuration names no model, or none that is there.
        UnsupportedError: The adapter that comes with the package for it is damaged.
        ModelError: Its server cannot be started or reached.
    """
    if config.model is None:
        raise ConfigError(
            "model.model: is not set; expected a folder of weights, an id of the hub or a URL"
        )
    with contextlib.ExitStack() as stack:
        if config.is_url:
            endpoint = remote(config, os.environ)
        else:
            server = Server(config, offline=offline or config.offline, told=told)
            endpoint = stack.enter_context(server).endpoint
        yield stack.enter_context(Client(config, endpoint))


def refuse_missing_weights(config: ModelConfig) -> None:
    """Check that weights and an adapter exist by local files alone.

    Raises:
        ConfigError: There are none.
        UnsupportedError: The adapter that comes with the package for them is damaged.
    """
    if config.model is not None and not config.is_url:
        found(config.model, offline=config.offline)
        chosen(config)


def remote(config: ModelConfig, environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of a URL; request the model's name from the server if it is missing."""
    assert config.model is not None
    url, key = api_url(config.model), api_key(config.api_key_env, environ)
    relay = relayed_url(url, key)
    endpoint = Endpoint(
        url=relay or url,
        model=config.name or "",
        identity=Identity(
            model=config.name or "",
            server=urlsplit(config.model).netloc,
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_tokens,
        ),
        api_key=key,
        is_own=relay is not None,
        num_concurrent=config.num_concurrent,
    )
    if config.name is not None:
        return endpoint
    with Client(config, endpoint) as client:
        name = client.models()[0]
    return dataclasses.replace(
        endpoint, model=name, identity=msgspec.structs.replace(endpoint.identity, model=name)
    )


def api_key(variable: str, environ: Mapping[str, str]) -> str | None:
    """Return the key in an environment variable; None for servers without one."""
    key = environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ConfigError(
            f"{variable}: expected a key of printable ASCII characters without spaces (what it "
            "holds is not shown)"
        )
    return key or None
