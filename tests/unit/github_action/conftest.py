from __future__ import annotations

import pytest

from tests.unit.github_action.jobs import Job


@pytest.fixture
def job(tmp_path) -> Job:
    return Job(tmp_path)
