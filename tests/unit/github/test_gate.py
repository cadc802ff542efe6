"""What the check concludes: every row of docs/reference/gate.md, for every event and policy."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cudal1_ci.github.acknowledgements import Agreed
from cudal1_ci.github.base_settings import BaseSettings
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.plan import Options, plan, plan_checks
from cudal1_ci.github.posts import Known, Pull
from cudal1_ci.github.projects import Expected, Found
from cudal1_ci.github.publication import Publication, parts_of
from cudal1_ci.records import Comparison, ContractCheck, Entry
from cudal1_ci.records.comparison import Cause
from cudal1_ci.stats.gate import (
    CAUSES,
    STATES,
    Finding,
    GateConfig,
    Policy,
    judged,
    states_of_comparison,
)
from tests.reports import HEAD, a_report, a_target, agreed, compared, lacking

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "gate.md").read_text("utf-8")
US = "github-actions[bot]"
BROKEN = (ContractCheck(aspect="dtype float64", result="broken", detail="it fails"),)
NEW = Entry(target=a_target("Fresh"), comparison=Comparison(verdict="new", reason="it is new"))
HELPER = msgspec.structs.replace(
    lacking("skipped", a_target("helper", line=9)),
    comparison=Comparison(verdict="skipped", reason="it ran in calls", within=("m.py:f",)),
)
SAMPLES: dict[str, tuple[Entry, ...]] = {
    "same": (compared("same", 1.0),),
    "faster": (compared("improvement", 0.5),),
    "new": (NEW,),
    "within": (compared("same", 1.0), HELPER),
    "agreed": (compared("regression", 1.5, acknowledged=agreed(1.6)),),
    "nothing_to_measure": (),
    "slower": (compared("regression", 1.5),),
    "broken": (compared("same", 1.0, contract=BROKEN),),
    "inconclusive": (compared("inconclusive", 1.1),),
    **{cause: (lacking(cause),) for cause in CAUSES if cause != "noisy"},
    "machine_missing": (compared("same", 1.0),),
    "unverified": (compared("same", 1.0),),
}


def test_a_target_on_a_machine_that_was_too_busy_is_unclear_and_not_missing() -> None:
    """The gate's page says so of what was measured."""
    comparison = lacking("noisy").comparison
    assert comparison is not None
    assert list(states_of_comparison(comparison)) == ["inconclusive"]


def tables() -> list[list[list[str]]]:
    """The tables of the page, each as rows of cells without backquotes."""
    found = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    rows = [[line.strip("| ").split(" | ") for line in table.splitlines()] for table in found]
    return [
        [[cell.strip("` |") for cell in row] for row in table if row[0][:3] != "---"]
        for table in rows
    ]


STATES_TABLE, CONCLUSIONS, EVENTS = tables()
POLICIES = CONCLUSIONS[0][1:]


def policy_of(text: str) -> Policy:
    """A policy, from the words of a column."""
    said = dict(one.strip("`").split(": ") for one in text.split("<br>"))
    gate = {name.replace("-", "_"): said[name] for name in said if name.startswith("on-")}
    return Policy(fail_on=said.get("fail-on", "never"), gate=GateConfig(**gate))


def run_of(event: str, **fields: Any) -> Occasion:
    numbered = event in ("pull_request", "workflow_dispatch", "workflow_run")
    return Occasion(
        event=event,
        repository="o/r",
        head_sha=HEAD,
        number=7 if numbered else None,
        run_id=100,
        api_url="https://api.github.com",
        server_url="https://github.com",
        **fields,
    )


def posted(
    entries: tuple[Entry, ...] | None,
    policy: Policy,
    run: Occasion,
    expected: Expected = Expected(),  # noqa: B008 - a frozen record
) -> tuple[dict[str, Any], str | None]:
    """The check and the comment that are posted."""
    found = (
        () if entries is None else (Found(artifact="cudal1-ci-gpu", document=a_report(*entries)),)
    )
    parts = parts_of(found, expected, run, policy)
    of_run = Publication(occasion=run, parts=parts)
    pull = Pull(number=7, head_sha=HEAD) if run.number else None
    known = Known(login=US, pull=pull)
    if entries is None:
        made = plan_checks(of_run.projects, run, known)
    else:
        options = Options(policy=policy, comment="always", suggestions=False)
        made = plan(of_run.document, of_run.texts(), run, options, known, of_run.projects)
    (check,) = [
        one for errand in made.errands if errand.what == "check run" for one in errand.first
    ]
    comments = [one for errand in made.errands if errand.what == "comment" for one in errand.first]
    return check.payload, comments[0].payload["body"] if comments else None


