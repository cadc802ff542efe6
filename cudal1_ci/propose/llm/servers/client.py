"""Ask any server that speaks the OpenAI protocol.

    with Client(config, endpoint) as client:
        for answer in client.ask(messages, n=8, seed=0):
            ...

Answers are made in parallel, on an event loop in the client's own thread. Only so does a wall-clock
limit hold for a server that sends a byte a minute, and cancelling ends a wait for a header. An
answer holds its own failure; an exception is a bug of this tool.

A server that does not know a parameter answers 400 and names the parameter. The client then omits
the parameter for the rest of the run if the request means the same without it. That holds for
`seed` and the streaming options always, and for `top_p` and `temperature` at 1, their default.

Covered: keys in a server's words, in full or cut off. Not covered: a key that the server sends back
encoded.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

import msgspec

from cudal1_ci.errors import ModelError
from cudal1_ci.propose.llm.servers import Answer, Failure, Message
from cudal1_ci.propose.llm.servers.budget import TokenBudget
from cudal1_ci.propose.llm.servers.completion import Completion, shown
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.retries import MAX_ASKED_S, asked_wait_s, wait_s
from cudal1_ci.propose.llm.servers.secrecy import Secrets, secret_values
from cudal1_ci.records import Identity

T = TypeVar("T")

LISTING_S = 30.0
"""Seconds for the list of a server's models."""
NO_SDK = "a language model needs the openai package: `pip install 'cudal1-ci[model]'`"
NO_KEY = "none"
"""Placeholder key: servers without keys still need a header."""
OPTIONAL = ("seed", "stream_options", "stream")
NEUTRAL = {"top_p": 1.0, "temperature": 1.0}
RENAMED = {"max_tokens": "max_completion_tokens"}
"""Parameters by their newer names, which some servers require and others do not know."""
RETRIED_STATUS = (408, 409)
"""Further statuses to retry, in addition to 429 and 5xx."""


