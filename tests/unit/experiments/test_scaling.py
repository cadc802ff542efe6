"""What the rate of some seats is of."""

from __future__ import annotations

import pytest


def test_what_was_judged_before_all_seats_were_there_is_not_counted(experiment_module):
    rate = experiment_module("scaling").rate
    assert rate([11.0, 12.0, 13.0, 14.0], 10.0) == (4.0, 3600)
    assert rate([9.0, 9.5, 10.0, 11.0, 12.0, 13.0, 14.0], 10.0) == (4.0, 3600)
    for there_s in (None, 20.0):
        with pytest.raises(SystemExit, match="more candidates"):
            rate([11.0], there_s)
