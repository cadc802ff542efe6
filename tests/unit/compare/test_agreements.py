"""Slowdowns that somebody has agreed to."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from cudal1_ci.compare.agreements import agreed, agreements
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import ComparedWorkload, Comparison
from tests.fakes import a_target
from tests.unit.stats.test_regression import measured

TABLE = {
    "target": "pkg/*:Block",
    "max-slowdown": 1.3,
    "reason": "the mask was wrong",
    "owner": "@me",
    "expires": "2026-12-31",
}
TODAY = datetime.date(2026, 12, 31)


def slower(ratio: float) -> Comparison:
    row = ComparedWorkload(workload="w", verdict="regression", measurements=(measured(ratio),))
    return Comparison(verdict="regression", rows=(row,))


def test_it_covers_a_regression_up_to_its_slowdown_and_on_its_last_day():
    (one,) = agreements([TABLE], "pyproject.toml")
    assert agreed(a_target(), slower(1.2), [one], TODAY) == (one, None)


@pytest.mark.parametrize(
    ("ratio", "changes", "why"),
    [
        (1.4, {}, "agreed to 1.3x for pkg/model.py:Block; it is 1.4x"),
        (1.2, {"expires": datetime.date(2026, 12, 30)}, "ended on 2026-12-30"),
        (1.2, {"target": "other/*"}, None),
    ],
)
def test_what_it_does_not_cover_is_said(ratio, changes, why):
    known = agreements([{**TABLE, **changes}], "pyproject.toml")
    covering, said = agreed(a_target(), slower(ratio), known, TODAY)
    assert covering is None
    assert said is None if why is None else why in said


def test_another_agreement_may_cover_what_the_first_one_does_not():
    first, second = agreements([{**TABLE, "max-slowdown": 1.1}, TABLE], "pyproject.toml")
    assert agreed(a_target(), slower(1.2), [first, second], TODAY)[0] == second


def test_what_is_no_regression_needs_none():
    same = msgspec.structs.replace(slower(1.0), verdict="same")
    assert agreed(a_target(), same, agreements([TABLE], "f"), TODAY) == (None, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expire": "2026-01-01"}, "unknown key `expire`"),
        ({"owner": None}, "`owner` is missing"),
        ({"owner": " "}, "`owner` must not be empty"),
        ({"expires": "soon"}, "`expires` must be a day of the calendar, such as "),
        ({"expires": "2027-02-30"}, "got '2027-02-30'"),
        ({"expires": "31.12.2027"}, "`expires` must be a day"),
        ({"expires": 2027}, "`expires` must be text, got 2027"),
        ({"target": 3}, "`target` must be text, got 3"),
        ({"max-slowdown": 0.9}, "`max-slowdown` must be above 1"),
        ({"max-slowdown": "a lot"}, "`max-slowdown` must be a number above 1"),
        ({"max-slowdown": True}, "`max-slowdown` must be a number above 1"),
    ],
)
def test_a_malformed_one_is_refused_with_its_place(changes, words):
    table = {k: v for k, v in {**TABLE, **changes}.items() if v is not None}
    with pytest.raises(ConfigError) as error:
        agreements([TABLE, table], "pyproject.toml")
    assert "pyproject.toml, ack[1]" in str(error.value)
    assert words in str(error.value)
