"""Answers of a hostile runner: what is none is refused, and never raises anything else."""

from __future__ import annotations

import copy
import json
import math
import random

import pytest

from cudal1_ci.sandboxed.wire.replies import CHECKERS, Malformed, check

SLOT = {"dtype": "float32", "shape": [2, 3], "stride": [3, 1], "offset": 0}
PLACED = {**SLOT, "device": "cpu", "own_stride": [3, 1]}
CALL = {
    "structure": "t",
    "types": ["Tensor"],
    "aliases": [[]],
    "shares": [["state"]],
    "used_rng": False,
    "seeded": False,
    "slots": [PLACED],
    "num_leaves": 1,
}
GOOD = {
    "error": {"type": "ValueError", "message": "no", "traceback": "", "stage": "import"},
    "load": {"state": [{**SLOT, "key": "fc.weight", "parameter": True}], "imported": ["numpy"]},
    "imported": {"imported": ["numpy"]},
    "make": {"calls": [{"data": "gASV", "slots": [SLOT]}]},
    "call": {"calls": [CALL], "flags": {}},
    "batch": {"claim_us": 12.5, "issue_us": 11.0},
    "exchange": {"claim_us": 0.0, "issue_us": 0.0},
    "aftermath": {"names": ["the state `x`"], "slots": [SLOT]},
    "left": {"aliases": [0], "patched": ["torch.relu"]},
    "profile": {"rows": [{"name": "relu(float*)", "num_calls": 2, "time_us": 1.5}]},
    "reached": {"names": ["input 0", "fc.weight"]},
}
DEMAND = {"num_bytes": 12, "product_flops": 0, "convolution_flops": 4, "dtype": "float32"}
GOOD["demand"] = DEMAND
BAD = [
    ("demand", {**DEMAND, "num_bytes": -1}),
    ("demand", {**DEMAND, "num_bytes": True}),
    ("demand", {**DEMAND, "product_flops": 1.5}),
    ("demand", {**DEMAND, "convolution_flops": 2**63}),
    ("demand", {**DEMAND, "dtype": "f" * 600}),
    ("demand", {"num_bytes": 12}),
    ("call", {"calls": []}),
    ("call", {"calls": [{**CALL, "num_leaves": 2}], "flags": {}}),
    ("call", {"calls": [{**CALL, "types": ["Tensor", "Tensor"]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "aliases": [[{}]]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "shares": [[[]]]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "shares": []}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [SLOT]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "device": 0}]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "dtype": "Tensor"}]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "shape": [2**57], "stride": [0]}]}]}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "shape": [-1, 3]}]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "stride": [3]}]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "shape": [True, 3]}]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**SLOT, "device": "cpu"}]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "own_stride": [1]}]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "own_stride": [-3, 1]}]}], "flags": {}}),
    ("call", {"calls": [{**CALL, "slots": [{**PLACED, "own_stride": [2**57, 1]}]}], "flags": {}}),
    ("batch", {"claim_us": "soon", "issue_us": 0.0}),
    ("batch", {"claim_us": 1.0, "issue_us": float("inf")}),
    ("batch", {"claim_us": 1.0}),
    ("batch", {"claim_us": float("nan"), "issue_us": 0.0}),
    ("batch", {"claim_us": -1.0, "issue_us": 0.0}),
    ("batch", {"claim_us": True, "issue_us": 0.0}),
    ("batch", {}),
    ("load", {"state": [SLOT], "imported": []}),
    ("imported", {"imported": "numpy"}),
    ("imported", {"imported": [1]}),
    ("aftermath", {"names": [], "slots": [SLOT]}),
    ("left", {"aliases": ["0"], "patched": []}),
    ("left", {"aliases": [], "patched": "torch.relu"}),
    ("left", {"aliases": []}),
    ("profile", {"rows": [{"name": "relu(float*)", "num_calls": 0, "time_us": 1.5}]}),
    ("profile", {"rows": [{"name": "relu(float*)", "num_calls": 1, "time_us": math.inf}]}),
    ("profile", {"rows": [{"name": "r" * 600, "num_calls": 1, "time_us": 1.5}]}),
    ("reached", {"names": "input 0"}),
    ("reached", {"names": [0]}),
    ("reached", {"names": ["x"] * 5000}),
    ("reached", {}),
    ("error", {"type": 3, "message": "", "traceback": ""}),
    ("error", "words"),
]


@pytest.mark.parametrize("op", GOOD)
def test_an_answer_is_taken(op):
    check(op, copy.deepcopy(GOOD[op]))


def test_every_checked_request_has_a_good_answer_here():
    assert set(GOOD) == set(CHECKERS)


@pytest.mark.parametrize(("op", "reply"), BAD)
def test_what_is_no_answer_is_refused(op, reply):
    with pytest.raises(Malformed):
        check(op, reply)


def test_whatever_is_changed_in_an_answer_raises_nothing_else():
    rng = random.Random(0)
    junk = [None, -1, 2**70, 1.5, "x", [], {}, True, float("inf"), [[]], {"shape": 3}]
    for _ in range(3000):
        op = rng.choice(list(GOOD))
        reply = copy.deepcopy(GOOD[op])
        here = reply
        while True:
            key = rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
            if not isinstance(here[key], dict | list) or not here[key] or rng.random() < 0.3:
                break
            here = here[key]
        here[key] = rng.choice(junk)
        try:
            check(op, reply)
        except Malformed:
            continue
        json.dumps(reply)
