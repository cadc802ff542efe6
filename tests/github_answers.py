"""What GitHub says of a thing in full, from the little of it that a test cares for.

The fake keeps the little (`github_fake.GitHub`) and answers with the whole, since its answers are
held against GitHub's own description (integration/test_github_contract.py). What is kept goes over
what is filled in.

    issue_comment(github.url, "o/r", {"id": 1, "issue": 7, "body": "...", "user": {...}})
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from urllib.parse import quote

SITE = "https://github.com"
DOCS = "https://docs.github.com/rest"
THEN = "2026-01-02T03:04:05Z"

Thing = dict[str, Any]

_OF_A_USER = (
    *("events", "followers", "following", "gists", "organizations", "received_events"),
    *("repos", "starred", "subscriptions"),
)
_OF_A_REPOSITORY = (
    *("archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits"),
    *("compare", "contents", "contributors", "deployments", "downloads", "events", "forks"),
    *("git_commits", "git_refs", "git_tags", "hooks", "issue_comment", "issue_events", "issues"),
    *("keys", "labels", "languages", "merges", "milestones", "notifications", "pulls", "releases"),
    *("stargazers", "statuses", "subscribers", "subscription", "tags", "teams", "trees"),
)
_ABSENT_OF_A_REPOSITORY = ("description", "homepage", "language", "license", "mirror_url")
_COUNTS_OF_A_REPOSITORY = (
    *("forks", "forks_count", "open_issues", "open_issues_count", "size", "stargazers_count"),
    *("network_count", "subscribers_count", "watchers", "watchers_count"),
)
_ABSENT_OF_A_PULL = ("assignee", "auto_merge", "body", "closed_at", "merge_commit_sha")
_ABSENT_OF_A_PULL += ("merged_at", "merged_by", "milestone", "mergeable")
_COUNTS_OF_A_PULL = ("additions", "changed_files", "comments", "commits", "deletions")
_COUNTS_OF_A_PULL += ("review_comments",)
_ABSENT_OF_AN_ACCOUNT = ("bio", "blog", "company", "email", "hireable", "location", "name")


def refusal(status: int, message: str) -> Thing:
    """Why something was not done."""
    return {"message": message, "documentation_url": DOCS, "status": str(status)}


def user(api: str, login: str) -> Thing:
    """Who wrote something."""
    # Of a bot the name has brackets, which no address has.
    url, site = f"{api}/users/{quote(login)}", f"{SITE}/{quote(login)}"
    return {
        "login": login,
        "id": 1,
        "node_id": "U_1",
        "avatar_url": f"{site}.png",
        "gravatar_id": "",
        "url": url,
        "html_url": site,
        **{f"{word}_url": f"{url}/{word}" for word in _OF_A_USER},
        "type": "Bot" if login.endswith("[bot]") else "User",
        "site_admin": False,
    }


def account(api: str, login: str) -> Thing:
    """Who a token stands for."""
    return {
        **user(api, login),
        "user_view_type": "public",
        **dict.fromkeys(_ABSENT_OF_AN_ACCOUNT),
        **dict.fromkeys(("followers", "following", "public_gists", "public_repos"), 0),
        **dict.fromkeys(("created_at", "updated_at"), THEN),
    }


def repository(api: str, full_name: str) -> Thing:
    """A repository, as it stands in a pull request."""
    owner, _, name = full_name.partition("/")
    url, site = f"{api}/repos/{full_name}", f"{SITE}/{full_name}"
    return {
        "id": 1,
        "node_id": "R_1",
        "name": name,
        "full_name": full_name,
        "owner": user(api, owner),
        "private": False,
        "fork": False,
        "url": url,
        "html_url": site,
        **dict.fromkeys(("clone_url", "git_url", "ssh_url", "svn_url"), f"{site}.git"),
        **{f"{word}_url": f"{url}/{word}" for word in _OF_A_REPOSITORY},
        "default_branch": "main",
        **dict.fromkeys(_ABSENT_OF_A_REPOSITORY),
        **dict.fromkeys(_COUNTS_OF_A_REPOSITORY, 0),
        **{f"has_{word}": True for word in ("downloads", "issues", "projects", "wiki")},
        **dict.fromkeys(("archived", "disabled", "has_discussions", "has_pages"), False),
        **dict.fromkeys(("created_at", "pushed_at", "updated_at"), THEN),
    }


def pull(api: str, own: str, kept: Thing) -> Thing:
    """A pull request; `own` is the repository that it is of."""
    number = kept["number"]
    url, site = f"{api}/repos/{own}/pulls/{number}", f"{SITE}/{own}/pull/{number}"
    issue = f"{api}/repos/{own}/issues/{number}"
    urls = {
        "comments": f"{issue}/comments",
        "commits": f"{url}/commits",
        "issue": issue,
        "review_comment": f"{api}/repos/{own}/pulls/comments{{/number}}",
        "review_comments": f"{url}/comments",
        "statuses": f"{api}/repos/{own}/statuses/{kept['head']['sha']}",
    }
    return {
        "id": number,
        "node_id": f"PR_{number}",
        "title": "A change",
        "labels": [],
        "locked": False,
        "draft": False,
        "author_association": "CONTRIBUTOR",
        **dict.fromkeys(_ABSENT_OF_A_PULL),
        **dict.fromkeys(_COUNTS_OF_A_PULL, 1),
        **dict.fromkeys(("maintainer_can_modify", "merged"), False),
        "mergeable_state": "unknown",
        **dict.fromkeys(("created_at", "updated_at"), THEN),
        **kept,
        "user": user(api, kept.get("user", {"login": "somebody"})["login"]),
        "head": _side(api, kept["head"]),
        "base": _side(api, kept["base"]),
        "url": url,
        "html_url": site,
        "diff_url": f"{site}.diff",
        "patch_url": f"{site}.patch",
        **{f"{word}_url": address for word, address in urls.items()},
        "_links": {
            **{word: {"href": address} for word, address in urls.items()},
            "self": {"href": url},
            "html": {"href": site},
        },
    }


def _side(api: str, kept: Thing) -> Thing:
    if kept["repo"] is None:  # the fork was deleted since
        return {**kept, "label": f"stranger:{kept['ref']}", "user": user(api, "stranger")}
    full_name = kept["repo"]["full_name"]
    owner = full_name.partition("/")[0]
    return {
        **kept,
        "label": f"{owner}:{kept['ref']}",
        "user": user(api, owner),
        "repo": repository(api, full_name),
    }


def file(api: str, own: str, kept: Thing) -> Thing:
    """A file of a diff."""
    name = kept["filename"]
    lines = kept.get("patch", "").splitlines()
    added, removed = (sum(line.startswith(mark) for line in lines) for mark in "+-")
    return {
        "sha": "f" * 40,
        "status": "modified",
        "additions": added,
        "deletions": removed,
        "changes": added + removed,
        "blob_url": f"{SITE}/{own}/blob/head/{name}",
        "raw_url": f"{SITE}/{own}/raw/head/{name}",
        "contents_url": f"{api}/repos/{own}/contents/{name}",
        **kept,
    }


def issue(api: str, own: str, kept: Thing) -> Thing:
    """An issue, or a pull request where issues are listed."""
    number = kept["number"]
    url = f"{api}/repos/{own}/issues/{number}"
    return {
        "id": number,
        "node_id": f"I_{number}",
        "title": "An issue",
        "url": url,
        "repository_url": f"{api}/repos/{own}",
        "html_url": f"{SITE}/{own}/issues/{number}",
        **{f"{word}_url": f"{url}/{word}" for word in ("comments", "events")},
        "labels_url": f"{url}/labels{{/name}}",
        "comments": 0,
        "locked": False,
        "author_association": "NONE",
        **dict.fromkeys(("assignee", "body", "closed_at", "milestone", "state_reason")),
        **dict.fromkeys(("created_at", "updated_at"), THEN),
        **kept,
        "labels": [label(api, own, one["name"]) for one in kept.get("labels", [])],
        "user": user(api, kept["user"]["login"]),
    }


def pull_as_issue(api: str, own: str, kept: Thing) -> Thing:
    """A pull request as GitHub lists it among issues."""
    said = pull(api, own, kept)
    listed = {name: said[name] for name in ("number", "state", "html_url", "title", "body", "user")}
    urls = {name: said[name] for name in ("url", "html_url", "diff_url", "patch_url", "merged_at")}
    return issue(api, own, {**listed, "pull_request": urls})


def issue_comment(api: str, own: str, kept: Thing) -> Thing:
    """A comment of an issue or a pull request."""
    number, issue = kept["id"], kept["issue"]
    return {
        "node_id": f"IC_{number}",
        "url": f"{api}/repos/{own}/issues/comments/{number}",
        "html_url": f"{SITE}/{own}/pull/{issue}#issuecomment-{number}",
        "issue_url": f"{api}/repos/{own}/issues/{issue}",
        "author_association": "NONE",
        **dict.fromkeys(("created_at", "updated_at"), THEN),
        **kept,
        "user": user(api, kept["user"]["login"]),
    }


def review(api: str, own: str, kept: Thing) -> Thing:
    """A review of a pull request, without its comments."""
    number = kept["id"]
    pull_url = f"{api}/repos/{own}/pulls/{kept['pull']}"
    site = f"{SITE}/{own}/pull/{kept['pull']}#pullrequestreview-{number}"
    return {
        "node_id": f"PRR_{number}",
        "state": "COMMENTED",
        "html_url": site,
        "pull_request_url": pull_url,
        "submitted_at": THEN,
        "author_association": "NONE",
        "_links": {"html": {"href": site}, "pull_request": {"href": pull_url}},
        **kept,
        "user": user(api, kept["user"]["login"]),
    }


def review_comment(api: str, own: str, kept: Thing) -> Thing:
    """A comment beside lines of a diff, or on a file of it."""
    number = kept["id"]
    url = f"{api}/repos/{own}/pulls/comments/{number}"
    pull_url = f"{api}/repos/{own}/pulls/{kept['pull']}"
    site = f"{SITE}/{own}/pull/{kept['pull']}#discussion_r{number}"
    links = {"self": url, "html": site, "pull_request": pull_url}
    return {
        "node_id": f"PRRC_{number}",
        "url": url,
        "html_url": site,
        "pull_request_url": pull_url,
        "pull_request_review_id": None,
        "diff_hunk": "@@ -1 +1 @@",
        "subject_type": "line",
        "commit_id": "f" * 40,
        "original_commit_id": "f" * 40,
        "author_association": "NONE",
        **dict.fromkeys(("created_at", "updated_at"), THEN),
        "_links": {name: {"href": address} for name, address in links.items()},
        **kept,
        "user": user(api, kept["user"]["login"]),
    }


def check_run(api: str, own: str, kept: Thing) -> Thing:
    """A check run, without its annotations, of which GitHub says how many there are."""
    url = f"{api}/repos/{own}/check-runs/{kept['id']}"
    output = kept.get("output", {})
    return {
        "node_id": f"CR_{kept['id']}",
        "url": url,
        "html_url": f"{SITE}/{own}/runs/{kept['id']}",
        **dict.fromkeys(("app", "conclusion", "completed_at", "details_url", "external_id")),
        "started_at": THEN,
        "check_suite": {"id": 1},
        "pull_requests": [],
        **{name: value for name, value in kept.items() if name != "notes"},
        "output": {
            **{name: output.get(name) for name in ("title", "summary", "text")},
            "annotations_count": len(kept["notes"]),
            "annotations_url": f"{url}/annotations",
        },
    }


def workflow_run(api: str, own: str, kept: Thing) -> Thing:
    """A run of a workflow."""
    url = f"{api}/repos/{own}/actions/runs/{kept['id']}"
    addresses = ("jobs", "logs", "check_suite", "cancel", "rerun", "artifacts", "workflow")
    return {
        "node_id": "WFR_1",
        "head_branch": "feature",
        "run_number": 1,
        "display_title": "A change",
        "conclusion": None,
        "head_sha": "1" * 40,
        "path": ".github/workflows/cudal1-ci.yml",
        "workflow_id": 1,
        "url": url,
        "html_url": f"{SITE}/{own}/actions/runs/{kept['id']}",
        "created_at": THEN,
        "updated_at": THEN,
        "head_commit": None,
        "head_repository": repository(api, own),
        "repository": repository(api, own),
        **{f"{name}_url": f"{url}/{name}" for name in addresses},
        "pull_requests": [],
        **kept,
    }


def check_suite(api: str, own: str, kept: Thing) -> Thing:
    """The checks of a commit by one app."""
    url = f"{api}/repos/{own}/check-suites/{kept['id']}"
    who = {"name": "somebody", "email": "somebody@example.com"}
    commit = {"id": kept["head_sha"], "tree_id": "f" * 40, "message": "m", "timestamp": THEN}
    return {
        "node_id": f"CS_{kept['id']}",
        "head_branch": "topic",
        "status": "completed",
        "conclusion": "success",
        "url": url,
        "check_runs_url": f"{url}/check-runs",
        "latest_check_runs_count": 1,
        **dict.fromkeys(("before", "after", "app")),
        "pull_requests": [],
        "repository": repository(api, own),
        "head_commit": {**commit, "author": who, "committer": who},
        "updated_at": THEN,
        **kept,
    }


def permission(api: str, login: str, kept: Thing) -> Thing:
    """What somebody may do in a repository."""
    role = {"role_name": kept["permission"]}
    return {**role, **kept, "user": {**user(api, login), **role}}


def label(api: str, own: str, name: str) -> Thing:
    """A label of an issue."""
    url = f"{api}/repos/{own}/labels/{quote(name, safe='')}"
    about = {"description": None, "color": "ededed", "default": False}
    return {"id": 1, "node_id": "LA_1", "url": url, "name": name, **about}


def reaction(api: str, login: str, kept: Thing) -> Thing:
    """What somebody thinks of a comment."""
    return {
        "node_id": f"REA_{kept['id']}",
        "created_at": THEN,
        **kept,
        "user": user(api, login),
    }


def git_commit(api: str, own: str, kept: Thing) -> Thing:
    """A commit as git has it."""
    git = f"{api}/repos/{own}/git"
    site = f"{SITE}/{own}/commit/{kept['sha']}"
    who = {"name": "somebody", "email": "somebody@example.com", "date": THEN}
    unsigned = {"verified": False, "reason": "unsigned", "signature": None, "payload": None}
    return {
        "node_id": f"C_{kept['sha']}",
        "url": f"{git}/commits/{kept['sha']}",
        "html_url": site,
        "author": who,
        "committer": who,
        "message": "m",
        "verification": {**unsigned, "verified_at": None},
        **kept,
        "tree": {"url": f"{git}/trees/{kept['tree']['sha']}", **kept["tree"]},
        "parents": [
            {"url": f"{git}/commits/{one['sha']}", "html_url": site, **one}
            for one in kept["parents"]
        ],
    }


def git_blob(api: str, own: str, kept: Thing) -> Thing:
    """A file as git has it."""
    url = f"{api}/repos/{own}/git/blobs/{kept['sha']}"
    return {"node_id": f"B_{kept['sha']}", "url": url, "size": 1, **kept}


def git_ref(api: str, own: str, kept: Thing) -> Thing:
    """A branch as git has it."""
    git = f"{api}/repos/{own}/git"
    there = {"type": "commit", "url": f"{git}/commits/{kept['object']['sha']}"}
    return {
        "node_id": "REF_1",
        "url": f"{git}/{kept['ref']}",
        **kept,
        "object": {**there, **kept["object"]},
    }


def contents(api: str, own: str, path: str, text: str) -> Thing:
    """A file of a commit."""
    url, site = f"{api}/repos/{own}/contents/{quote(path)}", f"{SITE}/{own}/blob/main/{quote(path)}"
    git = f"{api}/repos/{own}/git/blobs/{'c' * 40}"
    return {
        "type": "file",
        "encoding": "base64",
        "size": len(text.encode()),
        "name": path.rpartition("/")[2],
        "path": path,
        "content": b64encode(text.encode()).decode(),
        "sha": "c" * 40,
        "url": url,
        "git_url": git,
        "html_url": site,
        "download_url": site,
        "_links": {"self": url, "git": git, "html": site},
    }
