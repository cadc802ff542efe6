"""A machine of a cluster is taken away in the middle, and another one comes.

    python benchmarks/lost_node.py

Two nodes of Ray on this machine, one seat on each, trials that sleep (scaling.py). After a fifth of
the results one node is removed, as a machine that loses its power: without a word to the cluster.
After half of them a new node joins.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import ray
import scaling
import text_trials
from discovery_speed import provenance
from ray.cluster_utils import Cluster

from cudal1_ci.pool import evaluate_all
from cudal1_ci.pool.sessions import SessionConfig
from cudal1_ci.pool.view import PlainView, Tally
from cudal1_ci.records.archive import Archive

OUTPUT = Path(__file__).parent / "results" / "lost-node.json"


def run(cluster: Cluster, second: Any, options: argparse.Namespace) -> dict[str, Any]:
    """What each seat judged, and when the cluster changed; seconds since the first result."""
    config = SessionConfig()
    tasks = scaling.tasks(options)
    ids = {one.id for task in tasks for one in task.candidates}
    phase, events = "both nodes", dict[str, float]()
    by_phase = {name: Counter[str]() for name in (phase, "one node", "a new node too")}
    num_done, begun_s, last_s, gap_s = 0, 0.0, 0.0, 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        Archive.open(Path(folder) / "archive.sqlite") as archive,
        scaling.Seats(config, device="cpu", actor=scaling.Sleeper) as seats,
    ):
        view = PlainView(sys.stderr, Tally(len(ids)))
        for found in evaluate_all(tasks, seats, archive, config.trial.policy, view=view):
            now = time.monotonic()
            begun_s, gap_s = begun_s or now, max(gap_s, now - (last_s or now))
            by_phase[phase][str(found.seat)] += 1
            num_done += 1
            if num_done == len(ids) // 5:
                phase = "one node"
                cluster.remove_node(second, allow_graceful=False)
                events["a node was taken away"] = round(now - begun_s, 1)
            if num_done == len(ids) // 2:
                phase = "a new node too"
                cluster.add_node(num_cpus=1)
                events["a new node"] = round(now - begun_s, 1)
            last_s = time.monotonic()
        recorded = Counter(one.candidate.id for _, one in archive.recorded())
    return {
        "num_candidates": len(ids),
        "elapsed_s": round(last_s - begun_s, 1),
        "longest_gap_s": round(gap_s, 2),
        "events": events,
        "judged_by_seat": {name: dict(one) for name, one in by_phase.items()},
        "num_seats_opened": seats.num_opened,
        "num_lost": len(ids - set(recorded)),
        "num_judged_twice": sum(number > 1 for number in recorded.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sleep", type=float, default=0.3, help="seconds of a trial")
    parser.add_argument("--candidates", type=int, default=300)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    here = Path(__file__).resolve().parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here.parent), str(here)])
    os.environ[scaling.SLEEP] = str(options.sleep)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        found = run(cluster, second, options)
    finally:
        ray.shutdown()
        cluster.shutdown()
    text_trials.write(options.output, {**provenance(), "sleep_s": options.sleep, **found})
    print(found)


if __name__ == "__main__":
    main()
