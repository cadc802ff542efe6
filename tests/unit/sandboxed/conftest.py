"""What tests of the judge's rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cudal1_ci.processes.local import BOOTSTRAP, SANDBOXED
from cudal1_ci.sandboxed import start
from cudal1_ci.sandboxed.forkserver.client import Template


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """A process of which runners are forked, outside of any sandbox."""
    command = ["-c", BOOTSTRAP, str(SANDBOXED)]
    process, channel = start.start_template(command, 1, "cpu")
    started = Template(process, channel, 2**36)
    yield started
    started.close()
