"""Reports of several devices as one."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Comparison, Entry, ModelUse, Report
from cudal1_ci.render.merge import merge
from cudal1_ci.render.published import published
from tests.unit.render.samples import (
    CPU,
    SLOWER_CPU,
    a_target,
    attention_entry,
    failed,
    pooling_entry,
)


def on(device, *entries: Entry, **fields):
    return published(
        Report(repository="r", head_sha="abc", device=device, entries=entries, **fields)
    )


def test_a_target_of_two_devices_is_one_entry_with_both_measurements(checkout):
    merged = merge(
        [
            on(CPU, attention_entry(checkout, CPU, 6.0), pooling_entry(checkout)),
            on(SLOWER_CPU, attention_entry(checkout, SLOWER_CPU, 4.0)),
        ]
    )
    attention, pooling = merged.entries
    best = attention.evaluations[attention.best]
    assert [m.device.name for m in best.measurements] == [CPU.name] * 2 + [SLOWER_CPU.name] * 2
    assert merged.device is None
    assert [d.name for d in merged.devices] == [CPU.name, SLOWER_CPU.name]
    assert best.device is None
    assert pooling.best == 0
    assert merged.totals.num_targets == 2
    assert merged.totals.num_proposals == 2


def test_a_candidate_that_is_slower_on_one_device_is_not_the_best(checkout):
    documents = [
        on(CPU, attention_entry(checkout, CPU, 6.0)),
        on(SLOWER_CPU, attention_entry(checkout, SLOWER_CPU, 0.8)),
    ]
    merged = merge(documents)
    assert documents[0].entries[0].best == 1
    assert merged.entries[0].best is None
    assert merged.totals.num_proposals == 0


def test_a_candidate_that_is_wrong_on_one_device_is_not_the_best(checkout):
    entry = attention_entry(checkout)
    wrong = failed(entry.evaluations[1].candidate, "incorrect_values", "output 0 differs")
    elsewhere = msgspec.structs.replace(entry, evaluations=(wrong,), reused=(), best=None)
    merged = merge([on(CPU, entry), on(SLOWER_CPU, elsewhere)])
    statuses = [e.status for e in merged.entries[0].evaluations]
    assert sorted(statuses) == ["incorrect_values", "incorrect_values", "passed"]
    assert merged.entries[0].best is None


def test_a_device_that_could_not_tell_takes_nothing_away(checkout):
    entry = attention_entry(checkout)
    unsure = failed(entry.evaluations[1].candidate, "inconclusive", "the machine was busy")
    elsewhere = msgspec.structs.replace(entry, evaluations=(unsure,), reused=(), best=None)
    merged = merge([on(CPU, entry), on(SLOWER_CPU, elsewhere)])
    best = merged.entries[0].best
    assert merged.entries[0].evaluations[best].status == "passed"


def test_a_target_judged_anywhere_is_not_skipped(checkout):
    target = attention_entry(checkout).target
    skipped = Entry(target=target, skipped="needs an NVIDIA GPU")
    alone = Entry(target=a_target("b.py", "B"), skipped="no call of it is known", hint="declare")
    merged = merge(
        [on(CPU, skipped, alone), on(SLOWER_CPU, attention_entry(checkout), alone)],
    )
    assert merged.entries[0].skipped is None
    assert merged.entries[0].best is not None
    assert (merged.entries[1].skipped, merged.entries[1].hint) == (alone.skipped, "declare")


def test_one_report_is_itself(sample):
    assert merge([sample]) is sample


def test_what_did_not_finish_on_one_device_did_not_finish(checkout):
    assert merge([on(CPU), on(SLOWER_CPU, ended="budget")]).ended == "budget"
    assert merge([on(CPU), on(SLOWER_CPU)]).ended == "done"


def test_the_same_device_in_another_mood_is_one_device(checkout):
    warm = msgspec.structs.replace(CPU, clock_mhz=2000.0, temperature_c=70.0)
    merged = merge([on(CPU), on(warm)])
    assert len(merged.devices) == 1
    assert merged.device.name == CPU.name


@pytest.mark.parametrize(
    "fields", [{"repository": "other"}, {"head_sha": "def"}, {"base_sha": "123"}]
)
def test_reports_of_different_commits_are_refused(sample, fields):
    with pytest.raises(ReportError, match=f"got {next(iter(fields))}"):
        merge([sample, msgspec.structs.replace(sample, **fields)])


def test_no_reports_are_refused():
    with pytest.raises(ReportError, match="at least one"):
        merge([])


def test_what_a_model_was_asked_is_kept_beside_a_comparison_that_asked_none():
    asked = Entry(target=a_target(), model_use=ModelUse(model="small", num_answers=3))
    compared = Entry(target=a_target(), comparison=Comparison(verdict="same"))
    both = [published(Report(repository="r", entries=(one,))) for one in (compared, asked)]
    (entry,) = merge(both).entries
    assert entry.model_use.num_answers == 3
    assert entry.comparison.verdict == "same"
    other = Entry(target=a_target(), model_use=ModelUse(model="small", num_answers=5))
    merged = merge([*both, published(Report(repository="r", entries=(other,)))])
    assert merged.entries[0].model_use is None


def test_a_merged_report_is_as_late_as_its_last(sample):
    moments = [datetime(2026, 11, 22, hour, tzinfo=UTC) for hour in (3, 5, 4)]
    reports = [msgspec.structs.replace(sample, generated_at=moment) for moment in moments]
    assert merge([sample, *reports]).generated_at == moments[1]
    assert merge([sample, sample]).generated_at is None
