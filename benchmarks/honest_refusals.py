"""How often an honest candidate is refused, by launches that are longer than usual.

    python -m benchmarks.honest_refusals tests/honest/zero_gradient_of_a_convolution.py --times 25

Each time a new judge makes one launch of up to so many rounds, so that a candidate which is refused
in one of thousands of timed calls is seen to be. On a CPU, as the tests' judges.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import msgspec

from benchmarks.discovery_speed import provenance
from cudal1_ci.records import Candidate, TextProgram
from cudal1_ci.verification import Session
from tests.conftest import QUICK
from tests.test_attacks import problem_of, reference_of

OUTPUT = Path(__file__).parent / "results" / "honest-refusals.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--times", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=30.0, help="of a launch at the most")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    config = msgspec.structs.replace(
        QUICK, num_launches=1, num_rounds=given.rounds, launch_s=given.seconds, weights="seed"
    )
    rows = []
    for file in given.files:
        problem = problem_of(reference_of(file))
        program = TextProgram(source=file.read_text(encoding="utf-8"), entry="ModelNew")
        candidate = Candidate(problem_id=problem.id, program=program, proposer="benchmark")
        found: Counter[str] = Counter()
        messages = []
        for _ in range(given.times):
            with Session(config, device="cpu") as session:
                verdict = session.evaluate(problem, candidate).verdict
            found[verdict.status] += 1
            if verdict.status != "passed":
                messages.append(verdict.findings[0].message)
        rows.append({"file": file.name, "statuses": dict(found), "messages": messages})
        print(f"{file.name}: {dict(found)}")
    document = {**provenance(), "rounds": given.rounds, "rows": rows}
    given.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
