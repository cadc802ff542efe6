"""What a runner does where somebody looks at a call."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.sandboxed.runner import subject as module
from cudal1_ci.sandboxed.runner.runner import Trials
from cudal1_ci.sandboxed.runner.subject import Subject


@pytest.mark.parametrize(("is_training", "num_drawn"), [(False, 0), (True, 1)])
def test_gradients_of_outputs_are_drawn_where_there_is_a_backward_pass_and_not_in_what_is_looked_at(
    tmp_path, monkeypatch, is_training, num_drawn
):
    drawn = []

    def drawn_like(leaves, seed):
        drawn.append(seed)
        return [torch.ones_like(one) for one in leaves]

    monkeypatch.setattr(module, "drawn_like", drawn_like)
    subject = Subject(tmp_path)
    subject.train = is_training
    subject.program = torch.tanh
    subject.calls = {0: ([torch.rand(8, requires_grad=is_training)], {})}
    (row, *_) = [one for one in Trials(subject).profile([0]).rows if one.name == "aten::tanh"]
    assert row.num_calls == 1
    # In training the first call, which is not looked at, draws its own.
    assert len(drawn) == 2 * num_drawn
    assert list(subject.cotangents) == [0] * num_drawn
