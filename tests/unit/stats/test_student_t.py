"""Our quantiles of Student's t against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit

from cudal1_ci.stats.student_t import MAX_SUMMED, quantile

PROBABILITIES = (*np.linspace(0.5, 0.95, 10), 0.975, 1 - 0.05 / 6, 0.99, 0.995, 0.999, 0.9995)


@pytest.mark.parametrize(
    "degrees_of_freedom",
    [range(1, 201), (MAX_SUMMED - 1, MAX_SUMMED, MAX_SUMMED + 1), (10**4, 10**5, 10**6)],
    ids=["few", "where the method changes", "many"],
)
def test_quantiles_are_those_of_scipy(degrees_of_freedom):
    expected = stdtrit(np.array(degrees_of_freedom)[:, None], np.array(PROBABILITIES))
    ours = [[quantile(n, float(p)) for p in PROBABILITIES] for n in degrees_of_freedom]
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("degrees_of_freedom", [1, 4, 5, 2 * MAX_SUMMED])
def test_the_distribution_is_symmetric(degrees_of_freedom):
    for probability in (0.0005, 0.025, 0.3):
        upper = quantile(degrees_of_freedom, 1 - probability)
        assert quantile(degrees_of_freedom, probability) == pytest.approx(-upper, rel=1e-9)


def test_quantiles_of_a_table():
    assert quantile(4, 0.975) == pytest.approx(2.776445105)
    assert quantile(1, 0.75) == pytest.approx(1.0)
