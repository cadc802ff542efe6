"""Answer a command's author: with a reaction, and with one reply where that is not enough.

A reply begins with a hidden line that names the comment, so that a restarted run answers no comment
twice. It shows the command as code. Of a report it contains only names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.command import Command
from cudal1_ci.github.comment_event import Asked
from cudal1_ci.github.marker import Comment
from cudal1_ci.github.posts import Post
from cudal1_ci.render.markup import code

Reaction = Literal["eyes", "rocket", "confused"]
"""Seen and begun; done; not done."""

HELP = """\
| comment | effect |
| :-- | :-- |
| `/cudal1 run` | Measures the head of this pull request again. |
| `/cudal1 optimize [glob]` | Searches for faster code; posts a comment of its own. |
| `/cudal1 apply <id>` | Opens a draft pull request with a proposal into this branch. |
| `/cudal1 ack <target> <reason>` | Accepts the measured slowdown of a target here. |
| `/cudal1 skip` | Stops measuring later pushes (label `cudal1:skip`). |
| `/cudal1 help` | Shows this list. |

Write a command on a line of its own; you need write access. It may end with the full sha of the
head (`ack`: after the target), so that there is no doubt which commit you mean.
"""
FIXES = {
    "run": (
        "the job needs `actions: write`, and the default branch `cudal1-ci-on-request.yml`; a run "
        "can be started again for a month, once it has ended"
    ),
    "optimize": "the job needs `actions: write`, and the default branch `cudal1-ci-on-request.yml`",
    "apply": (
        "the job needs `contents: write`, and the settings (Actions, General) have to allow GitHub "
        "Actions to create pull requests"
    ),
    "skip": "the label `cudal1:skip` has to be there already, or the job needs `issues: write`",
    "ack": "the job needs `checks: write` and `pull-requests: write`",
}
"""What may be missing when GitHub refuses a request (docs/commands.md)."""


def reacted(repository: str, asked: Asked, reaction: Reaction) -> Post:
    """Build a reaction to the comment."""
    kind = "pulls" if asked.is_in_review else "issues"
    path = f"/repos/{repository}/{kind}/comments/{asked.comment_id}/reactions"
    return Post(method="POST", path=path, payload={"content": reaction})


def replied(repository: str, asked: Asked, command: Command, text: str) -> Post:
    """Build a reply on the pull request, in the thread of the command."""
    body = f"{_mark(asked)}\n{code(command.text)}: {text}"
    path = f"/repos/{repository}/issues/{asked.number}/comments"
    if asked.is_in_review:
        path = f"/repos/{repository}/pulls/{asked.number}/comments/{asked.comment_id}/replies"
    return Post(method="POST", path=path, payload={"body": body})


def is_replied(comments: Iterable[Comment], asked: Asked, login: str | None) -> bool:
    """Return whether an earlier run has replied to this comment."""
    return any(c.author == login and c.body.startswith(_mark(asked)) for c in comments)


def refused_text(verb: str | None, refusal: Refusal) -> str:
    """Return the reply's text for a request that was refused."""
    if refusal.status is None:  # made by us, without a request to GitHub
        return f"{code(refusal, 400)}."
    fix = FIXES.get(verb or "")
    return f"GitHub refused: {code(refusal, 400)}." + (f" Perhaps {fix}." if fix else "")


def _mark(asked: Asked) -> str:
    return f"<!-- cudal1-ci:v1 reply={asked.comment_id} -->"
