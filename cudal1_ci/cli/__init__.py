"""Run the verbs: `cudal1-ci VERB`. stdout is the result, stderr the progress.

One module a verb. This one names them, and imports a verb when it is called: to say the version, to
list the verbs and to complete a line take click alone.
"""

from __future__ import annotations

import click

from cudal1_ci import __version__
from cudal1_ci.cli.group import Verb, Verbs

EPILOG = """\b
Examples:
  cudal1-ci scan .                          find slow code, propose and prove faster code
  cudal1-ci scan --changed origin/main      only what changed since the merge base
  cudal1-ci trace -- pytest -q              record how the tests call your modules
  cudal1-ci explain model.py:Attention      what a call of it does, and what each part costs
  cudal1-ci verify reference.py faster.py   verify one rewrite
  cudal1-ci compare origin/main             did this branch get slower?
  cudal1-ci sweep . --budget 4h             the whole tree, continuing where the last sweep ended
  cudal1-ci bench KernelBench               a report card: many tasks, several solvers

Shell completion: eval "$(_CUDAL1_CI_COMPLETE=bash_source cudal1-ci)"  (or zsh_source, fish_source)
"""


VERBS = (
    Verb(
        name="bench",
        place="cudal1_ci.cli.bench:bench_verb",
        short_help="Run solvers on folders of tasks and create a report card.",
    ),
    Verb(
        name="compare",
        place="cudal1_ci.cli.compare:compare_verb",
        short_help="Time BASE and HEAD, and report what got slower.",
    ),
    Verb(
        name="doctor",
        place="cudal1_ci.cli.doctor:doctor",
        short_help="Check what this machine can do and how to fix what it cannot.",
    ),
    Verb(
        name="explain",
        place="cudal1_ci.cli.explain:explain",
        short_help="Show what a call of TARGET does and what it costs.",
    ),
    Verb(
        name="init",
        place="cudal1_ci.cli.init:init",
        short_help="Write a configuration, and workflows for GitHub.",
    ),
    Verb(
        name="publish",
        place="cudal1_ci.cli.publish:publish",
        short_help="Post REPORTs (report.json of one commit) to GitHub.",
    ),
    Verb(
        name="report",
        place="cudal1_ci.cli.report:report",
        short_help="Merge report.json files and render them, or a history.",
    ),
    Verb(
        name="scan",
        place="cudal1_ci.cli.scan:scan",
        short_help="Find slow PyTorch code under PATH and prove a faster version.",
    ),
    Verb(
        name="sweep",
        place="cudal1_ci.cli.sweep:sweep_verb",
        short_help="Scan within a budget, continuing where the last sweep ended.",
    ),
    Verb(
        name="trace",
        place="cudal1_ci.cli.trace:trace",
        short_help="Run COMMAND and record how it calls modules and functions.",
    ),
    Verb(
        name="verify",
        place="cudal1_ci.cli.verify:verify",
        short_help="Verify that CANDIDATE computes the same as REFERENCE, and faster.",
    ),
)
"""As they are listed. A test holds each short help against that of its command."""


@click.group(
    cls=Verbs,
    verbs=VERBS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="cudal1-ci")
def main() -> None:
    """Find slow PyTorch code, propose faster code, and prove that it computes the same."""
