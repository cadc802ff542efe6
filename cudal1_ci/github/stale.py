"""End checks whose run has ended without them: its runner died, or the job that posts did.

A run ends its own checks in every case that GitHub lets it. What is left is found later, among the
heads of open pull requests, by the run that its id names.

    for post in stale_checks(client, settings_at): client.send(post)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.check import folder_of, run_of
from cudal1_ci.github.event import other_than_default
from cudal1_ci.github.posts import Post
from cudal1_ci.stats.gate import Policy

if TYPE_CHECKING:
    from cudal1_ci.github.base_settings import BaseSettings
    from cudal1_ci.github.client import Client

MAX_PULLS = 100
WHY = "the run ended without a result; its runner may have died"


def stale_checks(client: Client, settings_at: Callable[[str, str], BaseSettings]) -> Iterator[Post]:
    """Yield the requests that end stale checks of open pull requests; `settings_at` returns the
    settings of a project in the commit of a base.

    Raises:
        Refusal: GitHub does not say.
    """
    ended: dict[int, bool] = {}
    for pull in client.read("pulls", state="open", per_page=MAX_PULLS):
        answer = client.read(
            f"commits/{pull['head']['sha']}/check-runs", status="in_progress", filter="all"
        )
        base = pull["base"]
        into = other_than_default(base["ref"], (base["repo"] or {}).get("default_branch"))
        for check in answer.get("check_runs", []):
            order = run_of(check.get("external_id") or "")
            folder = folder_of(str(check.get("name", "")), into)
            if order is None or folder is None:
                continue
            if order[0] not in ended:
                ended[order[0]] = has_ended(client, order[0])
            if ended[order[0]]:
                yield end_of(client, check, settings_at(base["sha"], folder))


def has_ended(client: Client, run: int) -> bool:
    """Return whether a run has ended, or is gone."""
    try:
        return bool(client.read(f"actions/runs/{run}").get("status") == "completed")
    except Refusal as refusal:
        if refusal.status == 404:
            return True
        raise


def end_of(client: Client, check: dict[str, Any], settings: BaseSettings) -> Post:
    """Return the request that ends a check.

    Where the base is silent, the inputs of the dead run decided, which are not known here. The
    check is `cancelled` then, which no required check may be.
    """
    is_silent = settings.fail_on is None and settings.gate.on_missing == "auto"
    conclusion = "cancelled" if is_silent else settings.policy(Policy()).conclusion_of("no_report")
    output = {
        "title": f"Nothing was measured: {WHY}",
        "summary": f"Nothing was measured: {WHY}. Push again, or write `/cudal1 run`.",
    }
    return Post(
        method="PATCH",
        path=f"/repos/{client.repository}/check-runs/{check['id']}",
        payload={"status": "completed", "conclusion": conclusion, "output": output},
    )
