"""A relay adds the key that its clients do not have, and passes on what the server says."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.propose.llm.servers.relay import RELAYED, api_url, relayed_url, route
from cudal1_ci.propose.llm.servers.relay_server import RelayServer, lines
from tests.replay_server import Body, Dies, Good, Rejects, Replay, Status, replay_server

ROOT = Path(__file__).parents[4]
KEY = "sk-the-real-key-4711"


@contextmanager
def relay(url: str) -> Iterator[str]:
    """A relay in front of that server; what its clients have instead of the key."""
    server = RelayServer({route(url): (url, KEY)}, "0" * 32)
    ours, theirs = os.pipe()
    thread = threading.Thread(target=server.serve_until_closed, args=(ours,))
    thread.start()
    try:
        yield server.expected.removeprefix("Bearer ")
    finally:
        os.close(theirs)
        thread.join()
        server.shutdown()
        server.server_close()
        server.client.close()
        os.close(ours)


def asked(server: Replay, monkeypatch, **more):
    """One answer by way of a relay."""
    with relay(server.url) as secret:
        monkeypatch.setenv("OPENAI_API_KEY", secret)
        config = ModelConfig(model=server.url, **{"max_retries": 0, **more})
        with opened(config) as model:
            (answer,) = model.ask([], n=1, seed=0)
            return answer, model.identity


def test_the_server_gets_the_key_and_its_answer_comes_back(monkeypatch):
    with replay_server(["x" * 500 + " für alle"], models=["large"]) as server:
        answer, identity = asked(server, monkeypatch)
    assert answer.text == "x" * 500 + " für alle"
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
    assert identity.model == "large"
    assert identity.server in server.url


@pytest.mark.parametrize(
    ("reply", "failure", "words"),
    [
        (Status(401, f"Incorrect API key provided: {KEY}"), "refused", "HTTP 401: Incorrect API"),
        (Status(429, "slow down", retry_after="7200"), "rate_limit", "HTTP 429: slow down"),
        (Status(503, KEY, html=True), "server", "HTTP 503"),
        (Dies(), "server", "the connection failed"),
        (Body(json.dumps({"error": {"message": f"no {KEY[:12]}..."}}).encode()), "server", "no"),
    ],
)
def test_failures_are_those_of_the_server_and_show_no_key(monkeypatch, reply, failure, words):
    with replay_server([reply]) as server:
        answer, _ = asked(server, monkeypatch, name="x")
    assert (answer.failure, words in answer.message) == (failure, True), answer
    assert KEY[:8] not in answer.message


def test_what_a_server_does_not_know_is_left_out_as_without_a_relay(monkeypatch):
    with replay_server([Rejects("seed", Good("fine"))]) as server:
        assert asked(server, monkeypatch)[0].text == "fine"


def test_a_server_that_is_not_there_is_a_failed_connection(monkeypatch):
    with replay_server() as server:
        pass
    answer, _ = asked(server, monkeypatch, name="x")
    assert answer.failure == "server"
    assert "the connection failed" in answer.message


def test_who_lacks_the_secret_or_names_another_server_gets_nothing():
    with replay_server() as server, relay(server.url) as secret:
        port = int(secret.rpartition(":")[2])
        ways = {
            f"/{route(server.url)}/models": ("", f"Bearer {'1' * 32}@127.0.0.1:{port}", "Bearer"),
            f"/{route('https://evil.example/v1')}/models": (f"Bearer {secret}",),
            "http://evil.example/v1/models": (f"Bearer {secret}",),
            "/": (f"Bearer {secret}",),
        }
        for path, headers in ways.items():
            for header in headers:
                line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                line.request("GET", path, headers={"Authorization": header})
                got = line.getresponse()
                assert got.status in (401, 404), (path, header)
                assert KEY.encode() not in got.read()
                line.close()
    assert not server.requests


def test_a_key_is_no_address_and_without_one_the_server_is_asked_directly():
    secret = f"{'a' * 32}@127.0.0.1:8000"
    assert relayed_url("https://x/v1", secret) == f"http://127.0.0.1:8000/{route('https://x/v1')}"
    for key in (None, "", KEY, f"{secret}0/x", secret.replace("127.0.0.1", "10.0.0.1")):
        assert relayed_url("https://x/v1", key) is None


def test_lines_are_passed_on_when_they_are_whole_and_long_ones_in_parts():
    assert list(lines([b"a", b"b\nc\nd", b"e"])) == [b"ab\nc\n", b"de"]
    long = [b"x" * 40_000] * 4
    assert b"".join(lines(long)) == b"".join(long)
    assert len(list(lines(long))) == 2


SCRIPT = """
import os, sys
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.propose.llm.servers.relay import keep_keys_apart
from cudal1_ci.unreadable import make_unreadable
make_unreadable()
config = ModelConfig(model=sys.argv[1], name="x", max_retries=0)
keep_keys_apart(("OPENAI_API_KEY", "OTHER_KEY"), [(config.model, "OPENAI_API_KEY")])
print(os.getpid(), os.environ["OPENAI_API_KEY"], os.environ.get("OTHER_KEY"), flush=True)
with opened(config) as model:
    print([one.text for one in model.ask([], n=3, seed=0)], flush=True)
sys.stdin.read()
"""


def test_a_program_starts_again_without_its_keys_and_the_relay_ends_with_it(tmp_path):
    """The kernel's own record of what each process was started with has no key in it."""
    file = tmp_path / "program.py"
    file.write_text(SCRIPT)
    environment = {**os.environ, "OPENAI_API_KEY": KEY, "OTHER_KEY": "sk-not-needed"}
    environment["PYTHONPATH"] = str(ROOT)
    with (
        replay_server(["yes"]) as server,
        subprocess.Popen(
            [sys.executable, str(file), server.url],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout
        pid, secret, other = process.stdout.readline().split()
        assert (int(pid), other) == (process.pid, secret)
        assert RELAYED.fullmatch(secret)
        assert process.stdout.readline() == "['yes', 'yes', 'yes']\n"
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if os.geteuid() == 0:  # alone may look
            assert b"sk-" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert KEY.encode() in Path(f"/proc/{children[0]}/environ").read_bytes()
        process.communicate("")
    assert process.returncode == 0
    assert {one["headers"]["authorization"] for one in server.requests} == {f"Bearer {KEY}"}
    (child,) = children
    for _ in range(200):
        if not Path(f"/proc/{child}").exists() or is_zombie(child):
            return
        threading.Event().wait(0.05)
    raise AssertionError("the relay outlives the program")


def is_zombie(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_urls_get_the_version_that_users_leave_out():
    assert api_url("https://a.example") == "https://a.example/v1"
    assert api_url("https://a.example/v2/") == "https://a.example/v2"
    assert api_url("https://a.example/v1/chat/completions") == "https://a.example/v1"
