"""Where a repository can be looked at: from Actions, else from the checkout."""

from __future__ import annotations

import pytest

from cudal1_ci.cli.web_address import web_address
from cudal1_ci.git import run_git


@pytest.mark.parametrize(
    ("server", "name", "address"),
    [
        ("https://github.com", "acme/former", "https://github.com/acme/former"),
        ("https://ghe.example:8443", "acme/former", "https://ghe.example:8443/acme/former"),
        ("https://github.com", "acme/another", None),
        ("javascript:alert(1)//", "acme/former", None),
    ],
)
def test_actions_say_it_of_their_repository(monkeypatch, server, name, address):
    monkeypatch.setenv("GITHUB_SERVER_URL", server)
    monkeypatch.setenv("GITHUB_REPOSITORY", name)
    assert web_address("acme/former") == address


def test_elsewhere_the_remote_of_the_checkout_says_it(monkeypatch, tmp_path):
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert web_address("acme/former") is None
    run_git(tmp_path, "init", "-q")
    run_git(tmp_path, "remote", "add", "origin", "git@example.org:acme/former.git")
    assert web_address("acme/former") == "https://example.org/acme/former"
