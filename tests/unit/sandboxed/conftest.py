"""What tests of the verifier's rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cudal1_ci.sandboxed.forkserver.client import Template
from tests.templates import start_template


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """A process of which runners are forked, outside of any sandbox."""
    started = start_template()
    yield started
    started.close()
