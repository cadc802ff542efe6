"""The front door: `cudal1-ci VERB`. stdout is the result, stderr the progress.

One module a verb; this one only names them.
"""

from __future__ import annotations

import click

from cudal1_ci import __version__
from cudal1_ci.cli.bench import bench_verb
from cudal1_ci.cli.compare import compare_verb
from cudal1_ci.cli.doctor import doctor
from cudal1_ci.cli.group import Verbs
from cudal1_ci.cli.init import init
from cudal1_ci.cli.publish import publish
from cudal1_ci.cli.report import report
from cudal1_ci.cli.scan import scan
from cudal1_ci.cli.sweep import sweep_verb
from cudal1_ci.cli.trace import trace
from cudal1_ci.cli.verify import verify

EPILOG = """\b
Examples:
  cudal1-ci scan .                          find slow code, propose and prove faster code
  cudal1-ci scan --changed origin/main      only what changed since the merge base
  cudal1-ci trace -- pytest -q              record how the tests call your modules
  cudal1-ci verify reference.py faster.py   judge one rewrite
  cudal1-ci compare origin/main             did this branch get slower?
  cudal1-ci sweep . --budget 4h             the whole tree, going on where the last sweep ended
  cudal1-ci bench KernelBench               a report card: many tasks, several solvers

Shell completion: eval "$(_CUDAL1_CI_COMPLETE=bash_source cudal1-ci)"  (or zsh_source, fish_source)
"""


@click.group(cls=Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cudal1-ci")
def main() -> None:
    """Find slow PyTorch code, propose faster code, and prove that it computes the same."""


for verb in (
    scan,
    verify,
    compare_verb,
    trace,
    sweep_verb,
    bench_verb,
    report,
    publish,
    init,
    doctor,
):
    main.add_command(verb)
