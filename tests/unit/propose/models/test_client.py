"""The client against a real server that behaves in every way that servers do."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest

from cudal1_ci.errors import ConfigError, ModelError
from cudal1_ci.propose.llm.servers import Answer, Message
from cudal1_ci.propose.llm.servers.client import Client, Endpoint
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.records import Identity
from tests.replay_server import (
    Body,
    Dies,
    Good,
    Hangs,
    Rejects,
    Replay,
    Status,
    Trickles,
    replay_server,
)

MESSAGES = (
    Message(role="system", content="You write fast code."),
    Message(role="user", content="Make it fast."),
)
KEY = "sk-test-0123456789abcdef"


def a_config(**changes) -> ModelConfig:
    settings = {"max_tokens": 64, "request_s": 5.0, "max_retries": 2, "top_p": 0.9, **changes}
    return ModelConfig(model="http://127.0.0.1:1", **settings)


@contextmanager
def a_client(server: Replay, *, api_key=None, ended=lambda: None, **changes) -> Iterator[Client]:
    config = a_config(**changes)
    identity = Identity(
        model="replay",
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
    )
    endpoint = Endpoint(
        url=server.url,
        identity=identity,
        model="replay",
        api_key=api_key,
        num_concurrent=config.num_concurrent,
        ended=ended,
    )
    with Client(config, endpoint, first_wait_s=0.01) as client:
        yield client


def one_answer(reply, **changes) -> Answer:
    with replay_server([reply]) as server, a_client(server, **changes) as client:
        return one(client)


def one(client: Client, seed: int = 0) -> Answer:
    (answer,) = client.ask(MESSAGES, n=1, seed=seed)
    return answer


# --- good answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        Good("def fast(): ..."),
        Good("def fast(): ...", as_document=True),
        Rejects("stream", Good("def fast(): ...")),
    ],
    ids=["stream", "document", "no streams"],
)
def test_an_answer_is_read_with_its_counts(reply):
    answer = one_answer(reply)
    assert (answer.text, answer.finish_reason, answer.failure) == ("def fast(): ...", "stop", None)
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 4)
    assert 0 < answer.elapsed_s < 5


def test_counts_that_a_server_does_not_give_are_absent():
    answer = one_answer(Good("text", has_usage=False))
    assert (answer.prompt_tokens, answer.completion_tokens) == (None, None)


def test_what_is_asked_for_is_what_is_sent():
    with replay_server() as server, a_client(server, api_key=KEY) as client:
        one(client, seed=41)
    (request,) = server.requests
    headers = request.pop("headers")
    assert headers["authorization"] == f"Bearer {KEY}"
    assert request == {
        "model": "replay",
        "messages": [
            {"role": "system", "content": "You write fast code."},
            {"role": "user", "content": "Make it fast."},
        ],
        "temperature": 0.8,
        "top_p": 0.9,
        "max_tokens": 64,
        "seed": 41,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_each_answer_has_a_seed_of_its_own():
    recorded = ["zero", "one", "two", "three"]
    with replay_server(recorded, by_seed=True) as server, a_client(server) as client:
        texts = [answer.text for answer in client.ask(MESSAGES, n=3, seed=1)]
    assert sorted(texts) == ["one", "three", "two"]


def test_answers_are_made_at_the_same_time_and_given_when_ready():
    recorded = [Good(t, pause_s=s) for t, s in (("slow", 0.8), ("fast", 0.2), ("middle", 0.5))]
    with replay_server(recorded, by_seed=True) as server, a_client(server) as client:
        texts = [answer.text for answer in client.ask(MESSAGES, n=3, seed=0)]
    assert texts == ["fast", "middle", "slow"]
    assert server.most_under_way == 3


def test_no_more_are_asked_for_at_the_same_time_than_is_allowed():
    with (
        replay_server([Good("x", pause_s=0.05)]) as server,
        a_client(server, num_concurrent=2) as client,
    ):
        assert len(list(client.ask(MESSAGES, n=6, seed=0))) == 6
    assert server.most_under_way == 2


def test_a_server_is_asked_before_the_first_answer_is_read():
    with replay_server() as server, a_client(server) as client:
        answers = client.ask(MESSAGES, n=2, seed=0)
        deadline_s = time.monotonic() + 5
        while len(server.requests) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert len(server.requests) == 2
        assert len(list(answers)) == 2


# --- bad answers -------------------------------------------------------------------------------

HTML = b"<!doctype html><html><body>Welcome to the proxy</body></html>"
EMPTY = json.dumps({"choices": [{"index": 0, "message": {"content": "  \n"}}]}).encode()
BIG = json.dumps({"choices": [{"index": 0, "message": {"content": "ab c" * 2_500_000}}]}).encode()


@pytest.mark.parametrize(
    "reply, failure, words",
    [
        (Body(HTML, "text/html"), "garbage", "Welcome to the proxy"),
        (Body(b'{"choices": [{"mess'), "garbage", "not the protocol"),
        (Body(b'{"choices": "none"}'), "garbage", "not the protocol"),
        (Body(b"[" * 100_000), "garbage", "not the protocol"),
        (Body(b"\xff\xfe\x00"), "garbage", "not the protocol"),
        (Body(b""), "garbage", "not the protocol"),
        (Body(b"data: {'choices'\n\n", "text/event-stream"), "garbage", "not the protocol"),
        (Body(b"data: [DONE]\n\n", "text/event-stream"), "garbage", "no choices"),
        (Body(b'{"choices": []}'), "garbage", "no choices"),
        (Body(b'data: {"error": {"message": "CUDA OOM"}}\n\n'), "server", "CUDA OOM"),
        (Body(EMPTY), "empty", "no text"),
        (Good(""), "empty", "no text"),
        (Body(BIG), "too_long", "bytes"),
        (Body(b"data: " + BIG + b"\n\n"), "too_long", "bytes"),
        (Good("".join(map(str, range(2000)))), "too_long", "characters"),
        (Good("kernel " * 500), "degenerate", "kernel"),
        (Dies(), "server", "connection failed"),
        (Dies(politely=True), "server", "broke off"),
        (Status(500, "out of memory"), "server", "out of memory"),
        (Status(502, "Bad Gateway", html=True), "server", "Bad Gateway"),
        (Status(429, "slow down"), "rate_limit", "slow down"),
        (Status(401, "who are you"), "refused", "who are you"),
        (Status(400, "prompt is too long"), "refused", "prompt is too long"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_answer_says_what_was_bad_about_it(reply, failure, words):
    answer = one_answer(reply, max_tokens=640 if failure == "degenerate" else 64)
    assert (answer.text, answer.failure) == ("", failure)
    assert words in answer.message
    assert len(answer.message) < 500


@pytest.mark.parametrize("reply", [Hangs(), Hangs(after_headers=True), Trickles()], ids=str)
def test_the_limit_of_wall_clock_holds_for_servers_that_hang_or_trickle(reply):
    answer = one_answer(reply, request_s=0.4)
    assert answer.failure == "timeout"
    assert 0.4 <= answer.elapsed_s < 1.5


def test_an_endless_answer_is_cut_early():
    endless = Good("word " * 100_000)
    with replay_server([endless]) as server, a_client(server, max_tokens=2048) as client:
        answer = one(client)
        deadline_s = time.monotonic() + 5
        while server.num_under_way and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert server.num_under_way == 0  # the server was hung up on
    assert answer.failure == "degenerate"
    assert answer.elapsed_s < 3


def test_one_bad_answer_costs_no_other():
    recorded = ["good", Body(HTML), "fine"]
    with replay_server(recorded, by_seed=True) as server, a_client(server) as client:
        answers = list(client.ask(MESSAGES, n=3, seed=0))
    assert Counter(answer.failure for answer in answers) == {None: 2, "garbage": 1}


def test_a_server_that_is_not_there_costs_the_answers():
    with replay_server() as server:
        pass
    with a_client(server) as client:
        answers = list(client.ask(MESSAGES, n=2, seed=0))
    assert [answer.failure for answer in answers] == ["server", "server"]


def test_a_server_that_ended_is_told_in_full_once_and_not_asked_again():
    with replay_server() as server:
        pass
    ending = "the server ended (exit code 1)\n  RuntimeError: no memory"
    with a_client(server, ended=lambda: ending, max_retries=1000) as client:
        messages = [answer.message for answer in client.ask(MESSAGES, n=3, seed=0)]
    assert messages == [ending, "the server ended (exit code 1)", "the server ended (exit code 1)"]


# --- once more ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [Status(500), Status(503), Status(429), Dies()], ids=str)
def test_what_may_pass_is_tried_again(bad):
    with replay_server([bad, bad, "good"]) as server, a_client(server) as client:
        assert one(client).text == "good"
    assert len(server.requests) == 3


def test_retries_end():
    with replay_server([Status(500)]) as server, a_client(server) as client:
        assert one(client).failure == "server"
    assert len(server.requests) == 3


@pytest.mark.parametrize("bad", [Status(401), Body(HTML), Good("")], ids=str)
def test_what_will_not_pass_is_not_tried_again(bad):
    with replay_server([bad, "good"]) as server, a_client(server) as client:
        assert one(client).failure is not None
    assert len(server.requests) == 1


def test_a_server_is_given_the_time_that_it_asks_for():
    with (
        replay_server([Status(429, retry_after="0.5"), "good"]) as server,
        a_client(server) as client,
    ):
        answer = one(client)
    assert answer.text == "good"
    assert answer.elapsed_s >= 0.5


def test_a_server_that_asks_for_an_hour_is_not_waited_for():
    with (
        replay_server([Status(429, retry_after="3600"), "good"]) as server,
        a_client(server) as client,
    ):
        assert one(client).failure == "rate_limit"


# --- parameters that a server does not know ------------------------------------------------------


@pytest.mark.parametrize("parameter", ["seed", "stream_options", "stream"])
def test_a_parameter_that_is_not_liked_is_left_out_from_then_on(parameter):
    with (
        replay_server([Rejects(parameter, Good("good"))]) as server,
        a_client(server) as client,
    ):
        assert one(client).text == "good"
        assert one(client).text == "good"
    assert [parameter in request for request in server.requests] == [True, False, False]


def test_sampling_is_not_changed_behind_the_back_of_the_record():
    rejects = Rejects("top_p", Good("good"))
    assert one_answer(rejects, top_p=0.9).failure == "refused"
    assert one_answer(rejects, top_p=1.0).text == "good"


def test_the_newer_name_of_max_tokens_is_used_where_it_is_asked_for():
    rejects = Rejects(
        "max_tokens", Good("good"), "Unsupported parameter: {}. Use 'max_completion_tokens'."
    )
    with replay_server([rejects]) as server, a_client(server) as client:
        assert one(client).text == "good"
    assert server.requests[1]["max_completion_tokens"] == 64


def test_a_parameter_is_left_out_once_and_no_more():
    always = Status(400, "seed is not what is wrong here")
    with replay_server([always]) as server, a_client(server) as client:
        assert one(client).failure == "refused"
    assert len(server.requests) == 2


# --- tokens ------------------------------------------------------------------------------------


def test_the_tokens_of_a_run_are_never_exceeded():
    answer_of_50_tokens = Good("".join(chr(97 + i % 26) + "bc " for i in range(50)))
    with (
        replay_server([answer_of_50_tokens]) as server,
        a_client(server, token_budget=200) as client,
    ):
        answers = list(client.ask(MESSAGES, n=8, seed=0))
    # Each may need 64: with 100 spent there is room for a third, with 150 for no fourth.
    assert Counter(answer.failure for answer in answers) == {None: 3, "budget": 5}
    assert len(server.requests) == 3


def test_tokens_that_a_server_does_not_count_are_estimated():
    text = "".join(f"{i:03} " for i in range(50))
    with (
        replay_server([Good(text, has_usage=False)]) as server,
        a_client(server, token_budget=100) as client,
    ):
        assert [one(client).failure, one(client).failure] == [None, "budget"]


# --- ending ------------------------------------------------------------------------------------


def test_cancelling_from_another_thread_ends_everything_at_once():
    recorded = ["good", Hangs(), Trickles(), Hangs(after_headers=True)]
    with replay_server(recorded, by_seed=True) as server, a_client(server) as client:
        answers = client.ask(MESSAGES, n=4, seed=0)
        assert next(answers).text == "good"
        threading.Timer(0.2, client.cancel).start()
        started_s = time.monotonic()
        assert [answer.failure for answer in answers] == ["cancelled"] * 3
        assert time.monotonic() - started_s < 1.5
        assert one(client).text == "good"  # what is asked for later is answered


def test_what_one_of_several_threads_cancels_is_its_own():
    recorded = [Hangs(), Hangs(), "good", "good"]
    with replay_server(recorded, by_seed=True) as server, a_client(server) as client:
        one, other = client.apart(), client.apart()
        assert one.identity == client.identity
        ended, kept = one.ask(MESSAGES, n=1, seed=0), other.ask(MESSAGES, n=1, seed=1)
        threading.Timer(0.2, one.cancel).start()
        assert next(ended).failure == "cancelled"
        assert len(client._tasks) == 1, "the other one's is under way"
        assert next(other.apart().ask(MESSAGES, n=1, seed=2)).text == "good"
        threading.Timer(0.1, client.cancel).start()
        assert next(kept).failure == "cancelled"


def test_answers_that_nobody_waits_for_are_ended():
    with (
        replay_server(["good", Hangs()], by_seed=True) as server,
        a_client(server, num_concurrent=2) as client,
    ):
        answers = client.ask(MESSAGES, n=2, seed=0)
        assert next(answers).text == "good"
        answers.close()
        # Both slots are free again.
        assert [a.text for a in client.ask(MESSAGES, n=1, seed=0)] == ["good"]
        deadline_s = time.monotonic() + 5
        while client._tasks and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert not client._tasks


def test_a_closed_client_owes_its_answers():
    with replay_server([Hangs()]) as server, a_client(server) as client:
        answers = client.ask(MESSAGES, n=2, seed=0)
    assert [answer.failure for answer in answers] == ["cancelled"] * 2
    assert [answer.failure for answer in client.ask(MESSAGES, n=1, seed=0)] == ["cancelled"]
    client.cancel()


# --- secrets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message", [f"bad key {KEY}", f"bad key {KEY[:12]}... (cut)", f'{{"key":"{KEY}"}}']
)
def test_a_key_is_in_no_message_and_no_log(message, caplog):
    with (
        caplog.at_level(logging.DEBUG),
        replay_server([Status(401, message)]) as server,
        a_client(server, api_key=KEY) as client,
    ):
        answer = one(client)
        shown = [repr(client), repr(client._endpoint), repr(answer), caplog.text]
    assert "***" in answer.message
    for text in shown:
        assert KEY[:12] not in text


def test_other_keys_of_the_environment_do_not_go_to_a_server(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, KEY)
    with (
        replay_server([Status(400, f"the environment says {KEY}")]) as server,
        a_client(server) as client,
    ):
        answer = one(client)
    assert KEY not in json.dumps(server.requests)
    assert KEY not in answer.message


# --- opening -----------------------------------------------------------------------------------


def test_a_url_is_opened_with_its_first_model_and_the_key_of_the_environment(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with replay_server(models=("big", "small")) as server:
        config = ModelConfig(model=server.url.removesuffix("/v1"), api_key_env="MY_KEY")
        with opened(config) as model:
            assert one(model).text == "ok"
            identity = model.identity
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
    assert server.requests[0]["model"] == identity.model == "big"
    assert identity.server == server.url.removeprefix("http://").removesuffix("/v1")


def test_a_model_that_is_named_is_not_looked_for():
    with replay_server(models=()) as server:
        config = ModelConfig(model=server.url + "/chat/completions", name="large")
        with opened(config) as model:
            assert one(model).text == "ok"
            assert model.identity.model == "large"


def test_a_url_without_models_is_an_error_that_says_what_to_do():
    with (
        replay_server(models=()) as server,
        pytest.raises(ModelError, match=r"lists no models.*model.name"),
        opened(ModelConfig(model=server.url)),
    ):
        pass


def test_a_url_where_nobody_is_is_an_error():
    with replay_server() as server:
        pass
    with (
        pytest.raises(ModelError, match="connection failed"),
        opened(ModelConfig(model=server.url, max_retries=0)),
    ):
        pass


def test_a_key_that_is_none_is_not_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test\n0123")
    with (
        pytest.raises(ConfigError, match="OPENAI_API_KEY") as error,
        opened(ModelConfig(model="http://127.0.0.1:1")),
    ):
        pass
    assert "sk-test" not in str(error.value)


def test_without_the_sdk_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with (
        pytest.raises(ModelError, match=r"pip install 'cudal1-ci\[model\]'"),
        opened(ModelConfig(model="http://127.0.0.1:1", name="any")),
    ):
        pass


def test_no_model_is_an_error_of_the_configuration():
    with pytest.raises(ConfigError, match=r"model\.model"), opened(ModelConfig()):
        pass


def test_a_package_that_openai_lacks_is_named(monkeypatch):
    def lacking(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'truststore'")

    monkeypatch.setattr(openai.DefaultAsyncHttpxClient, "__init__", lacking)
    with (
        replay_server() as server,
        pytest.raises(ModelError, match=r"cudal1-ci\[model\].*'truststore'"),
        a_client(server),
    ):
        pass
