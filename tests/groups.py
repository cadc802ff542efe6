"""Which tests one process runs: those of a file, whose fixtures are then set up once; of the many
programs of `test_attacks.py` those of a few references, which are then learned once.

xdist's own groups are of no use: it writes them into the names of tests, which pytest 9.2 does not
let it change.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.test_attacks import groups


class Grouped(LoadScopeScheduling):
    """Give groups to processes in the order of their tests: those that take long come first."""

    def __init__(self, config: pytest.Config, log: object):
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self.groups = groups()

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self.groups)


def group_of(nodeid: str, groups: dict[str, str]) -> str:
    """Return what a test is run with."""
    file, _, name = nodeid.partition("::")
    test, _, program = name.partition("[")
    found = groups.get(program.removesuffix("]"))
    return f"{file} {found}" if test.startswith(("test_an_attack", "test_an_honest")) else file
