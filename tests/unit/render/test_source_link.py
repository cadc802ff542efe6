"""Links to lines: of one repository at one commit, whatever the path says."""

from __future__ import annotations

import pytest

from cudal1_ci.render.source_link import source_link

SHA = "5f3c2a9d41"
HERE = "https://github.com/acme/former"


@pytest.mark.parametrize(
    ("folder", "path", "lines", "link"),
    [
        (".", "pkg/a.py", (3, 9), f"{HERE}/blob/{SHA}/pkg/a.py#L3-L9"),
        ("packages/a b", "pkg/a.py", (3, 3), f"{HERE}/blob/{SHA}/packages/a%20b/pkg/a.py#L3"),
        (".", "a)b](c.py", (1, 1), f"{HERE}/blob/{SHA}/a%29b%5D%28c.py#L1"),
        (".", "../../../evil/x.py", (1, 1), None),
        ("..", "x.py", (1, 1), None),
        (".", "/etc/x.py", (1, 1), None),
    ],
)
def test_a_link_stays_in_the_repository(folder, path, lines, link):
    assert source_link(HERE, SHA, folder, path, *lines) == link


@pytest.mark.parametrize(("address", "sha"), [(None, SHA), (HERE, None), (HERE, "main/../x")])
def test_without_an_address_or_a_commit_there_is_no_link(address, sha):
    assert source_link(address, sha, ".", "a.py", 1, 1) is None
