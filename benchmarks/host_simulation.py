"""How judges of one host slow one another down, if one thing is shared: the GPUs' driver.

    python benchmarks/host_simulation.py

A trial visits the driver some times, alone, for what starting and ending processes takes it, and
does the rest on its own GPU. How long the driver is visited in a trial is what fits best to trials
that were measured beside so many others (results/scaling-h100.json); with that the same is
simulated for numbers of GPUs that were not. Visits and what lies between them vary by as much as
`SPREAD`, the order of the waiting is that of their coming.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from discovery_speed import provenance

RESULTS = Path(__file__).parent / "results"
MEASURED = RESULTS / "scaling-h100.json"
OUTPUT = RESULTS / "host-simulation.json"
NUM_VISITS = 6
"""Processes of a trial with one launch, by order of magnitude; with 3 the fit is the same."""
SPREAD = 0.7
"""Standard deviation over mean."""
NUM_TRIALS = 4000
STEP_S = 0.01
NUMBERS = (1, 2, 4, 8)


def trial_s(num_judges: int, driver_s: float, alone_s: float, seed: int = 0) -> float:
    """Mean seconds of a trial beside others, of which one takes `alone_s` when it is alone and
    `driver_s` of that in the driver."""
    draw = random.Random(seed)
    shape = SPREAD**-2

    def some(mean_s: float) -> float:
        return draw.gammavariate(shape, mean_s / shape)

    free_s = 0.0
    waiting = [(draw.random() * alone_s, judge, 0) for judge in range(num_judges)]
    heapq.heapify(waiting)
    begun_s: dict[int, float] = {}
    found: list[float] = []
    while len(found) < NUM_TRIALS:
        now_s, judge, visit = heapq.heappop(waiting)
        free_s = max(now_s, free_s) + some(driver_s / NUM_VISITS)
        next_s = free_s + some((alone_s - driver_s) / NUM_VISITS)
        visit = (visit + 1) % NUM_VISITS
        if not visit:
            if judge in begun_s:
                found.append(next_s - begun_s[judge])
            begun_s[judge] = next_s
        heapq.heappush(waiting, (next_s, judge, visit))
    return statistics.fmean(found)


def fitted_driver_s(measured: Mapping[int, float]) -> float:
    """With the least squares of the relative differences."""
    alone_s = measured[1]

    def error(driver_s: float) -> float:
        return sum(
            (trial_s(number, driver_s, alone_s) / seconds - 1) ** 2
            for number, seconds in measured.items()
        )

    return min((step * STEP_S for step in range(1, int(alone_s / STEP_S))), key=error)


def simulated(measured: Mapping[int, float]) -> dict[str, Any]:
    driver_s = fitted_driver_s(measured)
    rows = []
    for number in NUMBERS:
        seconds = trial_s(number, driver_s, measured[1])
        rows.append(
            {
                "num_gpus": number,
                "measured_trial_s": measured.get(number),
                "trial_s": round(seconds, 2),
                "times": round(number * measured[1] / seconds, 2),
            }
        )
    return {
        "driver_s": round(driver_s, 2),
        "most_per_hour": round(3600 / driver_s),
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    runs = json.loads(options.measured.read_text(encoding="utf-8"))["runs"]
    measured = {run["num_seats"]: run["trial_s"] for run in runs if not run["killed_after_s"]}
    document = {**provenance(), "measured": options.measured.name, **simulated(measured)}
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document["rows"]), f"{document['driver_s']} s of the driver a trial")


if __name__ == "__main__":
    main()