def never() -> None:
    """Return no end: the end of an external server is not known."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A server and its description. Its repr goes into logs, so it contains no key."""

    url: str
    """URL with the version: `http://127.0.0.1:8000/v1`."""
    identity: Identity
    model: str
    """Name in requests, if the identity says more than a server understands."""
    api_key: str | None = field(default=None, repr=False)
    is_own: bool = False
    """Whether this tool started the server on this machine: no proxy is in between."""
    num_concurrent: int
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of a request that only this kind of server has."""
    ended: Callable[[], str | None] = never
    """Return how the server ended; None while it runs."""


class Unanswered(Exception):
    """Signal an attempt without an answer."""

    def __init__(
        self, kind: Failure, message: str, *, retry: bool = False, asked_s: float | None = None
    ):
        super().__init__(message)
        self.kind: Failure = kind
        self.message = message
        self.retry = retry
        self.asked_s = asked_s


class Client:
    """Talk to a language model behind an endpoint; the end of the `with` cancels what is in
    progress.
    """

    def __init__(self, config: ModelConfig, endpoint: Endpoint, *, first_wait_s: float = 0.5):
        self._config = config
        self._endpoint = endpoint
        self._first_wait_s = first_wait_s
        self._jitter = random.Random()
        self._secrets = Secrets([endpoint.api_key or "", *secret_values(os.environ)])
        self._left_out: set[str] = set()
        self._renamed: dict[str, str] = {}
        self._is_end_shown = False
        self._openai = sdk()
        self._broken = transport_error(self._openai)
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="cudal1-ci-model", daemon=True
        )
        self._thread.start()
        self._wait_for(self._connect())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._is_closed = True
        self._wait_for(self._disconnect())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def identity(self) -> Identity:
        return self._endpoint.identity

    def ask(self, messages: Sequence[Message], *, n: int, seed: int) -> Iterator[Answer]:
        """Yield exactly `n` answers when they are ready. All are requested at once, before the
        first is read; closing the iterator cancels the rest.
        """
        return self.ask_tracked(messages, n, seed, set())

    def ask_tracked(
        self, messages: Sequence[Message], n: int, seed: int, among: set[asyncio.Task[Answer]]
    ) -> Iterator[Answer]:
        """Yield answers like `ask`. Pending tasks are also in `among`, so that a caller can cancel
        them.
        """
        conversation = msgspec.to_builtins(list(messages))
        answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        tasks: list[asyncio.Task[Answer]] = []

        def begin() -> None:
            for i in range(n):
                task = self._loop.create_task(self._answer(conversation, seed + i))
                tasks.append(task)
                for under_way in (self._tasks, among):
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                task.add_done_callback(lambda done: answers.put(outcome(done)))

        with self._lock:
            if self._is_closed:
                return iter([cancelled()] * n)
            self._loop.call_soon_threadsafe(begin)
        return self._delivered(answers, tasks, n)

    def cancel(self) -> None:
        """Cancel what is in progress. Any thread may call it; later requests are answered."""
        self.end(self._tasks)

    def end(self, tasks: set[asyncio.Task[Answer]]) -> None:
        """Cancel these tasks. Any thread may call it."""
        with self._lock:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(end, tasks)

    def apart(self) -> Share:
        """Return a share of the client for another thread."""
        return Share(self)

    def models(self) -> list[str]:
        """Return the names that the server lists.

        Raises:
            ModelError: It lists none, or does not answer.
        """
        return self._wait_for(self._listed())

    # --- on the loop ---------------------------------------------------------------------------

    async def _connect(self) -> None:
        self._budget = TokenBudget(self._config.token_budget)
        self._slots = asyncio.Semaphore(self._endpoint.num_concurrent)
        own = {"trust_env": False} if self._endpoint.is_own else {}
        try:
            http_client = self._openai.DefaultAsyncHttpxClient(**own)
        except ImportError as error:  # it imports some of its own packages late
            raise ModelError(f"{NO_SDK} ({error})") from error
        self._sdk = self._openai.AsyncOpenAI(
            api_key=self._endpoint.api_key or NO_KEY,
            base_url=self._endpoint.url,
            max_retries=0,
            timeout=self._config.request_s,
            http_client=http_client,
        )

    async def _disconnect(self) -> None:
        under_way = list(self._tasks)
        end(under_way)
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._sdk.close()

    async def _answer(self, conversation: list[dict[str, str]], seed: int) -> Answer:
        """Return an answer after the allowed attempts."""
        async with self._slots:
            started_s = time.monotonic()
            answer = await self._persist(lambda: self._attempt(conversation, seed))
            return msgspec.structs.replace(answer, elapsed_s=time.monotonic() - started_s)

    async def _persist(self, attempt: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        num_failed = 0
        while True:
            try:
                return await attempt()
            except Unanswered as failure:
                if not failure.retry or num_failed == self._config.max_retries:
                    return Answer(failure=failure.kind, message=failure.message)
                pause_s = wait_s(
                    attempt=num_failed,
                    asked_s=failure.asked_s,
                    first_s=self._first_wait_s,
                    jitter=self._jitter,
                )
                num_failed += 1
            await asyncio.sleep(pause_s)

    async def _attempt(self, conversation: list[dict[str, str]], seed: int) -> Answer:
        """Send one request; repeat it at once if only a parameter was rejected."""
        ending = self._endpoint.ended()
        if ending is not None:
            raise Unanswered("server", self._ending_text(ending))
        max_tokens = self._config.max_tokens
        if not await self._budget.reserve(max_tokens):
            raise Unanswered("budget", f"the run's {self._config.token_budget} tokens are spent")
        completion = Completion(max_tokens)
        try:
            while not await self._exchange(self._request(conversation, seed), completion):
                pass
        finally:
            self._budget.settle(max_tokens, spent=completion.num_tokens)
        answer = completion.answer()
        if answer.failure == "server":
            raise Unanswered("server", self._said(answer.message), retry=True)
        return msgspec.structs.replace(answer, message=self._said(answer.message))

    async def _exchange(self, request: dict[str, Any], completion: Completion) -> bool:
        """Send a request and read its reply; False: send it again without a parameter.

        Raises:
            Unanswered: No valid reply came.
        """
        ask = self._sdk.chat.completions.with_streaming_response.create
        try:
            async with asyncio.timeout(self._config.request_s), ask(**request) as response:
                async for data in response.iter_bytes():
                    if completion.feed(data):
                        break
        except self._openai.APIStatusError as error:
            if self._adapts_to(error, request):
                return False
            raise self._rejection(error) from None
        except (TimeoutError, self._openai.APITimeoutError):
            raise Unanswered("timeout", f"no answer within {self._config.request_s:g}s") from None
        except (self._openai.APIConnectionError, self._broken) as error:
            raise self._broken_off(error) from None
        return True

    async def _listed(self) -> list[str]:
        async def attempt() -> Answer:
            try:
                async with asyncio.timeout(min(LISTING_S, self._config.request_s)):
                    names.extend([model.id async for model in self._sdk.models.list()])
            except self._openai.APIStatusError as error:
                raise self._rejection(error) from None
            except (TimeoutError, self._openai.APITimeoutError):
                raise Unanswered("timeout", "no list of models in time") from None
            except (self._openai.APIConnectionError, self._broken) as error:
                raise self._broken_off(error) from None
            except (self._openai.OpenAIError, AttributeError, TypeError, ValueError):
                raise Unanswered("garbage", "what came is no list of models") from None
            return Answer()

        names: list[str] = []
        answer = await self._persist(attempt)
        if answer.failure is None and names:
            return names
        raise ModelError(
            f"{self._endpoint.identity.server}: {answer.message or 'it lists no models'}; "
            "expected the URL of a server that speaks the OpenAI protocol (model.name says which "
            "model where /v1/models is not served)"
        )

    # --- what is sent, what went wrong ------------------------------------------------------------

    def _request(self, conversation: list[dict[str, str]], seed: int) -> dict[str, Any]:
        fields = {
            "model": self._endpoint.model,
            "messages": conversation,
            "temperature": self._config.temperature,
            "top_p": self._config.top_p,
            "max_tokens": self._config.max_tokens,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sent = {
            self._renamed.get(name, name): value
            for name, value in fields.items()
            if name not in self._left_out
        }
        if "stream" in self._left_out:
            sent.pop("stream_options", None)
        return {**sent, "extra_body": self._endpoint.extra}

    def _adapts_to(self, error: Any, request: dict[str, Any]) -> bool:
        """Return whether another request is worthwhile: the error names a parameter that the next
        request omits.
        """
        if error.status_code not in (400, 422):
            return False
        words = set(re.findall(r"\w+", error_text(error)))
        neutral = [name for name, value in NEUTRAL.items() if getattr(self._config, name) == value]
        for name in (*OPTIONAL, *neutral):
            if name in words and name in request:
                self._left_out.add(name)
                return True
        for name, newer in RENAMED.items():
            if name in words and newer in words and name in request:
                self._renamed[name] = newer
                return True
        return False

    def _rejection(self, error: Any) -> Unanswered:
        status = error.status_code
        message = self._said(f"HTTP {status}: {shown(error_text(error))}")
        asked_s = asked_wait_s(error.response.headers, time.time())
        retry = asked_s is None or asked_s <= MAX_ASKED_S
        if status == 429:
            return Unanswered("rate_limit", message, retry=retry, asked_s=asked_s)
        if status >= 500 or status in RETRIED_STATUS:
            return Unanswered("server", message, retry=retry, asked_s=asked_s)
        return Unanswered("refused", message)

    def _broken_off(self, error: BaseException) -> Unanswered:
        ending = self._endpoint.ended()
        if ending is not None:
            return Unanswered("server", self._ending_text(ending))
        cause = error.__cause__ or error
        said = shown(f"{type(cause).__name__} {cause}".strip())
        return Unanswered("server", self._said(f"the connection failed: {said}"), retry=True)

    def _ending_text(self, ending: str) -> str:
        """Return how the server ended: in full for the first answer that it costs."""
        first, self._is_end_shown = not self._is_end_shown, True
        return self._said(ending if first else ending.splitlines()[0])

    def _said(self, message: str) -> str:
        return self._secrets.hidden(message)

    # --- between the threads ---------------------------------------------------------------------

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _delivered(
        self,
        answers: queue.SimpleQueue[Answer | BaseException],
        tasks: list[asyncio.Task[Answer]],
        n: int,
    ) -> Iterator[Answer]:
        try:
            for _ in range(n):
                answer = answers.get()
                if isinstance(answer, BaseException):
                    raise answer
                yield answer
        finally:
            with self._lock:
                if not self._is_closed:
                    self._loop.call_soon_threadsafe(end, tasks)


class Share:
    """A client for one of several threads; it cancels only its own requests."""

    def __init__(self, client: Client):
        self._client = client
        self._tasks: set[asyncio.Task[Answer]] = set()

    @property
    def identity(self) -> Identity:
        return self._client.identity

    def ask(self, messages: Sequence[Message], *, n: int, seed: int) -> Iterator[Answer]:
        return self._client.ask_tracked(messages, n, seed, self._tasks)

    def cancel(self) -> None:
        self._client.end(self._tasks)

    def apart(self) -> Share:
        return Share(self._client)


def end(tasks: Sequence[asyncio.Task[Answer]] | set[asyncio.Task[Answer]]) -> None:
    for task in tuple(tasks):
        task.cancel()


def outcome(task: asyncio.Task[Answer]) -> Answer | BaseException:
    """Return the result or exception of a finished task."""
    if task.cancelled():
        return cancelled()
    return task.exception() or task.result()


def cancelled() -> Answer:
    return Answer(failure="cancelled", message="ended before there was an answer")


def error_text(error: Any) -> str:
    """Return a server's error text: the message of its JSON, or the beginning of its page."""
    body = error.body
    if isinstance(body, dict):
        said = body.get("message") or body.get("detail") or body
        return f"{said} {body.get('param') or ''}".strip()
    with contextlib.suppress(RuntimeError):  # of a body that was never read
        return str(error.response.text)
    return str(error.message)


def sdk() -> ModuleType:
    """Import the openai package, which only runs with a model need."""
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise ModelError(NO_SDK) from error


def transport_error(openai: ModuleType) -> type[Exception]:
    """Return what the SDK's HTTP library raises while a body is read. The SDK's version decides
    which library that is.
    """
    library = openai.DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0]
    error: type[Exception] = importlib.import_module(library).HTTPError
    return error
