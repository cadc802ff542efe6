"""Fixtures of the tests that attack."""

from tests.integration.conftest import served as served
