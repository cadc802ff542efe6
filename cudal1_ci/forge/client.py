"""GitHub by way of PyGithub: what is there, and the requests of a plan. Decides nothing.

The token comes from the environment of the command and stays in here. Nothing of a report is part
of an address: those are made of the run's event and of numbers that GitHub gave.

    with_token(token, occasion, tell).known(wants_diff=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from github import Auth, Github
from github.IssueComment import IssueComment
from github.PullRequest import PullRequest
from github.PullRequestComment import PullRequestComment

from cudal1_ci.forge.answer import Made, Refusal
from cudal1_ci.forge.check import CHECK_NAME, external_id
from cudal1_ci.forge.event import Occasion
from cudal1_ci.forge.marker import Comment
from cudal1_ci.forge.pace import Patience
from cudal1_ci.forge.plan import Known, Post, Pull

SECONDS_BETWEEN_WRITES = 1.0
"""What GitHub asks of those who write more than once."""
TIMEOUT_S = 30
ACTIONS_LOGIN = "github-actions[bot]"
"""Who the token of a workflow is; asked for its user, it is refused."""

T = TypeVar("T")


class Client:
    """A repository on GitHub, as one run of a workflow sees it."""

    def __init__(self, github: Github, occasion: Occasion, patience: Patience) -> None:
        self._github = github
        self._occasion = occasion
        self._patience = patience

    def known(self, *, wants_diff: bool) -> Known:
        """What is there already.

        Raises:
            Refusal: GitHub does not say.
        """
        login = self._login()
        pull = self._pull(wants_diff=wants_diff)
        return Known(login=login, pull=pull, check_id=self.started_check())

    def started_check(self) -> int | None:
        """The check run that this run has started and not completed.

        Raises:
            Refusal: GitHub does not say.
        """
        occasion = self._occasion
        path = f"/repos/{occasion.repository}/commits/{occasion.head_sha}/check-runs"
        query = {"check_name": CHECK_NAME, "status": "in_progress", "filter": "all"}

        def request() -> object:
            return self._github.requester.requestJsonAndCheck("GET", path, parameters=query)[1]

        try:
            answer = self._read(request)
        except Refusal as refusal:
            if refusal.is_read_only:
                return None
            raise
        runs = answer.get("check_runs", []) if isinstance(answer, dict) else []
        ours = external_id(occasion)
        return next(
            (
                run["id"]
                for run in runs
                if run.get("external_id") == ours and run.get("status") == "in_progress"
            ),
            None,
        )

    def send(self, post: Post, first_id: int | None = None) -> Made:
        """Make a request of a plan; `first_id` is for the `{id}` in its path.

        Raises:
            Refusal: It was not done.
        """
        path = post.path.replace("{id}", str(first_id))

        def request() -> object:
            return self._github.requester.requestJsonAndCheck(
                post.method, path, input=post.payload
            )[1]

        # Text that replaces text may be sent again; annotations would be there twice.
        is_repeatable = post.method == "PATCH" and "output" not in post.payload
        answer = self._patience.ask(request, is_repeatable=is_repeatable)
        if not isinstance(answer, dict):
            return Made()
        number, url = answer.get("id"), answer.get("html_url")
        return Made(
            id=number if isinstance(number, int) else None,
            url=url if isinstance(url, str) else None,
        )

    def _read(self, request: Callable[[], T]) -> T:
        return self._patience.ask(request, is_repeatable=True)

    def _login(self) -> str:
        try:
            return self._read(lambda: self._github.get_user().login)
        except Refusal as refusal:
            if refusal.is_read_only or refusal.status == 404:
                return ACTIONS_LOGIN
            raise

    def _pull(self, *, wants_diff: bool) -> Pull | None:
        repository = self._github.get_repo(self._occasion.repository)
        number = self._occasion.number
        if number is None:
            number = self._looked_up()
        if number is None:
            return None
        pull = repository.get_pull(number)
        head_sha, is_open = self._read(lambda: (pull.head.sha, pull.state == "open"))
        if head_sha != self._occasion.head_sha:
            return Pull(number=number, head_sha=head_sha, is_open=is_open)
        return Pull(
            number=number,
            head_sha=head_sha,
            is_open=is_open,
            comments=self._comments(pull.get_issue_comments),
            review_comments=self._comments(pull.get_review_comments) if wants_diff else (),
            diff=self._diff(pull) if wants_diff else {},
        )

    def _looked_up(self) -> int | None:
        """The one open pull request of the branch whose head is the run's commit."""
        occasion = self._occasion
        if not occasion.is_looked_up or occasion.head_repository is None:
            return None
        repository = self._github.get_repo(occasion.repository)
        owner = occasion.head_repository.partition("/")[0]
        head = f"{owner}:{occasion.head_branch}"

        def request() -> list[int]:
            return [
                pull.number
                for pull in repository.get_pulls(state="open", head=head)
                if pull.head.sha == occasion.head_sha
                and pull.head.repo is not None
                and pull.head.repo.full_name == occasion.head_repository
            ]

        numbers = self._read(request)
        return numbers[0] if len(numbers) == 1 else None

    def _comments(
        self, listed: Callable[[], Iterable[IssueComment | PullRequestComment]]
    ) -> tuple[Comment, ...]:
        def request() -> tuple[Comment, ...]:
            return tuple(
                Comment(id=c.id, author=c.user.login if c.user else "", body=c.body or "")
                for c in listed()
            )

        return self._read(request)

    def _diff(self, pull: PullRequest) -> dict[str, str]:
        """Files that are binary or too large have no hunks."""
        return self._read(lambda: {f.filename: f.patch for f in pull.get_files() if f.patch})


def with_token(token: str, occasion: Occasion, tell: Callable[[str], None]) -> Client:
    """GitHub for whom the token stands."""
    github = Github(
        base_url=occasion.api_url,
        auth=Auth.Token(token),
        timeout=TIMEOUT_S,
        per_page=100,
        retry=None,  # `pace` knows how long to wait
        seconds_between_requests=0,
        seconds_between_writes=SECONDS_BETWEEN_WRITES,
        lazy=True,  # nothing is asked before it is needed
    )
    return Client(github, occasion, Patience(tell))
