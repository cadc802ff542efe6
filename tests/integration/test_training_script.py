"""A file that trains at its top level, from the harvest to the verdict."""

from __future__ import annotations

import pytest

from cudal1_ci.records import (
    Call,
    Candidate,
    OverlayFile,
    Problem,
    TensorSpec,
    TreeProgram,
    Workload,
)
from cudal1_ci.verification import Session, TrialConfig
from tests.integration.conftest import ONE_LAUNCH, run

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

SCRIPT = """\
import torch
from torch import nn

WIDTH = 64


class Gate(nn.Module):
    def __init__(self, dim: int = WIDTH):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.fc(x)
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)


data = torch.load("rows.pt")
model = Gate()
for row in data:
    model(row).sum().backward()
"""


def test_a_class_of_a_script_that_trains_is_called_and_verified(checkout):
    root = checkout({"train.py": SCRIPT, ".gitignore": "__pycache__\n.cudal1-ci\n"})
    words = ("scan", root, "--harvest", "--no-compile", "--json", "-", "-q")
    scanned = run(*words, **ONE_LAUNCH)
    assert scanned.code == 0, scanned.stderr
    (entry,) = scanned.json["entries"]
    assert entry["target"]["qualname"] == "Gate"
    assert {one["provenance"] for one in entry["workloads"]} == {"config"}
    assert entry["evaluations"], entry["skipped"]
    assert all(one["status"] in ("passed", "inconclusive") for one in entry["evaluations"])


NATIVE = OverlayFile(path="scale.cu", text="// nothing is built of it")
"""With a file that is not imported the program runs in a copy of the checkout."""
FASTER = SCRIPT.replace("y * torch.rsqrt", "torch.rsqrt").replace("+ 1e-6)", "+ 1e-6) * y")
HIDDEN = "Gate.forward = wrapped(Gate.forward)\n"
FOR_NOTHING = "for row in ():\n    row.backward()\n"


@pytest.mark.parametrize("others", [(), (NATIVE,)], ids=["laid over", "copied"])
@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (SCRIPT, FASTER, "passed"),
        (SCRIPT, f"{FASTER}{HIDDEN}", "compile_error"),
        (
            SCRIPT.partition("data =")[0],
            f"{FASTER.partition('data =')[0]}{FOR_NOTHING}{HIDDEN}",
            "compile_error",
        ),
    ],
    ids=["edited", "with more work", "made a file that trains"],
)
def test_a_patch_may_add_nothing_that_an_import_leaves_out(checkout, before, after, status, others):
    root = str(checkout({"train.py": before}))
    reference = TreeProgram(root=root, import_root=".", import_path="train:Gate", digest="d")
    call = Call(args=(TensorSpec(shape=(8, 64), dtype="float32"),))
    workload = Workload(name="w", provenance="declared", init=Call(), call=call)
    problem = Problem(reference=reference, workloads=(workload,))
    patched = TreeProgram(
        root=root,
        import_root=".",
        import_path="train:Gate",
        digest="e",
        overlay=(OverlayFile(path="train.py", text=after), *others),
    )
    candidate = Candidate(problem_id=problem.id, program=patched, proposer="test")
    with Session(TrialConfig(num_launches=1, num_rounds=2), device="cpu") as session:
        verdict = session.evaluate(problem, candidate).verdict
    assert verdict.status == status, verdict
    if status != "passed":
        assert "may not add work" in verdict.findings[0].message
