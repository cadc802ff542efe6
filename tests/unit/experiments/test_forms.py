"""Hold that each slow form and its known fix return the same, with what both are seeded with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

FORMS = Path(__file__).parents[3] / "experiments/forms"
PAIRS = sorted(FORMS.glob("*/after/*.py"))


def loaded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), found)
    return found


def called(program: Any, slow: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    model = program(*slow["get_init_inputs"]()).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        answer = model(*slow["get_inputs"]())
    return answer if isinstance(answer, tuple) else (answer,)


@pytest.mark.parametrize("after", PAIRS, ids=lambda one: f"{one.parts[-3]}-{one.stem}")
def test_fix_returns_what_its_slow_form_returns(after: Path) -> None:
    slow = loaded(after.parent.with_name(after.name))
    ours, theirs = called(slow["Model"], slow), called(loaded(after)["ModelNew"], slow)
    for one, other in zip(ours, theirs, strict=True):
        assert one.isfinite().all()
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_every_form_has_a_fix_and_names_its_source() -> None:
    slow = sorted(FORMS.glob("*/*.py"))
    assert [one.parent / "after" / one.name for one in slow] == PAIRS
    assert len(PAIRS) >= 80
    for one in slow:
        assert one.read_text(encoding="utf-8").startswith('"""'), one
