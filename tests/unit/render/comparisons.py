"""Reports of pull requests in the published form, with numbers that never change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cudal1_ci.records import (
    Acknowledgement,
    ComparedWorkload,
    Comparison,
    ContractCheck,
    Device,
    Entry,
    Notice,
    Report,
    Target,
)
from cudal1_ci.render.published import totals
from cudal1_ci.stats.figures import of_rows

BASE_SHA = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
HEAD_SHA = "5f3c2a9d41be77c0d6a1f2e3948576a0b1c2d3e4"
RUN_URL = "https://github.com/acme/slowformer/actions/runs/4711"

H200 = Device(
    kind="cuda",
    name="NVIDIA H200",
    capability="9.0",
    driver="570.86.15",
    software={"torch": "2.13.0"},
    clock_mhz=1980.0,
    temperature_c=41.0,
    other_processes=0,
)
L40S = Device(kind="cuda", name="NVIDIA L40S", driver="570.86.15", software={"torch": "2.13.0"})
EPYC = Device(kind="cpu", name="AMD EPYC 9B14", num_threads=1, software={"torch": "2.13.0"})

AGREED = Acknowledgement(
    target="*:Attention",
    max_slowdown=1.2,
    reason="the mask was wrong before; see the design notes",
    owner="@ada",
    expires="2026-12-31",
)


def a_row(
    ratio: float | None,
    verdict: str = "same",
    workload: str = "base",
    device: Device | None = H200,
    base_us: float = 120.0,
    **more,
) -> ComparedWorkload:
    if ratio is None:
        return ComparedWorkload(workload=workload, verdict=verdict, device=device, **more)
    return ComparedWorkload(
        workload=workload,
        verdict=verdict,
        device=device,
        slowdown=ratio,
        slowdown_low=ratio - 0.012,
        slowdown_high=ratio + 0.013,
        base_us=base_us,
        head_us=base_us * ratio,
        control_spread=0.004,
        num_measurements=2 if verdict in ("regression", "improvement") else 1,
        **more,
    )


def compared(qualname: str, *rows: ComparedWorkload, verdict: str = "same", **more):
    """An entry whose worst row decides."""
    path = more.pop("path", "slowformer/attention.py")
    comparison = of_rows(rows, Comparison(verdict=verdict, **more))
    return Entry(target=a_target(qualname, path), evaluations=(), comparison=comparison)


def a_target(qualname: str, path: str = "slowformer/attention.py") -> Target:
    return Target(path=path, qualname=qualname, kind="torch_module", first_line=9, last_line=23)


def a_document(*entries: Entry, devices: Sequence[Device] = (H200,), **more) -> Report:
    return Report(
        repository="slowformer",
        base_sha=BASE_SHA,
        head_sha=HEAD_SHA,
        device=devices[0] if len(devices) == 1 else None,
        devices=tuple(devices),
        entries=entries,
        totals=totals(entries),
        elapsed_s=41.0,
        **more,
    )


NOT_CALLED = Entry(
    target=a_target("Rotary", "slowformer/rope.py"),
    skipped="no call of it is known",
    hint="declare a workload, or run `cudal1-ci trace`",
    evaluations=(),
)


def regression() -> Report:
    return a_document(
        compared(
            "Attention",
            a_row(1.121, "regression"),
            a_row(1.004, workload="long", base_us=2400.0),
        ),
        compared("RMSNorm", a_row(0.84, "improvement"), path="slowformer/norm.py"),
        compared(
            "MLP",
            a_row(1.03, "inconclusive", reason="a difference was seen once and not again"),
            path="slowformer/mlp.py",
        ),
        compared("Embedding", a_row(1.001), path="slowformer/embedding.py"),
        compared("Mixer", verdict="new", reason="it is new", path="slowformer/mixer.py"),
        compared("Legacy", verdict="removed", path="slowformer/legacy.py"),
        NOT_CALLED,
        warnings=(Notice(path="slowformer/old.py", message="does not parse: line 3"),),
    )


def acknowledged() -> Report:
    return a_document(compared("Attention", a_row(1.121, "regression"), acknowledged=AGREED))


def fixed() -> Report:
    return a_document(compared("Attention", a_row(1.002), a_row(0.998, workload="long")))


def three_devices() -> Report:
    return a_document(
        compared(
            "Attention",
            a_row(1.121, "regression"),
            a_row(1.3, "regression", workload="long"),
            a_row(1.004, device=L40S, base_us=310.0),
            a_row(None, "inconclusive", device=EPYC, reason="too little was measured"),
            output_change="output 0 differs by up to 3.1e-02 where 1.2e-05 is allowed",
        ),
        compared("RMSNorm", a_row(0.84, "improvement"), a_row(0.9, "improvement", device=L40S)),
        devices=(H200, L40S, EPYC),
    )


def other_uses() -> Report:
    """Two modules whose outputs are the same at the workload: one breaks other uses."""
    held = ContractCheck(group="sizes", aspect="one row of x", result="held")
    error = "RuntimeError: view size is not compatible with input tensor's size and stride"
    lines = (
        held,
        ContractCheck(
            group="dtypes",
            aspect="dtype float64",
            result="broken",
            detail="it fails: RuntimeError: expected Float but found Double",
        ),
        ContractCheck(
            group="layouts",
            aspect="layout of x: transposed",
            result="broken",
            detail=f"x transposed: it fails: {error}",
        ),
        ContractCheck(
            group="values",
            aspect="NaN and infinities in x",
            result="differs",
            detail="NaN: 61 elements are finite",
        ),
        ContractCheck(aspect="device", result="not_tried", detail="there is only the CPU here"),
    )
    untried = ContractCheck(
        aspect="contract",
        result="not_tried",
        detail="outputs changed at the workload: contract not examined",
    )
    return a_document(
        compared("Attention", a_row(1.002), contract=lines, contract_s=7.1),
        compared("RMSNorm", a_row(1.0), contract=(held, lines[-1]), contract_s=3.4),
        compared("MLP", a_row(0.999), contract=(held,), contract_s=3.2),
        compared("Mixer", a_row(1.0), contract=(untried,), output_change="output 0 differs"),
    )


def proposals(golden_report: Report) -> Report:
    """What was proven for the sample report, with comparisons."""
    measured = [compared("x", a_row(1.004, device=EPYC)).comparison] * 2
    entries = [e for e in golden_report.entries if e.best is not None]
    with_base = [
        msgspec.structs.replace(entry, comparison=comparison)
        for entry, comparison in zip(entries, measured, strict=True)
    ]
    return a_document(*with_base, devices=golden_report.devices)


def many(num_targets: int, num_workloads: int = 5) -> Report:
    """Of a large pull request on three devices."""
    verdicts = ("regression", "improvement", "same", "inconclusive")
    ratios = {"regression": 1.2, "improvement": 0.8, "same": 1.0, "inconclusive": 1.04}
    entries = []
    for i in range(num_targets):
        verdict = verdicts[i % 4]
        rows = [
            a_row(ratios[verdict] + i / 1000, verdict, workload=f"shape_{n}", device=device)
            for n in range(num_workloads)
            for device in (H200, L40S, EPYC)
        ]
        entries.append(compared(f"Layer{i}", *rows, path=f"slowformer/layers/layer_{i}.py"))
    skipped = [
        msgspec.structs.replace(NOT_CALLED, target=a_target(f"Helper{i}"), skipped=f"reason {i}")
        for i in range(12)
    ]
    return a_document(*entries, *skipped, devices=(H200, L40S, EPYC))
