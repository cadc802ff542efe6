"""What the bytes of a reply mean, however they are cut into pieces."""

from __future__ import annotations

import json
import random

import pytest

from cudal1_ci.propose.llm.servers.completion import Completion, repeated
from cudal1_ci.propose.llm.servers.retries import asked_wait_s, wait_s


def an_event(text: str, **more) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, **more}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\r\n\r\n"


STREAM = (
    b": a comment\n\n"
    + an_event("grüße ")
    + an_event("x", index=1)
    + an_event("", delta={"role": "assistant", "content": None})
    + an_event("🚀", finish_reason="stop")
    + b'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\n'
    + b"data: [DONE]\n\ndata: after the end\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_a_stream_means_the_same_in_pieces_of_any_size(size):
    completion = Completion(max_tokens=64)
    for start in range(0, len(STREAM), size):
        if completion.feed(STREAM[start : start + size]):
            break
    answer = completion.answer()
    assert (answer.text, answer.finish_reason, answer.failure) == ("grüße 🚀", "stop", None)
    assert answer.completion_tokens == 3


def test_a_stream_that_ends_without_its_mark_is_whole_if_it_says_why_it_stopped():
    completion = Completion(max_tokens=64)
    completion.feed(an_event("all of it", finish_reason="length"))
    assert completion.answer().text == "all of it"


def test_a_count_that_cannot_be_is_garbage():
    completion = Completion(max_tokens=64)
    completion.feed(b'{"choices": [], "usage": {"completion_tokens": -5}}')
    assert completion.answer().failure == "garbage"
    assert completion.num_tokens == 0


UNROLLED = "\n".join(f"        y{i} = self.layers[{i}](y{i - 1})" for i in range(1, 60))
TABLE = "[" + ", ".join(f"{random.Random(i).random():.3f}" for i in range(300)) + "]"


@pytest.mark.parametrize(
    "text, loop",
    [
        ("kernel " * 300, "kernel"),
        ("fine at first, then " + "no " * 300, "no"),
        ("the same again, " * 200, "the same again ,"),
        ("\n" * 4096, "\n\n\n\n\n\n\n\n"),
        ("a" * 4096, "aaaaaaaa"),
        ("!" * 300, "!"),
        ("kernel " * 100, None),
        (UNROLLED, None),
        (TABLE, None),
        ("", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_loop_of_words_is_told_from_code_that_repeats_itself(text, loop):
    found = repeated(text)
    assert (found is None) == (loop is None)
    if loop is not None:
        assert sorted(found.split()) == sorted(loop.split())


# --- pauses ------------------------------------------------------------------------------------


def test_pauses_grow_and_differ():
    jitter = random.Random(0)
    pauses_s = [
        [wait_s(attempt=i, asked_s=None, first_s=0.5, jitter=jitter) for _ in range(50)]
        for i in (0, 1, 2, 20)
    ]
    bounds_s = [(0.25, 0.5), (0.5, 1.0), (1.0, 2.0), (15.0, 30.0)]
    for some_s, (low_s, high_s) in zip(pauses_s, bounds_s, strict=True):
        assert low_s <= min(some_s) < max(some_s) <= high_s
        assert len(set(some_s)) == 50


def test_what_a_server_asks_for_goes_before_what_is_computed():
    pause_s = wait_s(attempt=0, asked_s=7.0, first_s=0.5, jitter=random.Random(0))
    assert 7.0 <= pause_s <= 7.5


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("2", 2.0),
        ("0.25", 0.25),
        ("-3", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("", None),
    ],
)
def test_a_server_says_when_in_seconds_or_as_a_date(text, seconds):
    assert asked_wait_s({"retry-after": text}, now_s=10.0) == seconds
