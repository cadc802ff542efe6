"""Start a server for weights, and end it.

    with Server(config, offline=True) as server:
        server.endpoint.url, server.endpoint.identity

The server is a child of this process in its own process group. A warden ends the server when this
process ends in any way. The server listens on this machine only, and sees no secrets of the host
except the hub's token for a download. It writes a log whose end is in the error when the server
fails. It runs no code that comes with weights.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from cudal1_ci.errors import ModelError
from cudal1_ci.propose.llm.servers.adapters import chosen
from cudal1_ci.propose.llm.servers.client import Endpoint
from cudal1_ci.propose.llm.servers.commands import (
    HOST,
    AdapterNotServed,
    Command,
    NotOnDisk,
    command,
    download_command,
    installed,
)
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.secrecy import Secrets, secret_values
from cudal1_ci.propose.llm.servers.server_environment import server_environment
from cudal1_ci.propose.llm.servers.server_log import log_end
from cudal1_ci.propose.llm.servers.warden import GRACE_S
from cudal1_ci.propose.llm.servers.weights import Adapter, Weights, found, revision
from cudal1_ci.records import Identity

WARDEN = Path(__file__).with_name("warden.py")
POLL_S = 0.1
PING_S = 5.0


def untold(text: str) -> None:
    """Discard a text."""


class Server:
    """Run the server of a configuration's weights; it is ready inside the `with`."""

    def __init__(self, config: ModelConfig, *, offline: bool, told: Callable[[str], None] = untold):
        assert config.model is not None
        self._config = config
        self._offline = offline
        self._told = told
        self._secrets = Secrets(secret_values(os.environ))

    def __enter__(self) -> Self:
        config = self._config
        assert config.model is not None
        weights = found(config.model, offline=self._offline)
        lora = chosen(config)
        packages = installed(config.python or sys.executable)
        with contextlib.ExitStack() as stack:
            place = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="cudal1-ci-", ignore_cleanup_errors=True)
                )
            )
            self._log = place / "log"
            port = free_port()
            make = functools.partial(command, packages, config, port=port, place=place)
            started, weights, lora = self._adapted(make, weights, lora)
            self._start(started.arguments, may_download=weights.folder is None)
            stack.callback(self._stop)
            self._wait_until_ready(port, lora)
            self.endpoint = Endpoint(
                url=f"http://{HOST}:{port}/v1",
                model=started.model,
                identity=Identity(
                    model=shown_name(weights.given),
                    revision=revision(weights),
                    adapter=lora.hash if lora else None,
                    adapter_name=lora.name if lora else None,
                    server=started.server,
                    temperature=config.temperature,
                    top_p=config.top_p,
                    max_tokens=config.max_tokens,
                ),
                is_own=True,
                num_concurrent=min(started.num_concurrent, config.num_concurrent),
                extra=started.extra,
                ended=self.ended,
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def ended(self) -> str | None:
        """Return how the server ended, with the end of its log; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return f"the model's server ended (exit code {code})\n{self._log_end()}".rstrip()

    def _adapted(
        self,
        make: Callable[[Weights, Adapter | None], Command],
        weights: Weights,
        lora: Adapter | None,
    ) -> tuple[Command, Weights, Adapter | None]:
        """Return how to start the server, its weights and its adapter. A bundled adapter that
        cannot be served is left out.

        Raises:
            ModelError: There is no server, or none for the adapter that the configuration names.
        """
        if lora is None:
            return make(weights, None), weights, None
        try:
            try:
                made = make(weights, lora)
            except NotOnDisk:
                weights = self._downloaded(weights)
                made = make(weights, lora)
        except AdapterNotServed as error:
            if not lora.is_bundled:
                raise
            self._told(f"adapter {lora.name}, bundled for {lora.made_for}, is left out: {error}")
            return make(weights, None), weights, None
        self._told(adapter_text(lora, weights))
        return made, weights, lora

    def _downloaded(self, weights: Weights) -> Weights:
        """Return a hub's weights on disk: transformers puts an adapter on a folder.

        Raises:
            NotOnDisk: They could not be downloaded.
        """
        self._told(f"downloading {weights.name}")
        python = self._config.python or sys.executable
        self._start(download_command(python, weights), may_download=True)
        try:
            code = self._process.wait(self._config.start_s)
        except subprocess.TimeoutExpired:
            ending = f"not within {self._config.start_s:g}s (model.start)"
        else:
            if code == 0:
                return found(weights.given, offline=True)
            ending = f"exit code {code}"
        finally:
            self._stop()
        raise NotOnDisk(
            f"model.adapter: transformers needs the weights on disk for it, and they could not be "
            f"downloaded ({ending})\n{self._log_end()}".rstrip()
        )

    def _log_end(self) -> str:
        return log_end(self._log, self._secrets)

    def _start(self, arguments: Sequence[str], *, may_download: bool) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(WARDEN), str(GRACE_S), *arguments],
                env={
                    # vLLM leaves its sockets behind.
                    "VLLM_RPC_BASE_PATH": str(self._log.parent),
                    **server_environment(
                        os.environ, gpu=self._config.gpu, may_download=may_download
                    ),
                },
                cwd=self._log.parent,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_until_ready(self, port: int, lora: Adapter | None) -> None:
        """Wait until the server answers.

        Raises:
            ModelError: It ended, or did not answer in time.
        """
        way_out = (
            f"\nit was started with {lora.name}, which comes with cudal1-ci: --adapter none "
            "starts it without"
            if lora is not None and lora.is_bundled
            else ""
        )
        deadline_s = time.monotonic() + self._config.start_s
        while not answers(f"http://{HOST}:{port}/health"):
            ending = self.ended()
            if ending is not None:
                raise ModelError(ending + way_out)
            if time.monotonic() > deadline_s:
                raise ModelError(
                    f"the model's server was not ready within {self._config.start_s:g}s "
                    f"(model.start); the end of its log:\n{self._log_end()}{way_out}"
                )
            time.sleep(POLL_S)

    def _stop(self) -> None:
        """Make the warden end the server and all that it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(GRACE_S + 2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def adapter_text(lora: Adapter, weights: Weights) -> str:
    """Return which adapter is on the weights, for display."""
    text = f"adapter: {lora.name} ({lora.hash})"
    if lora.made_for is None:
        return text
    like = "" if weights.hub_id else ", whose architecture and sizes these weights have"
    return f"{text}, bundled for {lora.made_for}{like} (--adapter none goes without it)"


def shown_name(given: str) -> str:
    """Return the name of weights for a public report: an id of a hub, or the name of their
    folder.
    """
    folder = Path(given).expanduser()
    return folder.resolve().name if folder.is_dir() else given


def free_port() -> int:
    """Return a free port. Another process may take it before the server; the server then ends with
    an error.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Return whether a server is ready at a URL. The list of models is not used: transformers lists
    the hub's cache, and fails without one. A server without `/health` answers 404, which is an
    answer.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=PING_S):
            return True
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 404
    except (OSError, ValueError):
        return False
