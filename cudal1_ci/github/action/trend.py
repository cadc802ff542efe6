"""Append reports of a commit to the history, and render the page (actions/trend).

Runs nothing of the repository: git alone reads the commits of its clone. The reports are hostile
data. A report of another commit than the workflow's is left out, so that no job can rewrite the
past of others with its report.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cudal1_ci.errors import ConfigError, ReportError
from cudal1_ci.github.action.children import Runner, run_verb, scrubbed
from cudal1_ci.github.action.data_branch import DataBranch
from cudal1_ci.github.action.event import read_event
from cudal1_ci.github.action.inputs import TrendInputs, trend_inputs
from cudal1_ci.github.action.outcome import tell
from cudal1_ci.github.action.publish import reports_of
from cudal1_ci.render.reading import read_report
from cudal1_ci.render.workflow_log import workflow_command

FILE = "history.jsonl"
LIMIT_S = 600.0


def trend(environment: Mapping[str, str], run: Runner = run_verb) -> int:
    """Append, render, push; without any report, render what is there."""
    inputs = trend_inputs(environment)
    workspace = Path(environment.get("GITHUB_WORKSPACE") or os.curdir).resolve()
    commit = read_event(environment).head_sha or environment.get("GITHUB_SHA", "")
    own = Path(environment.get("RUNNER_TEMP") or workspace / ".cudal1-ci").resolve() / "cudal1-ci"
    files, notices = reports_of_commit(workspace, inputs, commit)
    for notice in notices:
        sys.stdout.write(workflow_command("warning", notice) + "\n")
    branch = DataBranch(
        own / "history", remote_of(environment), inputs.branch, environment.get("GITHUB_TOKEN")
    )
    branch.fetch()
    file = branch.folder / FILE
    if not files and not file.exists():
        return 0
    known = scrubbed(environment, own / "state") | {
        name: environment[name] for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY")
    }
    for words in verbs_of(inputs, files, file, workspace):
        code = run(words, cwd=workspace, environment=known, limit_s=LIMIT_S)
        if code != 0:
            return code
    shutil.copyfile(file, workspace / inputs.site / FILE)
    branch.push(FILE, f"Measurements of {commit[:12]}")
    tell({"site": inputs.site}, "", environment)
    return 0


def verbs_of(
    inputs: TrendInputs, files: Sequence[Path], file: Path, workspace: Path
) -> list[list[str]]:
    """Return the verbs that append what there is, and that render."""
    clone = ["--checkout", str(workspace / inputs.checkout)]
    shown = ["report", *clone, "--history", str(file)]
    site = workspace / inputs.site
    shown += ["--html", str(site / "index.html"), "--json", str(site / "benchmarks.json")]
    if not files:
        return [shown]
    return [["report", *clone, "--history-append", str(file), "--", *map(str, files)], shown]


def reports_of_commit(
    workspace: Path, inputs: TrendInputs, commit: str
) -> tuple[list[Path], list[str]]:
    """Return the reports of the workflow's commit, and why others are left out."""
    files, notices = [], []
    for file in reports_of(workspace, inputs.reports):
        try:
            found = read_report(file).head_sha
        except ReportError as error:
            notices.append(str(error))
            continue
        if found == commit:
            files.append(file)
        else:
            notices.append(f"{file}: expected a report of {commit}, got one of {found}")
    return files, notices


def remote_of(environment: Mapping[str, str]) -> str:
    """Return the repository of the workflow. Raises: ConfigError outside of one."""
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    if not server or not name:
        raise ConfigError(
            "expected GITHUB_SERVER_URL and GITHUB_REPOSITORY: this is started by a workflow; "
            "elsewhere use `cudal1-ci report --history-append` and `--history`"
        )
    return f"{server}/{name}"