def test_the_page_has_every_state_once_in_each_table():
    for table in (STATES_TABLE, CONCLUSIONS):
        assert [row[0] for row in table[1:]] == list(STATES)
    assert {cell for row in CONCLUSIONS[1:] for cell in row[1:]} == {
        "failure",
        "neutral",
        "success",
    }
    assert SAMPLES.keys() | {"no_report"} == STATES.keys()


@pytest.mark.parametrize("event", [row[0] for row in EVENTS[1:]])
@pytest.mark.parametrize("row", CONCLUSIONS[1:], ids=lambda row: row[0])
def test_every_row_holds_for_every_event_and_policy(row, event):
    state, *conclusions = row
    run = run_of(event, head_repository="stranger/r" if state == "unverified" else "o/r")
    if state == "unverified":
        run = msgspec.structs.replace(run, event="workflow_run", is_after_a_pull_request=True)
    machines = ("gpu", "h100") if state == "machine_missing" else ()
    expected = Expected(machines=machines, measured="cancelled")
    for text, conclusion in zip(POLICIES, conclusions, strict=True):
        check, comment = posted(SAMPLES.get(state), policy_of(text), run, expected)
        assert (check["status"], check["conclusion"]) == ("completed", conclusion), text
        if comment is not None:
            assert f"concludes **{conclusion}**" in comment


# --- the check and the comment say the same ------------------------------------


def drawn(number: random.Random) -> tuple[Entry, ...]:
    """Targets with any verdicts, causes and agreements."""
    entries = []
    for place in range(number.randrange(6)):
        target = a_target(f"f{place}", line=place + 1)
        cause: Cause | None = number.choice([None, None, None, *CAUSES])
        if cause is not None and number.random() < 0.7:
            entries.append(lacking(cause, target))
            continue
        verdict = number.choice(["regression", "improvement", "same", "inconclusive", "new"])
        fields: dict[str, Any] = {"cause": cause}
        if number.random() < 0.3:
            fields["acknowledged"] = agreed(number.choice([1.2, 1.6]))
        if number.random() < 0.2:
            fields["contract"] = BROKEN
        if verdict == "new" and number.random() < 0.5:
            entries.append(msgspec.structs.replace(HELPER, target=target))
        elif verdict == "new":
            entries.append(msgspec.structs.replace(NEW, target=target))
        else:
            entries.append(compared(verdict, number.choice([0.5, 1.0, 1.5]), target, **fields))
    return tuple(entries)


@pytest.mark.parametrize("seed", range(60))
def test_comment_and_check_never_contradict_each_other(seed):
    number = random.Random(seed)
    entries = drawn(number)
    policy = policy_of(number.choice(POLICIES))
    machines = number.choice([(), ("gpu",), ("gpu", "h100")])
    check, comment = posted(entries, policy, run_of("pull_request"), Expected(machines=machines))
    assert comment is not None
    heading = re.search(r"^### cudal1-ci: (.*)$", comment, re.MULTILINE)
    assert heading is not None
    said, title, conclusion = heading[1], check["output"]["title"], check["conclusion"]
    assert said[:1].upper() + said[1:] == title
    assert f"The check `cudal1-ci` concludes **{conclusion}**." in comment
    assert check["output"]["summary"].startswith(f"### cudal1-ci: {said}\n")
    is_slower = re.search(r"got slower(?!, as)", said) and not said.startswith("no target")
    lacks = ("not measured", "removed", "no report", "could be compared")
    is_lacking = any(one in said for one in lacks)
    if conclusion == "success":
        assert not is_slower
        assert not is_lacking
        assert "inconclusive" not in said
    if is_slower and policy.fail_on != "never":
        assert conclusion == "failure"
    if is_lacking:
        assert conclusion == policy.on_missing or conclusion == "failure"


# --- what is expected ------------------------------------


def test_one_of_two_machines_that_is_missing_is_named_and_is_no_success():
    """The jobs of a matrix have measured on one GPU, and crashed on the other."""
    expected = Expected(machines=("h100", "gpu"), measured="failure")
    check, comment = posted(SAMPLES["same"], Policy(), run_of("pull_request"), expected)
    assert check["conclusion"] == "neutral"
    assert check["output"]["title"] == "No target got slower; no report from 1 machine"
    assert comment is not None
    assert "**1 machine missing**: `h100`" in comment
    assert "the measuring job failed" in comment


@pytest.mark.parametrize(
    ("artifacts", "missing"),
    [
        (("cudal1-ci-h100", "cudal1-ci-l40"), ["big-h100"]),
        (("cudal1-ci-big-h100",), ["h100", "l40"]),
        (("cudal1-ci-a-h100", "cudal1-ci-a-l40", "cudal1-ci-a-big-h100"), []),
        (("xh100", "reports"), ["h100", "l40", "big-h100"]),
    ],
)
def test_an_artifact_is_of_the_longest_machine_that_its_name_ends_with(artifacts, missing):
    found = tuple(
        Found(artifact=name, document=a_report(compared("same", 1.0))) for name in artifacts
    )
    expected = Expected(machines=("h100", "l40", "big-h100"))
    (part,) = parts_of(found, expected, run_of("pull_request"), Policy())
    assert [one.name for one in part.missing] == missing
    assert all(isinstance(one, Finding) for one in part.missing)


