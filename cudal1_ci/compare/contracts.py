"""Use the head of each pair in other ways than its workloads show, in the time that is left.

Each use is tried on the base first, once for each pair whose outputs are the same. No verdict
depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ci.compare.bench import Bench, each, policy_of
from cudal1_ci.compare.looks import NO_BUDGET, Looks
from cudal1_ci.errors import WorkerError
from cudal1_ci.processes.device_wait import GaveUp
from cudal1_ci.records import ContractCheck
from cudal1_ci.verification.protocol import Verifier

OTHER_OUTPUTS = "outputs changed at the workload: contract not examined"


def examine_contracts(looks: Sequence[Looks], bench: Bench) -> None:
    """Try the uses that no workload shows on each pair that was measured, in the time that is left.
    Where the outputs differ already, a difference elsewhere would prove nothing."""
    measured = [one for one in looks if one.measurements]
    for one in measured:
        if one.passed is None:
            not_examined(one, OTHER_OUTPUTS)
        else:
            one.contract, one.contract_s = one.passed.contract, one.passed.contract_s
    waiting = [one for one in measured if one.contract is None]

    def work(one: Looks, verifier: Verifier) -> None:
        examine_contract(one, bench, verifier)

    for one in each(waiting, work, not_examined, bench, bench.is_over):
        not_examined(one, NO_BUDGET)


def examine_contract(one: Looks, bench: Bench, verifier: Verifier) -> None:
    """Try the other uses of a pair. What is found is kept with its first look."""
    assert one.passed is not None
    try:
        with bench.patient():
            found = verifier.examine_contract(one.pair.problem, one.passed)
    except GaveUp:
        not_examined(one, NO_BUDGET)
        return
    except WorkerError as error:
        not_examined(one, f"the verifier failed: {error}")
        return
    one.contract, one.contract_s = found.contract, found.contract_s
    if found.contract is not None:
        bench.archive.record(found, policy_of(1, bench))
        bench.progress.contract_tried(one.pair.target, found.contract)


def not_examined(one: Looks, reason: str) -> None:
    """Note why the other uses of a pair were not tried."""
    one.contract = (ContractCheck(aspect="contract", result="not_tried", detail=reason),)
