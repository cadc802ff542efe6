"""Decide whose code may run on this machine, and by whose settings, before anything starts.

Covered: code of a fork on a machine that is kept after the job; events that carry the rights of the
base while the code is the head's; settings that the measured change itself has written. Not
covered: a workflow file that was edited in the fork. GitHub takes the file of a `pull_request` from
the head, so a person who may start workflows can remove this check. docs/security.md says what
stops that.
"""

from __future__ import annotations

from pathlib import Path

from cudal1_ci.errors import ConfigError, DiscoveryError
from cudal1_ci.git import committed_text, current_text, repository_top
from cudal1_ci.github.action.event import Event
from cudal1_ci.github.provenance import CONFIGURATION, SETTINGS, settings_in

PHRASE = "i-understand-that-code-of-strangers-will-run-on-this-machine"

# Events whose checked out code was written by people who may write to the repository, and
# `pull_request`, which gives forks neither secrets nor a token that writes.
EVENTS = frozenset(
    {
        "merge_group",
        "pull_request",
        "push",
        "repository_dispatch",
        "schedule",
        "workflow_dispatch",
    }
)


def refusal(event: Event, runner_environment: str, phrase: str | None) -> str | None:
    """Return why the head of this event is not run here; None where it may run.

    Args:
        runner_environment: RUNNER_ENVIRONMENT; all but `github-hosted` is a machine that is kept.
        phrase: The text of `allow-fork-code`.

    Raises:
        ConfigError: The event cannot be measured, or the phrase is another.
    """
    if event.name not in EVENTS:
        raise ConfigError(
            f"expected one of the events {', '.join(sorted(EVENTS))}, got {event.name}: it has the "
            "rights of the base, in which code of a pull request must not run (docs/security.md)"
        )
    may_run_forks = is_the_phrase(phrase)
    if not event.is_of_a_fork or runner_environment == "github-hosted" or may_run_forks:
        return None
    return (
        f"This pull request comes from {event.head_repository or 'a repository that is gone'}, and "
        "the runner is self-hosted: code of a stranger would run on a machine that is kept. "
        "Nothing was measured. To measure it all the same, a maintainer can push its commits to a "
        f"branch of {event.repository}; for machines that are thrown away after each job see "
        "docs/security.md."
    )


def is_the_phrase(phrase: str | None) -> bool:
    """Return whether code of forks is welcome. Raises: ConfigError for any other phrase."""
    if phrase is not None and phrase != PHRASE:
        raise ConfigError(
            "input `allow-fork-code`: expected nothing, or the phrase of docs/security.md "
            "word for word"
        )
    return phrase == PHRASE


def configuration_changed(root: Path, merge_base: str) -> bool:
    """Return whether the tree below `root` has other settings than it had at the merge base."""
    top = repository_top(root)
    below = root.resolve().relative_to(top.resolve())
    return any(
        settings_in(name, _text_at(top, merge_base, (below / name).as_posix()))
        != settings_in(name, current_text(root / name))
        for name in (CONFIGURATION, SETTINGS)
    )


def configuration_is_new(root: Path, merge_base: str) -> bool:
    """Return whether the tree below `root` has settings and the merge base has none."""
    top = repository_top(root)
    below = root.resolve().relative_to(top.resolve())
    before = [
        settings_in(name, _text_at(top, merge_base, (below / name).as_posix()))
        for name in (CONFIGURATION, SETTINGS)
    ]
    return before == [None, None] and configuration_changed(root, merge_base)


def _text_at(top: Path, commit: str, path: str) -> str | None:
    try:
        return committed_text(top, commit, path)
    except DiscoveryError:
        return None  # absent in that commit