def test_what_is_not_required_may_be_missing():
    policy = Policy(fail_on="regression", gate=GateConfig(required=("pkg/*:Attention*",)))
    for name, conclusion in (("Attention", "failure"), ("pool", "success")):
        check, _ = posted((lacking("skipped", a_target(name)),), policy, run_of("pull_request"))
        assert check["conclusion"] == conclusion
    slower = compared("regression", 1.5)
    check, _ = posted((slower,), policy, run_of("pull_request"))
    assert check["conclusion"] == "failure", "what is slower counts in any case"


# --- several projects ------------------------------------


def of_folder(folder: str, *entries: Entry, artifact: str = "gpu") -> Found:
    document = msgspec.structs.replace(a_report(*entries), folder=folder)
    return Found(artifact=f"cudal1-ci-{artifact}", document=document)


def test_two_projects_have_a_check_each_and_one_comment():
    """One of them got slower: the other's check neither hides that nor fails for it."""
    run, policy = run_of("pull_request"), Policy(fail_on="regression")
    found = (
        of_folder("packages/@acme/x", compared("regression", 1.5)),
        of_folder("b c", compared("same", 1.0)),
    )
    expected = Expected(projects=("packages/@acme/x", "b c", "gone"))
    parts = parts_of(found, expected, run, policy)
    of_run = Publication(occasion=run, parts=parts)
    known = Known(login=US, pull=Pull(number=7, head_sha=HEAD))
    made = plan(
        of_run.document, of_run.texts(), run, Options(policy=policy), known, of_run.projects
    )
    checks = [e.posts[0].payload for e in made.errands if e.what == "check run"]
    assert {check["name"]: check["conclusion"] for check in checks} == {
        "cudal1-ci (packages/@acme/x)": "failure",
        "cudal1-ci (b c)": "success",
        "cudal1-ci (gone)": "failure",
    }
    (comment,) = [e.posts[0].payload["body"] for e in made.errands if e.what == "comment"]
    for check in checks:
        assert f"The check `{check['name']}` concludes **{check['conclusion']}**." in comment
    assert "packages/@acme/x/pkg/model.py" in comment.replace("&#8203;", "")
    assert "1 of 2 targets got slower; no report from 1 project" in comment


@pytest.mark.parametrize("folder", ["packages/a", "odd [x]"])
def test_required_globs_of_a_project_begin_in_its_folder(folder):
    """As its settings do: a glob that names nothing would require nothing."""
    base = BaseSettings(
        fail_on="regression", gate=GateConfig(required=("pkg/*:pool",)), folder=folder
    )
    found = [of_folder(folder, lacking("skipped"), lacking("lost", a_target("other")))]
    run, expected = run_of("pull_request"), Expected(projects=(folder,))
    (part,) = parts_of(found, expected, run, Policy(), {folder: base})
    judgement = judged(part.document, part.policy, part.missing)
    assert judgement.conclusion == "failure"
    assert [one.name for one in judgement.missing] == ["pool"]


def test_projects_of_two_machines_are_each_expected_of_both():
    found = (
        of_folder("a", compared("same", 1.0), artifact="a-h100"),
        of_folder("a", compared("same", 1.0), artifact="a-l40"),
        of_folder("b", compared("same", 1.0), artifact="b-h100"),
    )
    expected = Expected(projects=("a", "b"), machines=("h100", "l40"))
    parts = parts_of(found, expected, run_of("pull_request"), Policy())
    missing = {part.name: [one.name for one in part.missing] for part in parts}
    assert missing == {"cudal1-ci (a)": [], "cudal1-ci (b)": ["l40"]}


def test_an_agreement_of_the_pull_request_holds_for_what_was_lost_and_for_nothing_else():
    gone = Agreed(
        target="pkg/model.py:pool", max_slowdown=1.0, reason="r", owner="me", state="lost"
    )
    for cause, conclusion in (("lost", "success"), ("crashed", "failure")):
        found = (Found(artifact="gpu", document=a_report(lacking(cause))),)
        parts = parts_of(
            found, Expected(), run_of("merge_group"), Policy(fail_on="regression"), {}, (gone,)
        )
        of_run = Publication(occasion=run_of("merge_group"), parts=parts)
        made = plan_checks(of_run.projects, of_run.occasion, Known())
        assert made.errands[0].posts[0].payload["conclusion"] == conclusion
