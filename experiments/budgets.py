"""Count oracles and measure budgets: `python experiments/budgets.py FILE...` (KernelBench form).

For each reference: sets of inputs, those with an oracle, those for which only the dtype's tolerance
is known, and the milliseconds that oracle and spread took. Then the reference itself is the
candidate, with each operation rounded up or down at random by seeds that the verifier does not use:
the largest share of its budget without and with the spread. Above 1 an honest program would be
refused.
"""

from __future__ import annotations

import argparse
import ast
import time
from pathlib import Path
from typing import Any

from cudal1_ci.processes.local import BOOTSTRAP, SANDBOXED
from cudal1_ci.records import Made, Problem, TextProgram, Workload
from cudal1_ci.sandboxed import start
from cudal1_ci.sandboxed.forkserver.client import Template
from cudal1_ci.sandboxed.memory.accelerators import accelerator
from cudal1_ci.sandboxed.verifier import reference, spread
from cudal1_ci.sandboxed.verifier.cases import Answer, Case, Limits, Rejected
from cudal1_ci.sandboxed.verifier.correctness import compare_values, differences_of
from cudal1_ci.verification.crossing import problem_on_wire

LIMITS = Limits(120.0, 120.0)
FIRST_SEED = 10_000
"""The verifier's own seeds are small."""


def problem_of(path: Path) -> Problem:
    """Return the problem of a file; `MODE` in it is that of its calls."""
    source = path.read_text("utf-8")
    modes = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODE"
    ]
    workload = Workload(
        name="default",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
        mode=modes[0] if modes else "infer",
    )
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))


class Timed:
    """Measure how long functions of a module take."""

    def __init__(self) -> None:
        self.spent_ms: dict[str, float] = {}

    def watch(self, module: Any, name: str) -> None:
        function = getattr(module, name)

        def timed(*args: Any) -> Any:
            started_s = time.monotonic()
            try:
                return function(*args)
            finally:
                took_ms = 1e3 * (time.monotonic() - started_s)
                self.spent_ms[name] = self.spent_ms.get(name, 0.0) + took_ms

        setattr(module, name, timed)


def learn(template: Template, path: Path, device: str) -> Case:
    """Return what a verifier learns of a reference. Raises Rejected."""
    problem = problem_on_wire(problem_of(path))
    (workload,) = problem.workloads
    return reference.make_case(template, accelerator(device), problem, workload, LIMITS, 0)


def largest_shares(case: Case, template: Template, num_seeds: int) -> tuple[float, float, int]:
    """Return the largest share of a budget that the randomly rounded reference takes, without and
    with the spread, and how many of the seeds would be refused."""
    answers: list[Answer] = []
    sets = [one for _, one in case.trials]
    with case.runner(template, case.program, LIMITS) as runner:
        for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
            if case.state_slots:
                case.load_state(runner, case.state, LIMITS)
            answers.append(case.answer(runner, LIMITS, sets=sets, rounding=seed))
    before = max(share(case, answer) for answer in answers)
    refused = 0
    for answer in answers:
        try:
            compare_values(
                case, answer, lambda numbers: spread.explain(case, template, LIMITS, numbers)
            )
        except Rejected:
            refused += 1
    return before, max(share(case, answer) for answer in answers), refused


def share(case: Case, answer: Answer) -> float:
    """Return the largest share of its budget that an output takes."""
    return max(found.excess for found, _, _ in differences_of(case, answer, case.tolerances))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=0)
    given = parser.parse_args()
    timed = Timed()
    timed.watch(reference, "learn_oracle")
    timed.watch(reference, "learn_missing")
    timed.watch(spread, "learn_spread")
    process, channel = start.start_template(["-c", BOOTSTRAP, str(SANDBOXED)], 1, given.device)
    template = Template(process, channel, 2**36 if given.device == "cpu" else None)
    for path in given.files:
        timed.spent_ms.clear()
        try:
            case = learn(template, path, given.device)
        except Rejected as rejected:
            print(f"{path}: {rejected.finding.rule}", flush=True)
            continue
        with_oracle = sum(None not in case.truth(number) for number in range(len(case.trials)))
        guessed = sum(any(one.is_guessed for one in budgets) for budgets in case.tolerances)
        line = f"{path}: {len(case.trials)} sets, {with_oracle} with an oracle, {guessed} guessed"
        if given.seeds:
            found = largest_shares(case, template, given.seeds)
            line += f", shares {found[0]:.2g} and {found[1]:.2g}, {found[2]} refused"
        spent = ", ".join(f"{name} {ms:.0f} ms" for name, ms in timed.spent_ms.items())
        print(f"{line}; {spent}", flush=True)
    template.close()


if __name__ == "__main__":
    main()
