"""Which attacks and honest programs are run, and that all of them are in the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.groups import group_of
from tests.selection import chosen, drawn
from tests.test_attacks import groups

ROOT = Path(__file__).parents[3]
NAMES = [f"attack {number}" for number in range(20)]


@pytest.mark.parametrize(("num_members", "expected"), [(1, 1), (2, 2), (5, 2), (6, 3), (20, 6)])
def test_one_of_a_family_and_a_quarter_of_the_rest_are_drawn(num_members, expected):
    found = drawn(NAMES[:num_members], "4fd19e9")
    assert len(found) == expected
    assert found <= set(NAMES[:num_members])


def test_a_commit_draws_the_same_ones_in_any_order_and_others_draw_others():
    assert drawn(NAMES, "4fd19e9") == drawn(reversed(NAMES), "4fd19e9")
    assert len({drawn(NAMES, str(number)) for number in range(20)}) > 10


def test_some_tens_of_commits_draw_all():
    assert set().union(*(drawn(NAMES, str(number)) for number in range(40))) == set(NAMES)


def test_a_draw_is_the_commit_or_what_is_named():
    assert chosen("all") is None
    assert chosen("7") == "7"
    assert chosen("commit") == chosen("commit") not in ("", "commit")


def test_a_file_is_run_by_one_process_and_programs_by_several():
    programs = groups()
    assert len(set(programs.values())) > 6
    assert group_of("tests/a.py::test_b[1-x]", programs) == "tests/a.py"
    assert group_of("tests/a.py::test_c", programs) == "tests/a.py"
    found = {
        group_of(f"tests/test_attacks.py::{test}[no_gradient]", programs)
        for test in ("test_an_attack_is_named", "test_an_attack_that_is_no_error_gains_nothing")
    }
    assert found == {f"tests/test_attacks.py {programs['no_gradient']}"}


CLOCK = """
import pytest
from tests import attempts

attempts.PAUSE_S = 0.0
measured = []


@pytest.fixture(scope="module")
def measurement():
    measured.append(None)
    return len(measured)


@pytest.mark.times
def test_is_settled_at_the_second_attempt(measurement):
    assert measurement == 2


@pytest.mark.times
def test_is_never_settled(measurement):
    assert measurement < 0


def test_asks_no_clock(measurement):
    assert measurement == 4
    raise AssertionError("once")
"""


def test_what_asks_a_clock_is_run_three_times_with_new_fixtures(tmp_path):
    (tmp_path / "test_clock.py").write_text(CLOCK)
    words = ("-c", "/dev/null", "--rootdir", tmp_path, "-p", "tests.attempts", "-p", "no:xdist")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, words), "-p", "no:cacheprovider", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 1 passed" in done.stdout
    assert "assert 4 < 0" in done.stdout
    assert "AssertionError: once" in done.stdout
