"""A patch that becomes a draft pull request on a GitHub on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from cudal1_ci.github import client
from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.branches import Proposed, open_pull
from cudal1_ci.github.client import Client, with_token
from cudal1_ci.github.event import Occasion
from tests.github_fake import TOKEN, GitHub
from tests.reports import HEAD, MODEL, PATCH

TEXT = "\n".join(MODEL) + "\n"
FASTER = "--- /dev/null\n+++ b/pkg/kernels/new.py\n@@ -0,0 +1,1 @@\n+x = 1\n"
FILES = {
    "pkg/model.py": ("100755", TEXT),
    "README.md": ("100644", "read\n"),
    "link.py": ("120000", "pkg/model.py"),
    "folder": ("120000", "pkg"),
}
CHANGE = Proposed(
    patch=PATCH + FASTER,
    base_sha=HEAD,
    base_branch="feature",
    branch="cudal1-ci/apply-1",
    title="Faster pool",
    body="Of #7.",
)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(client, "SECONDS_BETWEEN_WRITES", 0)


@pytest.fixture
def github(served) -> Iterator[GitHub]:
    with served(GitHub()) as fake:
        fake.git.put("feature", FILES, HEAD)
        yield fake


@pytest.fixture
def us(github) -> Client:
    run = Occasion(
        event="schedule",
        repository="o/r",
        head_sha=HEAD,
        run_id=1,
        api_url=github.url,
        server_url="https://github.com",
    )
    return with_token(TOKEN, run, print)


def changed(**fields) -> Proposed:
    return msgspec.structs.replace(CHANGE, **fields)


def test_all_files_are_one_commit_on_the_commit_that_was_judged(github, us):
    made = open_pull(us, CHANGE)
    pull = github.pulls[made.id]
    assert (pull["draft"], pull["base"]["ref"], pull["title"]) == (True, "feature", "Faster pool")
    assert made.url == f"https://github.com/o/r/pull/{made.id}"
    sha = github.git.branches["cudal1-ci/apply-1"]
    assert github.git.commits[sha]["parents"] == [{"sha": HEAD}]
    files = github.git.files_of(sha)
    assert files["pkg/kernels/new.py"] == ("100644", "x = 1\n")
    mode, text = files["pkg/model.py"]
    assert (mode, "weight.unsqueeze(1) * x" in text) == ("100755", True), "the mode stays"
    assert {path: files[path] for path in ("README.md", "link.py")} == {
        path: FILES[path] for path in ("README.md", "link.py")
    }
    assert len([w for w in github.writes if w.path.endswith("/git/commits")]) == 1


def test_the_second_time_the_first_pull_request_is_found_also_a_closed_one(github, us):
    made = open_pull(us, CHANGE)
    writes = len(github.writes)
    assert open_pull(us, CHANGE) == made
    github.pulls[made.id]["state"] = "closed"
    assert open_pull(us, CHANGE) == made
    assert len(github.writes) == writes


def test_a_branch_that_an_attempt_has_left_is_taken_up(github, us):
    github.refuse("POST", "/pulls$", 403, "GitHub Actions is not permitted to create pull requests")
    with pytest.raises(Refusal, match="not permitted"):
        open_pull(us, CHANGE)
    made = open_pull(us, CHANGE)
    assert github.pulls[made.id]["head"]["ref"] == "cudal1-ci/apply-1"


def test_a_branch_of_that_name_with_something_else_is_left_alone(github, us):
    github.git.put("cudal1-ci/apply-1", FILES, "9" * 40)
    with pytest.raises(Refusal, match="holds something else"):
        open_pull(us, CHANGE)
    assert github.git.branches["cudal1-ci/apply-1"] == "9" * 40
    assert not github.pulls


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"patch": PATCH.replace("scale @ x", "scale @ y")}, "differs from the patch"),
        ({"patch": PATCH.replace("pkg/model.py", "link.py")}, "found a link"),
        ({"patch": PATCH.replace("pkg/model.py", "folder/model.py")}, "found a link"),
        ({"patch": PATCH.replace("pkg/model.py", "pkg")}, "a folder"),
        ({"patch": PATCH.replace("pkg/model.py", "pkg/gone.py")}, "is not there"),
        ({"patch": FASTER.replace("pkg/kernels/new.py", ".github/x.yml")}, "people alone"),
        ({"patch": FASTER.replace("pkg/kernels/new.py", "README.md")}, "there already"),
        ({"branch": "--force"}, "name of a branch"),
        ({"branch": "a/../b"}, "name of a branch"),
        ({"base_sha": "3" * 40}, "404"),
    ],
)
def test_a_patch_that_does_not_fit_or_goes_too_far_makes_nothing(github, us, fields, why):
    with pytest.raises(Refusal, match=why):
        open_pull(us, changed(**fields))
    assert not [w for w in github.writes if not w.path.endswith("/git/trees")]
    assert set(github.git.branches) == {"feature"}


def test_a_token_that_may_only_read_makes_nothing(github, us):
    github.may_write = False
    with pytest.raises(Refusal) as refused:
        open_pull(us, CHANGE)
    assert refused.value.is_read_only
