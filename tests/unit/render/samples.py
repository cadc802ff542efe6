"""A report as a scan leaves it, with every kind of entry, and the checkout that it speaks of."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from cudal1_ci.records import (
    Call,
    Candidate,
    Constant,
    Device,
    Entry,
    Evaluation,
    Finding,
    Measurement,
    Notice,
    OverlayFile,
    Repetition,
    Report,
    Target,
    TensorSpec,
    TreeProgram,
    Verdict,
    Workload,
    content_hash,
)

ATTENTION = '''\
"""Attention as people write it."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        mask = torch.ones(t, t).tril() == 0
        scores = scores.masked_fill(mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
'''

FASTER_ATTENTION = ATTENTION.replace(
    """\
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        mask = torch.ones(t, t).tril() == 0
        scores = scores.masked_fill(mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
""",
    """\
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).reshape(b, t, d))
""",
)

POOLING = """\
import torch


def pool(x, weight):
    return torch.diag(weight) @ x
"""

FASTER_POOLING = POOLING.replace("torch.diag(weight) @ x", "weight.unsqueeze(1) * x")

CPU = Device(
    kind="cpu",
    name="AMD EPYC 9B14",
    num_threads=1,
    software={"python": "3.11.2", "torch": "2.13.0", "platform": "Linux"},
)
SLOWER_CPU = Device(kind="cpu", name="Intel Xeon 6976P", num_threads=2, software={"torch": "2.13"})


def write_checkout(root: Path) -> Path:
    """The files that the sample report speaks of."""
    (root / "slowformer").mkdir(parents=True, exist_ok=True)
    (root / "slowformer/attention.py").write_text(ATTENTION)
    (root / "slowformer/pooling.py").write_text(POOLING)
    return root


def a_target(path: str = "slowformer/attention.py", qualname: str = "Attention") -> Target:
    return Target(path=path, qualname=qualname, kind="torch_module", first_line=9, last_line=23)


def a_workload(name: str = "base", **fields) -> Workload:
    return Workload(
        name=name,
        provenance="traced",
        source="tests/test_attention.py::test_shapes",
        init=Call(args=(Constant(value=256),), kwargs={"num_heads": Constant(value=8)}),
        call=Call(args=(TensorSpec(shape=(8, 128, 256), dtype="float32"),)),
        share=0.62,
        **fields,
    )


def launches(
    seed: int, speedup: float, reference_us: float = 1840.0, num_launches: int = 5
) -> tuple[Repetition, ...]:
    """Times with a noise of about a percent, drawn from a seed."""
    generator = random.Random(seed)
    made = []
    for _ in range(num_launches):
        drift = generator.gauss(1, 0.004)
        made.append(
            Repetition(
                reference_us=tuple(
                    round(reference_us * drift * generator.gauss(1, 0.01), 2) for _ in range(9)
                ),
                candidate_us=tuple(
                    round(reference_us / speedup * generator.gauss(1, 0.012), 2) for _ in range(9)
                ),
                num_calls=20,
            )
        )
    return tuple(made)


def a_measurement(
    speedup: float, workload: str = "base", seed: int = 0, device: Device = CPU, **fields
) -> Measurement:
    return Measurement(
        workload=workload,
        repetitions=launches(seed, speedup, **fields),
        control=launches(seed + 1000, 1.0, **fields),
        device=device,
    )


def a_candidate(
    root: Path, path: str, before: str, after: str, proposer: str = "playbook:sdpa", **fields
) -> Candidate:
    file = OverlayFile(path=path, text=after, base_digest=content_hash(before))
    program = TreeProgram(
        root=str(root),
        import_root=".",
        import_path="slowformer.attention:Attention",
        digest="0123456789abcdef",
        overlay=(file,),
    )
    return Candidate(problem_id="problem", program=program, proposer=proposer, **fields)


def passed(candidate: Candidate, *measurements: Measurement, **fields) -> Evaluation:
    return Evaluation(
        candidate=candidate,
        verdict=Verdict(status="passed", max_abs_error=2.4e-7, max_rel_error=1.9e-6, **fields),
        measurements=measurements,
        device=measurements[0].device,
        elapsed_s=3.2,
    )


def failed(candidate: Candidate, status: str, message: str, **fields) -> Evaluation:
    finding = Finding(rule="values.mismatch", message=message, evidence="worst at [0, 3, 17]")
    verdict = Verdict(status=status, findings=(finding,), **fields)
    return Evaluation(candidate=candidate, verdict=verdict, device=CPU, elapsed_s=0.9)


def attention_entry(root: Path, device: Device = CPU, speedup: float = 3.1) -> Entry:
    sdpa = a_candidate(
        root,
        "slowformer/attention.py",
        ATTENTION,
        FASTER_ATTENTION,
        analysis="The scores are written to memory and read back three times, and the mask is "
        "made anew in each call; one fused call does neither.",
        design="The mask is causal and nothing else.",
        techniques=("fused attention", "hoisted mask"),
    )
    unmasked = a_candidate(
        root,
        "slowformer/attention.py",
        ATTENTION,
        FASTER_ATTENTION.replace(", is_causal=True", ""),
        proposer="playbook:sdpa_unmasked",
    )
    return Entry(
        target=a_target(),
        workloads=(a_workload(), a_workload("long", mode="train")),
        evaluations=(
            failed(unmasked, "incorrect_values", "output 0 differs: 1.31 > 1.2e-05 allowed"),
            passed(
                sdpa,
                a_measurement(speedup, device=device, seed=1),
                a_measurement(speedup / 2, "long", device=device, seed=2, reference_us=25600.0),
            ),
        ),
        reused=(unmasked.id,),
        best=1,
    )


def pooling_entry(root: Path) -> Entry:
    candidate = a_candidate(
        root,
        "slowformer/pooling.py",
        POOLING,
        FASTER_POOLING,
        proposer="playbook:diagonal",
        analysis="A product with a diagonal matrix scales rows.",
        techniques=("algebra",),
    )
    target = Target(
        path="slowformer/pooling.py",
        qualname="pool",
        kind="torch_function",
        first_line=4,
        last_line=5,
        selected_because="changed",
    )
    tensors = (
        TensorSpec(shape=(512, 64), dtype="float32"),
        TensorSpec(shape=(512,), dtype="float32"),
    )
    declared = Workload(name="wide", provenance="declared", call=Call(args=tensors))
    return Entry(
        target=target,
        workloads=(declared,),
        evaluations=(passed(candidate, a_measurement(14.2, "wide", seed=3, reference_us=410.0)),),
        best=0,
    )


def sample_report(root: Path) -> Report:
    """One entry of each kind."""
    same = a_candidate(root, "slowformer/pooling.py", POOLING, FASTER_POOLING, "playbook:compile")
    traceback = (
        "runtime_error: the reference raised\n"
        '  File "slowformer/vocab.py", line 12, in __init__\n'
        "FileNotFoundError: vocab.txt"
    )
    no_workload = "no call of it is known"
    hint = "declare a workload, or run `cudal1-ci trace`"
    return Report(
        repository="slowformer",
        head_sha="5f3c2a9d41",
        device=CPU,
        entries=(
            attention_entry(root),
            Entry(
                target=a_target("slowformer/norm.py", "RMSNorm"),
                workloads=(a_workload(),),
                evaluations=(passed(same, a_measurement(1.0, seed=4)),),
            ),
            Entry(target=a_target("slowformer/mlp.py", "MLP"), workloads=(a_workload(),)),
            pooling_entry(root),
            Entry(
                target=a_target("slowformer/zero.py", "Zero"),
                skipped="degenerate: the output is the same for all inputs",
                workloads=(a_workload(),),
            ),
            Entry(target=a_target("slowformer/vocab.py", "Vocabulary"), skipped=traceback),
            Entry(target=a_target("slowformer/rope.py", "Rotary"), skipped=no_workload, hint=hint),
            Entry(
                target=a_target("slowformer/beam.py", "Beam|Search<3>"),
                skipped=no_workload,
                hint=hint,
            ),
        ),
        warnings=(Notice(path="slowformer/old.py", message="does not parse: line 3: `print x`"),),
        elapsed_s=94.4,
    )


def with_findings(evaluation: Evaluation, *findings: Finding) -> Evaluation:
    verdict = msgspec.structs.replace(evaluation.verdict, findings=findings)
    return msgspec.structs.replace(evaluation, verdict=verdict)
