"""A report card of eight made-up tasks on a Ray of its own, with two slots of which one is killed
in its second task; says as JSON what became of it.

    python tests/integration/killed_actor.py FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from cudal1_ci.pool import Pool, RayBackend, SessionConfig
from cudal1_ci.pool.actor import VerifierActor
from cudal1_ci.report_card.run import run
from tests.fakes import FakeSession
from tests.unit.report_card.rig import a_bench, a_task, found

ANSWERS = {f"try {index}": ("passed", 2.0) for index in range(4)}
FOLDER = Path(sys.argv[1])


class Noted(FakeSession):
    """Notes each evaluation in a file of its own, and is killed once."""

    def evaluate(self, problem, candidate):
        task, source = problem.reference.source[-1], candidate.program.source
        if task == "3" and source == "try 2":
            try:
                (FOLDER / "killed").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2)
        (FOLDER / f"{task} {source} {os.getpid()}").touch()
        return super().evaluate(problem, candidate)


class Actor(VerifierActor):
    def __init__(self, config: bytes, device: str, number: int):
        super().__init__(config, device, number)
        self.session = Noted(dict(ANSWERS))


class Cluster(RayBackend):
    actor_class = Actor


def main() -> None:
    tasks = found(
        *(a_task(f"level1/{index}", f"class Model: ...  # {index}") for index in range(8))
    )
    notices: list[str] = []
    with (
        Cluster(SessionConfig(), address="local", num_slots=2) as backend,
        Pool(backend, notice=notices.append) as pool,
        a_bench(FOLDER, pool.first, {"playbook": sorted(ANSWERS)}, pool=pool) as bench,
    ):
        document = run(tasks, bench)
    made = [path.name.rsplit(" ", 1) for path in FOLDER.glob("? try ?*")]
    result = {
        "standings": [task.standing for task in document.tasks],
        "num_trials": [len(task.results[0].trials) for task in document.tasks],
        "judged": sorted(Counter(name for name, _ in made).values()),
        "num_processes": len({pid for _, pid in made}),
        "notices": notices,
    }
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
