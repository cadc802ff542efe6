"""Starts a server for weights, and ends it.

    with Server(config, offline=True) as server:
        server.endpoint.url, server.endpoint.identity

The server is a child of this process in a group of its own, behind a warden that ends it when this
process ends in whatever way. It listens on this machine only, sees none of the host's secrets
except the hub's token where it may have to download, and writes into a log, whose end is in the
error when it fails. It runs no code that comes with weights.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from cudal1_ci.errors import ModelError
from cudal1_ci.executor.environment import listed
from cudal1_ci.propose.models.client import Endpoint
from cudal1_ci.propose.models.commands import HOST, Command, command, installed
from cudal1_ci.propose.models.config import ModelConfig
from cudal1_ci.propose.models.secrecy import Secrets, secret_values
from cudal1_ci.propose.models.warden import GRACE_S
from cudal1_ci.propose.models.weights import adapter, found, revision
from cudal1_ci.schema import Identity

WARDEN = Path(__file__).with_name("warden.py")
LOG_CHARS = 64 * 1024
"""vLLM tells the cause first, then a traceback for each of its processes."""
LOG_LINES = 15
CAUSES = 3
CAUSE = re.compile(
    r"^(?:\([^)\n]*\) )?(?:ERROR [^]\n]*\] )?((?:\w+\.)*\w*(?:Error|Exception): .+)$", re.MULTILINE
)
"""A line of a log that names an exception, perhaps behind the process and place that vLLM puts."""
POLL_S = 0.1
PING_S = 5.0

SERVER_KEPT = ("HOME", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "XDG_CACHE_HOME")
SERVER_PREFIXES = ("VLLM_", "HIP_", "ROCR_")
NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


class Server:
    """The server of a configuration's weights; ready inside of the `with`."""

    def __init__(self, config: ModelConfig, *, offline: bool):
        assert config.model is not None
        self._config = config
        self._offline = offline
        self._secrets = Secrets(secret_values(os.environ))

    def __enter__(self) -> Self:
        config = self._config
        assert config.model is not None
        weights = found(config.model, offline=self._offline)
        lora = None if config.adapter is None else adapter(config.adapter)
        packages = installed(config.python or sys.executable)
        with contextlib.ExitStack() as stack:
            place = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="cudal1-ci-", ignore_cleanup_errors=True)
                )
            )
            self._log = place / "log"
            port = free_port()
            started = command(packages, config, weights, lora, port=port, place=place)
            self._start(started, may_download=weights.folder is None and not self._offline)
            stack.callback(self._stop)
            self._wait_until_ready(port)
            self.endpoint = Endpoint(
                url=f"http://{HOST}:{port}/v1",
                model=started.model,
                identity=Identity(
                    model=shown_name(weights.given),
                    revision=revision(weights),
                    adapter=lora.hash if lora else None,
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
        """How the server ended, with the end of its log; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return f"the model's server ended (exit code {code})\n{self.log_tail()}".rstrip()

    def log_tail(self) -> str:
        """The last lines that the server wrote, without secrets, after the first exceptions that
        are named before them."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - LOG_CHARS))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return excerpt(self._secrets.hidden(text))

    def _start(self, started: Command, *, may_download: bool) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(WARDEN), *started.arguments],
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

    def _wait_until_ready(self, port: int) -> None:
        """Until the server answers.

        Raises:
            ModelError: It ended, or did not answer in time.
        """
        deadline_s = time.monotonic() + self._config.start_s
        while not answers(f"http://{HOST}:{port}/health"):
            ending = self.ended()
            if ending is not None:
                raise ModelError(ending)
            if time.monotonic() > deadline_s:
                raise ModelError(
                    f"the model's server was not ready within {self._config.start_s:g}s "
                    f"(model.start); the end of its log:\n{self.log_tail()}"
                )
            time.sleep(POLL_S)

    def _stop(self) -> None:
        """Have the warden end the server and all that it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(GRACE_S + 2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def shown_name(given: str) -> str:
    """Of weights, in a report that goes to others: an id of a hub, or the name of their folder."""
    folder = Path(given).expanduser()
    return folder.resolve().name if folder.is_dir() else given


def excerpt(log: str) -> str:
    """What a log says of an end: its last lines, and before them what they do not repeat."""
    end = [line for line in log.splitlines()[-LOG_LINES:] if line.strip()]
    named = dict.fromkeys(CAUSE.findall(log))
    causes = [cause for cause in named if not any(cause in line for line in end)]
    return "\n".join(f"  {line}" for line in (*causes[:CAUSES], *end))


def free_port() -> int:
    """One that nobody listens on now. Somebody else may take it before the server does, which then
    ends and says so."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Whether a server is ready there. Not asked for its models: transformers lists those of the
    hub's cache, and fails where there is none. Servers without `/health` say 404, but say it."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=PING_S):
            return True
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 404
    except (OSError, ValueError):
        return False


def server_environment(
    environ: Mapping[str, str], *, gpu: str | None, may_download: bool
) -> dict[str, str]:
    """What a server may know of the host's environment."""
    kept = listed(environ, SERVER_KEPT, SERVER_PREFIXES)
    if may_download:
        wanted = (*NETWORK, *HUB_TOKENS)
        kept |= {name: value for name, value in environ.items() if name.upper() in wanted}
    else:
        kept |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if gpu is not None:
        kept["CUDA_VISIBLE_DEVICES"] = gpu
    return {
        **kept,
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
