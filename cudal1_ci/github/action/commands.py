"""Answer a comment on a pull request (actions/commands/action.yml).

Runs nothing of the pull request, checks nothing out and starts no process, so that the token stays
in this process.

The step runs twice. The first run decides. If it needs the report that the author has seen, it
names that report's workflow run (output `report-run`), and the next step fetches its artifacts. The
second run decides again, with the report and with GitHub's current facts. So each command is
carried out once, and never on facts older than a second.

No verb of the command line does this. A person has the website, and a verb that posts in the name
of a comment would need that name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cudal1_ci.errors import ConfigError, ReportError
from cudal1_ci.github.action.admission import is_the_phrase
from cudal1_ci.github.action.inputs import command_inputs
from cudal1_ci.github.action.issue import issue_of, open_asked
from cudal1_ci.github.action.outcome import tell
from cudal1_ci.github.action.publish import reports_of
from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.base_settings import BaseSettings, settings_of_projects
from cudal1_ci.github.branches import open_pull
from cudal1_ci.github.command import Command, command_in
from cudal1_ci.github.command_effects import Fetched, decide, measuring_run
from cudal1_ci.github.comment_event import Asked, asked
from cudal1_ci.github.decision import Decision, Facts, Rules
from cudal1_ci.github.event import occasion
from cudal1_ci.github.fetch_facts import facts_about, is_of_a_request, is_of_this_base
from cudal1_ci.github.projects import Found
from cudal1_ci.github.provenance import provenance
from cudal1_ci.github.publication import run_errand
from cudal1_ci.github.reply import Reaction, is_replied, reacted, refused_text, replied
from cudal1_ci.github.sanitize import log_line
from cudal1_ci.render.reading import read_report

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client

FAILED = 5
"""Exit code where GitHub refused; the reply says so."""


def commands(environment: Mapping[str, str]) -> int:
    """Answer the comment of this event; return the exit code of the step."""
    inputs = command_inputs(environment)
    rules = Rules(
        occasion=occasion(environment),
        workflow=inputs.workflow,
        policy=inputs.policy,
        expected=inputs.expected,
        may_run_forks=is_the_phrase(inputs.allow_fork_code),
    )
    if (number := issue_of(environment)) is not None:
        fetched = _fetched_report(environment)
        return open_asked(
            number,
            _client(environment, rules),
            rules.occasion,
            None if fetched is None else fetched.found,
            environment,
        )
    comment = asked(environment)
    command = command_in(comment.body) if comment.is_obeyable else None
    if command is None:
        _say("the comment holds no command, was edited, or is not of a person")
        return 0
    client = _client(environment, rules)
    facts, fetched = facts_about(client, comment), _fetched_report(environment)
    if fetched is not None:
        facts = _with_the_base(facts, client, comment, rules, fetched)
    decision = decide(comment, command, facts, rules, fetched)
    if decision.report_run is not None:
        tell({"report-run": str(decision.report_run)}, "", environment)
    may_reply = not is_replied(facts.comments, comment, facts.login)
    return _carry_out(decision, client, comment, command, may_reply=may_reply)


def _carry_out(
    decision: Decision, client: Client, comment: Asked, command: Command, *, may_reply: bool
) -> int:
    """Make the requests; report a failure in a reply, once for each comment."""
    reaction, reply, code = decision.reaction, decision.reply, 0
    try:
        for errand in decision.errands:
            run_errand(errand, client, _say)
        if decision.proposed is not None:
            _say(f"pull request: {open_pull(client, decision.proposed).url}")
    except Refusal as refusal:
        _say(str(refusal))
        reaction, reply, code = "confused", refused_text(command.verb, refusal), FAILED
    if reply is not None and may_reply:
        client.send(replied(client.repository, comment, command, reply))
    if reaction is not None:
        _react(reaction, client, comment)
    _say(f"{command.text}: {reaction or 'answered'}")
    return code


def _with_the_base(
    facts: Facts, client: Client, comment: Asked, rules: Rules, fetched: Fetched
) -> Facts:
    """Add what the base says of the gate of the projects that were measured, and who has measured
    them.
    """
    if facts.head is None:
        return facts
    folders = [one.document.folder for one in fetched.found]
    are_declared = bool(rules.expected.projects)
    base = facts.head.base_sha
    try:
        bases = settings_of_projects(client, base, folders, are_declared=are_declared)
    except (Refusal, ConfigError) as error:
        _say(f"the gate is the workflow's: {error}")
        bases = {folder: BaseSettings(folder=folder) for folder in folders}
    facts = msgspec.structs.replace(
        facts,
        bases=bases,
        is_of_a_request=is_of_a_request(client, fetched.run),
        is_of_this_base=is_of_this_base(client, facts.head, fetched.run),
    )
    run = measuring_run(comment, facts, fetched.run, rules)
    return msgspec.structs.replace(facts, origin=provenance(client, run, comment.number, folders))


def _react(reaction: Reaction, client: Client, comment: Asked) -> None:
    """Add a reaction to the comment, unless the comment was deleted meanwhile."""
    try:
        client.send(reacted(client.repository, comment, reaction))
    except Refusal as refusal:
        _say(f"no reaction: {refusal}")


def _client(environment: Mapping[str, str], rules: Rules) -> Client:
    """Return a client with the job's token. Raises: ConfigError where there is no token."""
    from cudal1_ci.github.client import with_token  # imports PyGithub; measuring does not

    token = environment.get("GITHUB_TOKEN")
    if not token:
        raise ConfigError("GITHUB_TOKEN: expected a token in the environment, it is not set")
    return with_token(token, rules.occasion, _say)


def _fetched_report(environment: Mapping[str, str]) -> Fetched | None:
    """Return the report that an earlier step fetched, as hostile data; None before that step."""
    run = environment.get("REPORT_RUN", "")
    if not run:
        return None
    if not (run.isascii() and run.isdigit()):
        raise ConfigError(f"REPORT_RUN: expected the number of a run, got {run!r}")
    folder = Path(environment.get("RUNNER_TEMP", "")) / "cudal1-ci" / "reports"
    try:
        found = [
            Found(artifact=file.parent.name, document=read_report(file))
            for file in reports_of(folder, "**/report.json")
        ]
        return Fetched(run=int(run), found=tuple(found))
    except (ReportError, ConfigError) as error:
        _say(str(error))
        return Fetched(run=int(run))


def _say(message: str) -> None:
    sys.stdout.write(log_line(message) + "\n")
