"""What was agreed to in a pull request: kept where nobody else can write, and never for more."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.acknowledgements import (
    MAX_LINE,
    Agreed,
    agreements_line,
    agreements_of,
    covered,
    with_agreement,
    without_agreements,
)
from cudal1_ci.github.conclusion import standing
from cudal1_ci.github.marker import Marker, marked, marker_of
from cudal1_ci.stats.gate import Policy
from tests.reports import a_report, a_target, agreed, compared

MARKER = Marker(key="Speed", run=1, attempt=1, sha="a" * 40, verdict="regression")
POOL = Agreed(target="pkg/model.py:pool", max_slowdown=1.53, reason="safer", owner="me")


def body_with(*agreements: Agreed, text: str = "text") -> str:
    return marked(MARKER, agreements_line(agreements) + text)


@pytest.mark.parametrize(
    "reason", ["safer", "a --> b", "<!-- x", "--", "ü\u2028\n\r", '"}]', "]", "\\", "`@me`"]
)
def test_what_was_agreed_is_found_again_whatever_the_reason_is(reason):
    one = msgspec.structs.replace(POOL, reason=reason)
    body = body_with(one, POOL)
    assert agreements_of(body) == (one, POOL)
    assert agreements_of(body.replace("\n", "\r\n")) == (one, POOL)
    assert marker_of(body) == MARKER
    line = body.split("\n")[1]
    assert (line.count("-->"), line.count("<!--")) == (1, 1)
    assert body.split("\n")[2] == "text"
    assert without_agreements(agreements_line([one]) + "text") == "text"


@pytest.mark.parametrize(
    "body",
    [
        "text",
        body_with(),
        "text\n" + body_with(POOL),
        marked(MARKER, "text\n" + agreements_line([POOL])),
        marked(MARKER, " " + agreements_line([POOL])),
        body_with(POOL).replace('"owner"', '"other"'),
        body_with(POOL).replace("1.53", "NaN"),
        body_with(POOL).replace("[{", "[[{"),
        agreements_line([POOL]),
    ],
)
def test_what_stands_anywhere_else_or_is_of_another_shape_is_none(body):
    assert agreements_of(body) == ()


@pytest.mark.parametrize(
    ("slowdown", "limit", "overall"),
    [(1.5, 1.53, "acknowledged"), (1.53, 1.53, "acknowledged"), (1.531, 1.53, "regression")],
)
def test_an_agreement_covers_what_was_agreed_and_no_more(slowdown, limit, overall):
    one = msgspec.structs.replace(POOL, max_slowdown=limit)
    report = covered(a_report(compared("regression", slowdown)), [one])
    assert standing(report, Policy()).overall == overall
    assert len(report.warnings) == (overall == "regression")
    (entry,) = report.entries
    known = entry.comparison.acknowledged
    assert (known.owner if known else None) == ("me" if overall == "acknowledged" else None)


def test_only_a_regression_of_that_very_target_is_covered():
    entries = [
        compared("regression", target=a_target("other")),
        compared("regression", target=a_target(path="pkg/other.py")),
        compared("improvement", 0.5),
        compared("inconclusive"),
    ]
    report = a_report(*entries)
    assert covered(report, [POOL]) == report


def test_what_the_configuration_has_acknowledged_stays():
    report = a_report(compared("regression", acknowledged=agreed(1.6)))
    assert covered(report, [POOL]) == report


def test_the_newest_word_on_a_target_holds_and_there_is_an_end_to_them():
    again = msgspec.structs.replace(POOL, max_slowdown=1.2)
    assert with_agreement([POOL], again) == (again,)
    known: tuple[Agreed, ...] = ()
    with pytest.raises(ForgeError, match="no room"):
        for i in range(100):
            known = with_agreement(known, msgspec.structs.replace(POOL, target=f"f{i}"))
    assert len(agreements_line(known)) <= MAX_LINE
    assert agreements_of(body_with(*known)) == known
