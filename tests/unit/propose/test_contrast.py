"""Which variants a prompt shows."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.contrast import (
    NUM_ISLANDS,
    REFERENCE,
    SAMPLERS,
    ContrastConfig,
    buckets,
    select,
)
from cudal1_ci.propose.llm.fingerprint import fingerprint, likeness, operators
from cudal1_ci.propose.llm.task import Variant
from cudal1_ci.records import Candidate, Exemplar, TextProgram


def variant(score: float, text: str | None = None, proposer: str = "fake") -> Variant:
    text = text or f"def f(x):\n    return x * {score}\n"
    program = TextProgram(source=text, entry="f")
    candidate = Candidate(problem_id="p", program=program, proposer=proposer)
    return Variant(exemplar=Exemplar(candidate=candidate, score=score), text=text)


STORE = [variant(score) for score in (0.5, 1.0, 1.01, 1.5, 1.52, 3.0)]


def draws(config: ContrastConfig, store=STORE, n: int = 2000) -> Counter:
    rng = random.Random(0)
    return Counter(tuple(v.exemplar.score for v in select(store, config, rng)) for _ in range(n))


def test_two_distinct_buckets_slow_before_fast():
    assert [len(bucket) for bucket in buckets(STORE, 0.1)] == [1, 2, 2, 1]
    for pair in draws(ContrastConfig()):
        assert len(pair) == 2
        assert pair == tuple(sorted(pair))
        assert pair not in {(1.0, 1.01), (1.5, 1.52)}


def test_faster_buckets_are_drawn_more_often_and_all_of_a_bucket_alike():
    singles = Counter()
    for pair, count in draws(ContrastConfig(num_exemplars=1)).items():
        singles[pair[0]] += count
    assert singles[3.0] > singles[1.5] + singles[1.52] > singles[1.0] + singles[1.01] > 0
    assert singles[0.5] > 0
    assert 0.8 < singles[1.5] / singles[1.52] < 1.25


def test_a_low_temperature_draws_the_fastest_and_a_high_one_any():
    cold = draws(ContrastConfig(num_exemplars=1, temperature=0.05))
    assert cold[(3.0,)] > 1990
    hot = draws(ContrastConfig(num_exemplars=1, temperature=100))
    assert 0.4 < hot[(3.0,)] / hot[(0.5,)] < 2.5


def test_the_scale_of_the_speedups_does_not_matter():
    def shares(scores):
        found = draws(ContrastConfig(num_exemplars=1), [variant(s) for s in scores])
        return [found[(s,)] for s in scores]

    near, far = shares((1.0, 1.3, 1.69)), shares((1.0, 10.0, 100.0))
    assert all(abs(one - other) < 120 for one, other in zip(near, far, strict=True))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_draws_the_same_in_whatever_order_they_came(sampler):
    config = ContrastConfig(sampler=sampler)
    for seed in range(9):
        one = select(STORE, config, random.Random(seed))
        assert one == select(STORE[::-1], config, random.Random(seed))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("store", [[], STORE[:1], STORE])
def test_every_sampler_shows_no_more_than_there_is(sampler, store):
    for number in (0, 1, 2, 9):
        config = ContrastConfig(sampler=sampler, num_exemplars=number)
        found = select(store, config, random.Random(0))
        assert len(found) <= min(number, len(store))
        assert len({v.text for v in found}) == len(found)
        if sampler == "random":
            assert len(found) == min(number, len(store))
        if sampler == "none":
            assert found == []


def test_what_did_not_pass_and_what_is_the_same_but_for_names_is_not_shown():
    same = "def g(value):\n    '''Other words.'''\n    return value * 1.5  # comment\n"
    store = [variant(1.5), variant(1.6, same), variant(0.0)]
    for pair in draws(ContrastConfig(), store):
        assert pair == (1.5,)


def test_islands_do_not_mix():
    store = [variant(1.0, proposer=REFERENCE)] + [variant(1 + n / 10) for n in range(1, 9)]
    pairs = draws(ContrastConfig(sampler="island", num_exemplars=9), store)
    assert len(pairs) == NUM_ISLANDS
    for one in pairs:
        assert one[0] == 1.0
        for other in pairs:
            assert one == other or set(one) & set(other) == {1.0}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_exemplars": -1}, "contrast.num-exemplars"),
        ({"bucket_width": 0.0}, "contrast.bucket-width"),
        ({"temperature": -1.0}, "contrast.temperature"),
    ],
)
def test_what_cannot_be_is_named(values, words):
    with pytest.raises(ConfigError, match=words):
        ContrastConfig(**values)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("def f(a): return a + 1", "def g(b):\n  'Doc.'\n  return b + 1", True),
        ("def f(a): return a + 1", "def f(a): return a + 2", False),
        ("def f(a): return torch.relu(a)", "def f(a): return torch.gelu(a)", False),
        ("def f(a, b): return a - b", "def f(a, b): return b - a", False),
        ("__global__ void k() { } // one", "__global__  void k()\n{ /* two */ }", True),
        ("__global__ void k() { }", "__global__ void j() { }", False),
        ("not ( python", "not (python", True),
    ],
)
def test_texts_of_one_form(one, other, same):
    assert (fingerprint(one) == fingerprint(other)) is same


def test_operators_of_similar_modules_are_alike():
    norm = "def f(x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)"
    same = "def g(h):\n    return h * torch.rsqrt(h.pow(2).mean(-1) + 1e-6) * weight"
    other = "def f(q, k): return torch.softmax(q @ k, -1)"
    assert operators(norm) == {"rsqrt": 1, "pow": 1, "mean": 1, "Mult": 1, "Add": 1}
    assert likeness(operators(norm), operators(same)) > 0.8
    assert likeness(operators(norm), operators(other)) < 0.2
    assert likeness({}, {}) == 0.0
    assert operators("no python (") == {}
