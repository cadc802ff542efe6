"""The table of what candidates came to is of the committed raw results."""

from __future__ import annotations

from cudal1_ci.optimize.ranking import shipped


def test_the_package_has_what_the_raw_results_say(experiment_module):
    ranking = experiment_module("ranking")
    assert ranking.TABLE.read_text("utf-8") == ranking.text(ranking.table())
    assert list(shipped()) == ranking.table()


def test_each_row_of_a_scan_counts_once(experiment_module):
    ranking = experiment_module("ranking")
    row = {"operators": ["attention"], "status": "passed", "phase": "screened", "seconds": 5.0}
    target = {
        "class": "memory-bound",
        "total_us": 1500.0,
        "candidates": [row | {"speedup": 2.0}, row | {"operators": ["norm"], "speedup": None}],
    }
    counts = [*ranking.of_scan({"kind": "cuda", "targets": [target]})]
    assert [(one.strategy, one.log is None, one.where.time_us) for one in counts] == [
        ("attention", False, 1500.0),
        ("norm", True, 1500.0),
    ]
    assert ranking.operators("best:playbook:silu+compile-reduce-overhead") == (
        "silu",
        "reduce_overhead",
    )
