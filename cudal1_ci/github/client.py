"""Read from GitHub and make the requests of a plan through PyGithub; decide nothing.

The token comes from the command's environment and stays in here. No part of a report is in an
address: addresses are made from the run's event and from numbers that GitHub gave.

    with_token(token, occasion, tell).known(wants_diff=True)
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import msgspec
from github import Auth, Github
from github.IssueComment import IssueComment
from github.PullRequest import PullRequest
from github.PullRequestComment import PullRequestComment

from cudal1_ci.github.answer import Made, Refusal
from cudal1_ci.github.check import run_of
from cudal1_ci.github.event import Occasion, other_than_default
from cudal1_ci.github.marker import Comment, key_of
from cudal1_ci.github.posts import CheckState, Known, Post, Pull
from cudal1_ci.github.rate_limit import Patience

SECONDS_BETWEEN_WRITES = 1.0
"""GitHub's required pause between writes."""
TIMEOUT_S = 30
ACTIONS_LOGIN = "github-actions[bot]"
"""Login of a workflow's token, for which GitHub refuses to name the user."""

T = TypeVar("T")


class Client:
    """Hold a repository on GitHub, as one run of a workflow sees it."""

    def __init__(self, github: Github, occasion: Occasion, patience: Patience) -> None:
        self._github = github
        self._occasion = occasion
        self._patience = patience

    @property
    def repository(self) -> str:
        """Return `owner/name`."""
        return self._occasion.repository

    def about(self, occasion: Occasion) -> Client:
        """Return a client of the same GitHub, for another commit."""
        return Client(self._github, occasion, self._patience)

    def read(self, path: str, **query: str | int) -> Any:
        """Return GitHub's answer to a path below the repository: `read("pulls", state="open")`.

        Raises:
            Refusal: GitHub does not say.
        """
        whole, given = self._full_path(path), dict(query)
        return self._ask(
            lambda: self._github.requester.requestJsonAndCheck("GET", whole, parameters=given)[1]
        )

    def write(
        self, method: Literal["POST", "PATCH"], path: str, payload: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Make a request below the repository; return its answer, empty where there is none.

        Raises:
            Refusal: It was not done.
        """
        return self._write(Post(method=method, path=self._full_path(path), payload=dict(payload)))

    def login(self) -> str:
        """Return our own login.

        Raises:
            Refusal: GitHub does not say.
        """
        try:
            return self._ask(lambda: self._github.get_user().login)
        except Refusal as refusal:
            if refusal.is_read_only or refusal.status == 404:
                return ACTIONS_LOGIN
            raise

    def known(self, *, wants_diff: bool) -> Known:
        """Return what is already there, but for checks.

        Raises:
            Refusal: GitHub does not say.
        """
        login = self.login()
        queued = self._occasion.queued_number
        return Known(
            login=login,
            pull=self._pull(wants_diff=wants_diff),
            queued=self.comments(queued) if queued is not None else (),
        )

    def checks(self, names: Sequence[str]) -> dict[str, CheckState]:
        """Return what this commit has of the named checks; nothing where that may not be read.

        Raises:
            Refusal: GitHub does not say.
        """
        try:
            return {name: self._check(name) for name in names}
        except Refusal as refusal:
            if refusal.is_read_only:
                return {}
            raise

    def _check(self, name: str) -> CheckState:
        occasion = self._occasion
        answer = self.read(
            f"commits/{occasion.head_sha}/check-runs", check_name=name, filter="all", per_page=100
        )
        runs = answer.get("check_runs", []) if isinstance(answer, dict) else []
        now, key = (occasion.run_id, occasion.attempt), key_of(occasion.workflow)
        known = [(run_of(run.get("external_id") or "", key), run) for run in runs]
        later = [(order, run) for order, run in known if order is not None and order > now]
        newest = max(later, key=lambda pair: pair[0], default=None)
        own = [run for order, run in known if order == now]
        return CheckState(
            started=next((run["id"] for run in own if _is_in_progress(run)), None),
            is_ended=any(not _is_in_progress(run) for run in own),
            later=newest[0][0] if newest and newest[0] else None,
            conclusion=newest[1].get("conclusion") if newest else None,
        )

    def text_at(self, path: str, commit: str | None) -> str | None:
        """Return the text of a file in a commit or the default branch; None where there is none.

        Raises:
            Refusal: GitHub does not say.
        """
        try:
            given = {"ref": commit} if commit else {}
            answer = self.read(f"contents/{quote(path)}", **given)
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise
        content = answer.get("content") if isinstance(answer, dict) else None
        return b64decode(content).decode("utf-8", "replace") if isinstance(content, str) else None

    def send(self, post: Post, first_id: int | None = None) -> Made:
        """Make a request of a plan; `first_id` replaces the `{id}` in its path.

        Raises:
            Refusal: It was not done.
        """
        path = post.path.replace("{id}", str(first_id))
        answer = self._write(Post(method=post.method, path=path, payload=post.payload))
        number, url = answer.get("id"), answer.get("html_url")
        return Made(
            id=number if isinstance(number, int) else None,
            url=url if isinstance(url, str) else None,
        )

    def comments(self, number: int, *, with_reviews: bool = False) -> tuple[Comment, ...]:
        """Return the comments of a pull request, those of its reviews only where asked for.

        Raises:
            Refusal: GitHub does not say.
        """
        repository = self._github.get_repo(self.repository)
        pull = repository.get_pull(number)
        reviews = self._comments(pull.get_review_comments) if with_reviews else ()
        return self._comments(pull.get_issue_comments) + reviews

    def _full_path(self, path: str) -> str:
        return f"/repos/{self.repository}/{path}".rstrip("/")

    def _write(self, post: Post) -> Mapping[str, Any]:
        def request() -> object:
            requester = self._github.requester
            return requester.requestJsonAndCheck(post.method, post.path, input=post.payload)[1]

        # A text that replaces a text may be sent again; annotations would be there twice.
        is_repeatable = post.method == "PATCH" and "output" not in post.payload
        answer = self._patience.ask(request, is_repeatable=is_repeatable)
        return answer if isinstance(answer, dict) else {}

    def _ask(self, request: Callable[[], T]) -> T:
        try:
            return self._patience.ask(request, is_repeatable=True)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = type(error).__name__
            raise Refusal(f"GitHub gave an answer of an unknown shape ({what})") from error

    def _pull(self, *, wants_diff: bool) -> Pull | None:
        repository = self._github.get_repo(self._occasion.repository)
        number = self._occasion.number
        if number is None:
            number = self._find_pull_number()
        if number is None:
            return None
        pull = repository.get_pull(number)
        known = self._ask(
            lambda: Pull(
                number=number,
                head_sha=pull.head.sha,
                base_sha=pull.base.sha,
                into=other_than_default(pull.base.ref, pull.base.repo.default_branch),
                is_open=pull.state == "open",
            )
        )
        if known.head_sha != self._occasion.head_sha:
            return known
        return msgspec.structs.replace(
            known,
            comments=self._comments(pull.get_issue_comments),
            review_comments=self._comments(pull.get_review_comments) if wants_diff else (),
            diff=self._diff(pull) if wants_diff else {},
        )

    def _find_pull_number(self) -> int | None:
        """Return the one open pull request of the branch whose head is the run's commit."""
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

        numbers = self._ask(request)
        return numbers[0] if len(numbers) == 1 else None

    def _comments(
        self, listed: Callable[[], Iterable[IssueComment | PullRequestComment]]
    ) -> tuple[Comment, ...]:
        def request() -> tuple[Comment, ...]:
            return tuple(
                Comment(
                    id=c.id,
                    author=c.user.login if c.user else "",
                    body=c.body or "",
                    updated_at=c.updated_at,
                )
                for c in listed()
            )

        return self._ask(request)

    def _diff(self, pull: PullRequest) -> dict[str, str]:
        """Return the hunks of each file; binary and too large files have none."""
        return self._ask(lambda: {f.filename: f.patch for f in pull.get_files() if f.patch})


def _is_in_progress(run: Mapping[str, Any]) -> bool:
    return run.get("status") != "completed"


def with_token(token: str, occasion: Occasion, tell: Callable[[str], None]) -> Client:
    """Return a client for the token's owner."""
    return Client(github_of(token, occasion.api_url), occasion, Patience(tell))


def github_of(token: str, api_url: str) -> Github:
    return Github(
        base_url=api_url,
        auth=Auth.Token(token),
        timeout=TIMEOUT_S,
        per_page=100,
        retry=None,  # `rate_limit` decides how long to wait
        seconds_between_requests=0,
        seconds_between_writes=SECONDS_BETWEEN_WRITES,
        lazy=True,  # no request is made before it is needed
    )


def open_branch(
    token: str,
    api_url: str,
    repository: str,
    payload: Mapping[str, str],
    tell: Callable[[str], None],
) -> str:
    """Open a pull request of a branch that is there, outside of a workflow; return its address.

    Raises:
        Refusal: It was not done.
    """
    github = github_of(token, api_url)

    def request() -> object:
        path = f"/repos/{repository}/pulls"
        return github.requester.requestJsonAndCheck("POST", path, input=dict(payload))[1]

    answer = Patience(tell).ask(request, is_repeatable=False)
    return str(answer.get("html_url")) if isinstance(answer, dict) else repository
