"""Carrying a plan out: summaries that fit, and errands that do not stop one another."""

from __future__ import annotations

import pytest

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.answer import Made, Refusal
from cudal1_ci.github.posts import Errand, Plan, Post
from cudal1_ci.github.publication import MAX_SUMMARY_BYTES, carry_out, printed, write_summary


class Forge:
    """Takes what it is sent, but for paths that it refuses."""

    def __init__(self, **refused: Refusal) -> None:
        self.refused = refused
        self.sent: list[tuple[str, int | None]] = []

    def send(self, post: Post, first_id: int | None = None) -> Made:
        self.sent.append((post.path, first_id))
        if post.path in self.refused:
            raise self.refused[post.path]
        return Made(id=41, url="https://x")


def a_post(path: str) -> Post:
    return Post(method="POST", path=path, payload={"body": f"to {path}"})


PLAN = Plan(
    errands=(
        Errand(what="check run", posts=(a_post("a"), a_post("b"))),
        Errand(what="comment", posts=(a_post("c"),)),
        Errand(what="suggestions", posts=(a_post("d"),), singly=(a_post("e"), a_post("f"))),
    )
)
READ_ONLY = Refusal("403 Resource not accessible by integration", 403)
UNPROCESSABLE = Refusal("422 Unprocessable Entity", 422)


def carried_out(forge: Forge):
    told: list[str] = []
    noticed: list[str] = []
    return carry_out(PLAN, forge, told.append, noticed.append), told, noticed


def test_the_requests_of_an_errand_know_what_its_first_has_made():
    forge = Forge()
    made, _, noticed = carried_out(forge)
    assert forge.sent == [("a", None), ("b", 41), ("c", None), ("d", None)]
    assert [what for what, _ in made] == ["check run", "comment", "suggestions"]
    assert not noticed


def test_an_errand_ends_at_its_first_refusal_and_the_others_go_on():
    forge = Forge(a=Refusal("500 broken", 500), c=READ_ONLY)
    with pytest.raises(ForgeError, match=r"the check run \(500 broken\)") as caught:
        carried_out(forge)
    assert "comment" not in str(caught.value)
    assert [path for path, _ in forge.sent] == ["a", "c", "d"]


def test_a_token_that_may_only_read_is_a_notice():
    made, _, (notice,) = carried_out(Forge(a=READ_ONLY, c=READ_ONLY, d=READ_ONLY))
    assert made == []
    assert "check run, comment, suggestions" in notice


def test_suggestions_are_tried_singly_only_where_their_contents_were_refused():
    forge = Forge(d=UNPROCESSABLE, e=UNPROCESSABLE)
    _, (told,), _ = carried_out(forge)
    assert [path for path, _ in forge.sent][-3:] == ["d", "e", "f"]
    assert "dropped one" in told
    with pytest.raises(ForgeError, match="the suggestions"):
        carried_out(Forge(d=Refusal("404 Not Found", 404)))


def test_requests_that_are_one_anothers_equals_are_each_tried():
    on_files = Errand(what="comments on files", singly=(a_post("g"), a_post("h")))
    forge, told = Forge(g=UNPROCESSABLE), list[str]()
    carry_out(Plan(errands=(on_files,)), forge, told.append, told.append)
    assert [path for path, _ in forge.sent] == ["g", "h"]
    assert len(told) == 1
    assert printed(Plan(errands=(on_files,))).count("=== comments on files: POST ") == 2


def test_comments_are_printed_as_they_would_be_read():
    assert printed(Plan(errands=PLAN.errands[1:2])) == "=== comment: POST c\nto c\n"


@pytest.mark.parametrize(
    ("used", "size", "is_whole"),
    [(0, 100, True), (0, MAX_SUMMARY_BYTES, False), (MAX_SUMMARY_BYTES - 90, 100, False)],
)
def test_a_summary_that_github_would_drop_is_the_shorter_one(tmp_path, used, size, is_whole):
    path = tmp_path / "summary.md"
    path.write_text("x" * used)
    text = "é" * (size // 2)
    write_summary(path, text, "short")
    assert path.read_text() == "x" * used + (text if is_whole else "short") + "\n"
    assert path.stat().st_size <= MAX_SUMMARY_BYTES


def test_a_summary_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ForgeError, match="GITHUB_STEP_SUMMARY"):
        write_summary(tmp_path, "text", "short")
