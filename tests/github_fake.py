"""A small GitHub on this machine: what `publish` asks of the real one, with a state.

It answers over HTTP, keeps comments, check runs and reviews, and refuses what GitHub refuses: a
token that is none (401) or may only read (403), bodies of more than 65,536 characters, more than 50
annotations, a completed check run without a conclusion, review comments on lines outside of the
diff (422, and the whole review is lost), inputs that a workflow does not declare, a second pull
request of one branch. `refuse` makes the next matching request fail. What is in git is kept by
`github_git`. Its clock goes on by a second with every write.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests import github_answers as full
from tests.github_git import GitData, Refused

TOKEN = "a-token-that-must-not-be-seen"
ACTIONS = "github-actions[bot]"
REPOSITORY = "o/r"
MAIN = {"full_name": REPOSITORY, "default_branch": "main"}
MAX_BODY = 65_536
PAGE = 30
READ_ONLY = "Resource not accessible by integration"

Answer = tuple[int, Any]


@dataclass(frozen=True)
class Cut:
    """A body that is no JSON, or one of which a part alone arrives before the line is cut."""

    value: Any = ""
    keeps: float = 1.0


@dataclass
class Request:
    """What came in, as it came."""

    method: str
    path: str
    body: str

    @property
    def payload(self) -> Any:
        return json.loads(self.body)


@dataclass
class GitHub:
    """The state, and how it answers."""

    login: str | None = None
    """Of a token of a person; None is that of a workflow, which may not ask who it is."""
    may_write: bool = True
    url: str = ""
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    files: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Those that are no pull requests; both have their numbers from one series."""
    default_branch: str = "main"
    may_open_pulls: bool = True
    """As a repository's settings say of Actions; it is off in a new one."""
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    review_comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    checks: dict[int, dict[str, Any]] = field(default_factory=dict)
    runs: dict[int, str] = field(default_factory=dict)
    """Status of runs of workflows."""
    run_events: dict[int, str] = field(default_factory=dict)
    """Events that started them; `pull_request` where none is named."""
    contents: dict[tuple[str, str], str] = field(default_factory=dict)
    """Texts of files, by commit and path."""
    requests: list[Request] = field(default_factory=list)
    refusals: list[tuple[str, str, Refused]] = field(default_factory=list)
    git: GitData = field(default_factory=GitData)
    permissions: dict[str, str] = field(default_factory=dict)
    """Of people, by login; everybody else may read."""
    suites: dict[str, list[datetime]] = field(default_factory=dict)
    """When the check suites of a commit were made."""
    workflows: dict[str, set[str]] = field(default_factory=dict)
    """Inputs of `workflow_dispatch` in the files of the default branch."""
    dispatched: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    run_again_ids: list[int] = field(default_factory=list)
    """Runs that were started again."""
    labels: dict[int, list[str]] = field(default_factory=dict)
    reactions: dict[int, list[str]] = field(default_factory=dict)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    _last_id: int = 0

    @property
    def author(self) -> str:
        return self.login or ACTIONS

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.method != "GET"]

    def add_pull(self, number: int, sha: str, repository: str = REPOSITORY, **more: Any) -> None:
        repo = {"full_name": repository}
        self.suites.setdefault(sha, [self.now])
        self.pulls[number] = {
            "number": number,
            "state": "open",
            "head": {"sha": sha, "ref": "feature", "repo": repo},
            "base": {"sha": "b" * 40, "ref": "main", "repo": MAIN},
            **more,
        }

    def push(self, number: int, sha: str) -> None:
        """A commit that GitHub has not seen before, or has: then its suite is as old as it was."""
        self.pulls[number]["head"]["sha"] = sha
        self.suites.setdefault(sha, [self.tick()])

    def tick(self, seconds: int = 1) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    @property
    def stamp(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def add_comment(self, number: int, body: str, author: str) -> int:
        return int(self._comment(number, body, author)["id"])

    def refuse(self, method: str, path: str, status: int, message: str, **headers: str) -> None:
        """Let the next request of this kind fail; headers are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.refusals.append((method, path, Refused(status, message, named)))

    # --- answering ---------------------------------------------------------------------------

    def answer(self, request: Request, query: dict[str, str], token: str) -> Answer:
        self.requests.append(request)
        if token != f"token {TOKEN}":
            raise Refused(401, "Bad credentials")
        for i, (method, path, refused) in enumerate(self.refusals):
            if method == request.method and re.search(path, request.path):
                del self.refusals[i]
                raise refused
        if request.method != "GET" and not self.may_write:
            raise Refused(403, READ_ONLY)
        if request.method != "GET":
            self.tick()
        for method, pattern, handler in ROUTES:
            found = re.fullmatch(pattern.replace("R", f"/repos/{REPOSITORY}", 1), request.path)
            if method == request.method and found:
                given = query if method == "GET" else request.payload
                return handler(self, given, *found.groups())
        raise Refused(404, "Not Found")

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def get_user(self, query: dict[str, str]) -> Answer:
        if self.login is None:
            raise Refused(403, READ_ONLY)
        return 200, full.account(self.url, self.login)

    def list_pulls(self, query: dict[str, str]) -> Answer:
        def matches(pull: dict[str, Any]) -> bool:
            owner = pull["head"]["repo"]["full_name"].partition("/")[0]
            head = f"{owner}:{pull['head']['ref']}"
            return (
                query["state"] in (pull["state"], "all")
                and query.get("head", head) == head
                and query.get("base", pull["base"]["ref"]) == pull["base"]["ref"]
            )

        found = [pull for pull in self.pulls.values() if matches(pull)]
        return 200, [full.pull(self.url, REPOSITORY, pull) for pull in found]

    def get_pull(self, query: dict[str, str], number: str) -> Answer:
        return 200, full.pull(self.url, REPOSITORY, self._pull(number))

    def list_files(self, query: dict[str, str], number: str) -> Answer:
        files = self.files.get(int(number), [])
        return 200, [full.file(self.url, REPOSITORY, file) for file in files]

    def list_comments(self, query: dict[str, str], number: str) -> Answer:
        found = [c for c in self.comments.values() if c["issue"] == int(number)]
        return 200, [full.issue_comment(self.url, REPOSITORY, one) for one in found]

    def list_review_comments(self, query: dict[str, str], number: str) -> Answer:
        found = [c for c in self.review_comments.values() if c["pull"] == int(number)]
        return 200, [full.review_comment(self.url, REPOSITORY, one) for one in found]

    def list_checks(self, query: dict[str, str], sha: str) -> Answer:
        found = [
            check
            for check in self.checks.values()
            if check["head_sha"] == sha
            and query.get("check_name", check["name"]) == check["name"]
            and query.get("status", check["status"]) == check["status"]
        ]
        runs = [full.check_run(self.url, REPOSITORY, check) for check in found]
        return 200, {"total_count": len(runs), "check_runs": runs}

    def get_contents(self, query: dict[str, str], path: str) -> Answer:
        text = self.contents.get((query.get("ref", "main"), unquote(path)))
        if text is None:
            raise Refused(404, "Not Found")
        return 200, full.contents(self.url, REPOSITORY, unquote(path), text)

    def get_run(self, query: dict[str, str], number: str) -> Answer:
        if int(number) not in self.runs:
            raise Refused(404, "Not Found")
        event = self.run_events.get(int(number), "pull_request")
        run = {"id": int(number), "status": self.runs[int(number)], "event": event}
        return 200, full.workflow_run(self.url, REPOSITORY, run)

    def create_comment(self, given: dict[str, Any], number: str) -> Answer:
        if int(number) not in self.issues:
            self._pull(number)
        _expect(given, {"body"})
        comment = self._comment(int(number), _body(given), self.author)
        return 201, full.issue_comment(self.url, REPOSITORY, comment)

    def edit_comment(self, given: dict[str, Any], number: str) -> Answer:
        comment = self.comments.get(int(number))
        if comment is None:
            raise Refused(404, "Not Found")
        if comment["user"]["login"] != self.author:
            raise Refused(403, "Must have admin rights to Repository.")
        _expect(given, {"body"})
        comment |= {"body": _body(given), "updated_at": self.stamp}
        return 200, full.issue_comment(self.url, REPOSITORY, comment)

    def create_check(self, given: dict[str, Any]) -> Answer:
        _expect(given, {"name", "head_sha", "status"}, CHECK_FIELDS)
        number = self._next_id()
        self.checks[number] = {"id": number, "notes": []}
        try:
            return 201, self._updated(number, given)
        except Refused:
            del self.checks[number]
            raise

    def edit_check(self, given: dict[str, Any], number: str) -> Answer:
        if int(number) not in self.checks:
            raise Refused(404, "Not Found")
        _expect(given, set(), CHECK_FIELDS - {"head_sha"})
        return 200, self._updated(int(number), given)

    def create_review(self, given: dict[str, Any], number: str) -> Answer:
        _expect(given, {"commit_id", "event", "body"}, {"comments"})
        if given["event"] != "COMMENT" or not given["body"]:
            raise Refused(422, "Unprocessable Entity")
        comments = given.get("comments", [])
        for comment in comments:
            self._check_place(number, comment)
        kept = {"id": self._next_id(), "pull": int(number), "user": {"login": self.author}}
        for comment in comments:
            self._review_comment(int(number), comment)
        said = {name: given[name] for name in ("body", "commit_id")}
        return 200, full.review(self.url, REPOSITORY, {**kept, **said})

    def create_review_comment(self, given: dict[str, Any], number: str) -> Answer:
        comment = {key: value for key, value in given.items() if key != "commit_id"}
        if given.get("subject_type") == "file":
            self._check_file(number, given)
        else:
            self._check_place(number, comment)
        made = self._review_comment(int(number), comment)
        return 201, full.review_comment(self.url, REPOSITORY, made)

    def reply_in_review(self, given: dict[str, Any], number: str, thread: str) -> Answer:
        _expect(given, {"body"})
        root = self.review_comments[int(thread)]
        place = {name: root[name] for name in ("path", "line", "side") if name in root}
        comment = self._review_comment(int(number), {**place, "body": _body(given)})
        return 201, full.review_comment(self.url, REPOSITORY, comment)

    def get_repository(self, query: dict[str, str]) -> Answer:
        said = full.repository(self.url, REPOSITORY)
        return 200, {**said, "default_branch": self.default_branch}

    def list_issues(self, query: dict[str, str]) -> Answer:
        """Issues and pull requests, as GitHub lists both; open ones unless asked for others."""
        pulls = [full.pull_as_issue(self.url, REPOSITORY, one) for one in self.pulls.values()]
        issues = [full.issue(self.url, REPOSITORY, one) for one in self.issues.values()]
        found = [
            each
            for each in (*issues, *pulls)
            if query.get("state", "open") in (each["state"], "all")
            and query.get("creator", each["user"]["login"]) == each["user"]["login"]
        ]
        return 200, sorted(found, key=lambda each: each["number"])

    def create_issue(self, given: dict[str, Any]) -> Answer:
        _expect(given, {"title"}, {"body", "labels"})
        if not given["title"] or len(given["title"]) > 256:
            raise Refused(422, "Validation Failed: title is too long (maximum is 256 characters)")
        number = max([*self.pulls, *self.issues, 200]) + 1
        self.issues[number] = {
            "number": number,
            "id": self._next_id(),
            "title": given["title"],
            "body": _body(given),
            "state": "open",
            "state_reason": None,
            "labels": [{"name": name} for name in given.get("labels", [])],
            "user": {"login": self.author},
        }
        return 201, full.issue(self.url, REPOSITORY, self.issues[number])

    def edit_issue(self, given: dict[str, Any], number: str) -> Answer:
        if int(number) not in self.issues:
            raise Refused(404, "Not Found")
        _expect(given, set(), {"title", "body", "state", "state_reason", "labels"})
        if given.get("state", "open") not in ("open", "closed"):
            raise Refused(422, "Invalid request: state")
        if given.get("state_reason") not in (None, "completed", "not_planned", "reopened"):
            raise Refused(422, "Invalid request: state_reason")
        if "body" in given:
            _body(given)
        self.issues[int(number)] |= given
        return 200, full.issue(self.url, REPOSITORY, self.issues[int(number)])

    def create_pull(self, given: dict[str, Any]) -> Answer:
        _expect(given, {"title", "head", "base"}, {"body", "draft"})
        if not self.may_open_pulls:
            raise Refused(
                403, "GitHub Actions is not permitted to create or approve pull requests."
            )
        if len(given.get("body") or "") > MAX_BODY or len(given["title"]) > 256:
            raise Refused(422, "Validation Failed: body or title is too long")
        heads = self.git.branches
        if given["head"] not in heads or given["base"] not in heads:
            raise Refused(422, "Validation Failed: head or base is no branch")
        if heads[given["head"]] == heads[given["base"]]:
            raise Refused(422, "Validation Failed: No commits between base and head")
        for pull in self.pulls.values():
            if pull["state"] == "open" and pull["head"]["ref"] == given["head"]:
                raise Refused(422, "Validation Failed: A pull request already exists")
        number = max([*self.pulls, *self.issues, 100]) + 1
        self.add_pull(number, heads[given["head"]], user={"login": self.author})
        pull = self.pulls[number]
        pull["head"]["ref"], pull["base"]["ref"] = given["head"], given["base"]
        pull |= {key: given[key] for key in ("title", "body", "draft") if key in given}
        return 201, full.pull(self.url, REPOSITORY, pull)

    def get_permission(self, query: dict[str, str], login: str) -> Answer:
        kept = {"permission": self.permissions.get(login, "read")}
        return 200, full.permission(self.url, login, kept)

    def list_suites(self, query: dict[str, str], sha: str) -> Answer:
        if sha not in self.suites:
            raise Refused(422, f"No commit found for SHA: {sha}")
        made = [time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in self.suites[sha]]
        found = [{"id": i, "head_sha": sha, "created_at": at} for i, at in enumerate(made)]
        suites = [full.check_suite(self.url, REPOSITORY, one) for one in found]
        return 200, {"total_count": len(suites), "check_suites": suites}

    def add_labels(self, given: dict[str, Any], number: str) -> Answer:
        self._pull(number)
        _expect(given, {"labels"})
        self.labels.setdefault(int(number), []).extend(given["labels"])
        return 200, [full.label(self.url, REPOSITORY, name) for name in self.labels[int(number)]]

    def add_reaction(self, given: dict[str, Any], number: str) -> Answer:
        _expect(given, {"content"})
        if given["content"] not in REACTIONS or int(number) not in {
            *self.comments,
            *self.review_comments,
        }:
            raise Refused(422, "Validation Failed")
        self.reactions.setdefault(int(number), []).append(given["content"])
        kept = {"id": self._next_id(), "content": given["content"]}
        return 201, full.reaction(self.url, self.author, kept)

    def dispatch(self, given: dict[str, Any], file: str) -> Answer:
        _expect(given, {"ref"}, {"inputs"})
        if file not in self.workflows:
            raise Refused(404, "Not Found")
        if given["ref"] not in self.git.branches:
            raise Refused(422, f"No ref found for: {given['ref']}")
        inputs = given.get("inputs", {})
        if not inputs.keys() <= self.workflows[file]:
            raise Refused(422, f"Unexpected inputs provided: {sorted(inputs)}")
        if not all(isinstance(value, str) for value in inputs.values()):
            raise Refused(422, "Invalid request: inputs are strings")
        self.dispatched.append((file, inputs))
        return 204, None

    def run_again(self, given: dict[str, Any], number: str) -> Answer:
        _expect(given, set())
        self.run_again_ids.append(int(number))
        return 201, {}

    def get_commit(self, query: dict[str, str], sha: str) -> Answer:
        return 200, full.git_commit(self.url, REPOSITORY, self.git.commit(sha))

    def get_tree(self, query: dict[str, str], sha: str) -> Answer:
        return 200, self.git.tree(sha)

    def get_blob(self, query: dict[str, str], sha: str) -> Answer:
        return 200, full.git_blob(self.url, REPOSITORY, self.git.blob(sha))

    def get_ref(self, query: dict[str, str], name: str) -> Answer:
        return 200, full.git_ref(self.url, REPOSITORY, self.git.ref(name))

    def create_tree(self, given: dict[str, Any]) -> Answer:
        return 201, self.git.create_tree(given)

    def create_commit(self, given: dict[str, Any]) -> Answer:
        return 201, full.git_commit(self.url, REPOSITORY, self.git.create_commit(given))

    def create_ref(self, given: dict[str, Any]) -> Answer:
        return 201, full.git_ref(self.url, REPOSITORY, self.git.create_ref(given))

    # --- state -------------------------------------------------------------------------------

    def _pull(self, number: str) -> dict[str, Any]:
        if int(number) not in self.pulls:
            raise Refused(404, "Not Found")
        return self.pulls[int(number)]

    def _comment(self, issue: int, body: str, author: str) -> dict[str, Any]:
        number = self._next_id()
        self.comments[number] = {
            "id": number,
            "issue": issue,
            "body": body,
            "user": {"login": author},
            "created_at": self.stamp,
            "updated_at": self.stamp,
        }
        return self.comments[number]

    def _review_comment(self, pull: int, comment: dict[str, Any]) -> dict[str, Any]:
        number = self._next_id()
        kept = {"id": number, "pull": pull, "user": {"login": self.author}}
        self.review_comments[number] = {**kept, "updated_at": self.stamp, **comment}
        return self.review_comments[number]

    def _updated(self, number: int, given: dict[str, Any]) -> dict[str, Any]:
        output = given.get("output", {})
        if output:
            _expect(output, {"title", "summary"}, {"annotations", "text"})
        notes = output.get("annotations", [])
        if len(notes) > 50 or len(output.get("summary", "")) > 65_535:
            raise Refused(422, "Invalid request.")
        for note in notes:
            _expect(
                note, {"path", "start_line", "end_line", "annotation_level", "message"}, {"title"}
            )
        if given.get("status") == "completed" and given.get("conclusion") not in CONCLUSIONS:
            raise Refused(422, "Invalid request. A completed check run needs a conclusion.")
        check = self.checks[number]
        check["notes"] = [*check["notes"], *notes]
        check.update(given)
        return full.check_run(self.url, REPOSITORY, check)

    def _check_place(self, number: str, comment: dict[str, Any]) -> None:
        """As GitHub does: all lines inside of one hunk, on the right side."""
        _expect(comment, {"path", "line", "side", "body"}, {"start_line", "start_side"})
        _body(comment)
        lines = range(comment.get("start_line", comment["line"]), comment["line"] + 1)
        for file in self.files.get(int(number), []):
            if file["filename"] == comment["path"] and any(
                set(lines) <= hunk for hunk in right_lines(file["patch"])
            ):
                return
        raise Refused(422, "Unprocessable Entity: line must be part of the diff")

    def _check_file(self, number: str, given: dict[str, Any]) -> None:
        """A comment on a file has no line, and the file is one of the diff."""
        _expect(given, {"commit_id", "path", "subject_type", "body"})
        _body(given)
        if given["path"] not in {file["filename"] for file in self.files.get(int(number), [])}:
            raise Refused(422, "Unprocessable Entity: path must be part of the diff")


CHECK_FIELDS = {
    "name",
    "head_sha",
    "status",
    "external_id",
    "details_url",
    "conclusion",
    "output",
}
REACTIONS = {"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}
CONCLUSIONS = {"success", "failure", "neutral", "cancelled", "skipped", "timed_out"}
ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", "/user", GitHub.get_user),
    ("GET", "R/pulls", GitHub.list_pulls),
    ("GET", r"R/pulls/(\d+)", GitHub.get_pull),
    ("GET", r"R/pulls/(\d+)/files", GitHub.list_files),
    ("GET", r"R/issues/(\d+)/comments", GitHub.list_comments),
    ("GET", r"R/pulls/(\d+)/comments", GitHub.list_review_comments),
    ("GET", r"R/commits/(\w+)/check-runs", GitHub.list_checks),
    ("GET", r"R/contents/(.+)", GitHub.get_contents),
    ("GET", r"R/actions/runs/(\d+)", GitHub.get_run),
    ("POST", r"R/issues/(\d+)/comments", GitHub.create_comment),
    ("PATCH", r"R/issues/comments/(\d+)", GitHub.edit_comment),
    ("POST", "R/check-runs", GitHub.create_check),
    ("PATCH", r"R/check-runs/(\d+)", GitHub.edit_check),
    ("POST", r"R/pulls/(\d+)/reviews", GitHub.create_review),
    ("POST", r"R/pulls/(\d+)/comments", GitHub.create_review_comment),
    ("POST", "R/pulls", GitHub.create_pull),
    ("GET", "R", GitHub.get_repository),
    ("GET", "R/issues", GitHub.list_issues),
    ("POST", "R/issues", GitHub.create_issue),
    ("PATCH", r"R/issues/(\d+)", GitHub.edit_issue),
    ("GET", r"R/collaborators/([\w-]+)/permission", GitHub.get_permission),
    ("GET", r"R/commits/(\w+)/check-suites", GitHub.list_suites),
    ("POST", r"R/issues/(\d+)/labels", GitHub.add_labels),
    ("POST", r"R/issues/comments/(\d+)/reactions", GitHub.add_reaction),
    ("POST", r"R/pulls/comments/(\d+)/reactions", GitHub.add_reaction),
    ("POST", r"R/pulls/(\d+)/comments/(\d+)/replies", GitHub.reply_in_review),
    ("POST", r"R/actions/workflows/([\w.-]+)/dispatches", GitHub.dispatch),
    ("POST", r"R/actions/runs/(\d+)/rerun", GitHub.run_again),
    ("GET", r"R/git/commits/(\w+)", GitHub.get_commit),
    ("GET", r"R/git/trees/(\w+)", GitHub.get_tree),
    ("GET", r"R/git/blobs/(\w+)", GitHub.get_blob),
    ("GET", r"R/git/ref/heads/([\w./-]+)", GitHub.get_ref),
    ("POST", "R/git/trees", GitHub.create_tree),
    ("POST", "R/git/commits", GitHub.create_commit),
    ("POST", "R/git/refs", GitHub.create_ref),
]


def right_lines(patch: str) -> Iterator[set[int]]:
    """The numbers of the lines on the right side of each hunk."""
    lines: set[int] = set()
    number = 0
    for line in patch.split("\n"):
        header = re.match(r"@@ -\d+(?:,\d+)? \+(\d+)", line)
        if header:
            yield lines
            lines, number = set(), int(header[1])
        elif not line.startswith(("-", "\\")):
            lines.add(number)
            number += 1
    yield lines


def _expect(given: Any, needed: set[str], allowed: set[str] | None = None) -> None:
    if not needed <= given.keys() or not given.keys() <= needed | (allowed or set()):
        raise Refused(422, f"Invalid request: {sorted(given)}")


def _body(given: dict[str, Any]) -> str:
    body = given["body"]
    if not isinstance(body, str) or not body or len(body) > MAX_BODY:
        raise Refused(422, "Body is too long (maximum is 65536 characters)")
    return body


class Handler(BaseHTTPRequestHandler):
    """HTTP in front of the state; lists come in pages, as GitHub's do."""

    github: GitHub

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of the base class
        pass

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        request = Request(self.command, parts.path, body)
        headers: dict[str, str] = {}
        try:
            status, given = self.github.answer(
                request, query, self.headers.get("authorization", "")
            )
            if isinstance(given, list):
                page = int(query.get("page", 1))
                size = min(int(query.get("per_page", PAGE)), PAGE)
                if len(given) > page * size:
                    url = f"{self.github.url}{parts.path}?page={page + 1}&per_page={size}"
                    headers["Link"] = f'<{url}>; rel="next"'
                given = given[(page - 1) * size : page * size]
        except Refused as refused:
            status, headers = refused.status, refused.headers
            given = full.refusal(status, refused.message)
        kept = given.keeps if isinstance(given, Cut) else 1.0
        if isinstance(given, Cut):
            given = given.value
        encoded = b"" if status == 204 else json.dumps(given).encode()
        if isinstance(given, str):
            encoded = given.encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded[: int(kept * len(encoded))])
        self.close_connection = self.close_connection or kept < 1


class Server:
    """A port of this machine, and which GitHub answers on it now."""

    def __init__(self) -> None:
        self._handler = type("Bound", (Handler,), {})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def show(self, github: GitHub) -> None:
        self._handler.github = github  # type: ignore[attr-defined]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def serving(github: GitHub) -> Iterator[GitHub]:
    """Answer on a port of this machine."""
    server = Server()
    server.show(github)
    github.url = server.url
    try:
        yield github
    finally:
        server.close()
