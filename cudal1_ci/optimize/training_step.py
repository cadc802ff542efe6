"""Make a training step of a module: a program that calls it forward and backward, and lets an
optimizer step.

    problem = step_problem(root_problem, workload, "AdamW")

The step is a module of the checkout, laid over it as candidates are. It returns the gradients, so
they are compared. Afterwards it puts the weights back: each call begins with the same ones. The
loss is the mean square of what the module returns, since the module alone does not say its own.
"""

from __future__ import annotations

import msgspec

from cudal1_ci.records import OverlayFile, Problem, TreeProgram, Workload, content_hash

MODULE = "cudal1_ci_training_step"
TEXT = '''"""One training step of a module, from the same weights each time."""

import functools
import importlib

import torch
from torch.utils import _pytree

ROOT = functools.reduce(getattr, {names!r}, importlib.import_module({module!r}))


class Step(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.model = ROOT(*args, **kwargs)
        self.optimizer = None

    def forward(self, *args, **kwargs):
        with torch.enable_grad():
            self.model.train()
            parameters = [one for one in self.model.parameters() if one.requires_grad]
            if self.optimizer is None:
                self.optimizer = torch.optim.{optimizer}(parameters, lr={rate})
            before = [one.detach().clone() for one in parameters]
            self.optimizer.zero_grad()
            leaves = _pytree.tree_leaves(self.model(*args, **kwargs))
            tensors = [one for one in leaves if torch.is_tensor(one) and one.requires_grad]
            loss = sum(one.square().mean() for one in tensors)
            loss.backward()
            self.optimizer.step()
            gradients = [one.grad for one in parameters if one.grad is not None]
            self.optimizer.zero_grad()
            with torch.no_grad():
                torch._foreach_copy_(parameters, before)
        return loss.detach(), *gradients
'''
RATE = 1e-3
OPTIMIZERS = frozenset(
    (
        *("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta"),
        *("ASGD", "Rprop", "Adafactor", "Muon"),
    )
)
"""Optimizers that step without a closure."""


def step_problem(problem: Problem, workload: Workload, optimizer: str) -> Problem | None:
    """Return the problem of one step under a workload that trains; None for an optimizer that
    needs more than parameters, and for a text."""
    reference = problem.reference
    if optimizer not in OPTIMIZERS or not isinstance(reference, TreeProgram):
        return None
    module, _, qualname = reference.import_path.partition(":")
    text = TEXT.format(
        module=module, names=tuple(qualname.split(".")), optimizer=optimizer, rate=RATE
    )
    path = f"{reference.import_root}/{MODULE}.py".removeprefix("./")
    program = msgspec.structs.replace(
        reference,
        import_path=f"{MODULE}:Step",
        digest=content_hash([reference.digest, qualname, text]),
        overlay=(*reference.overlay, OverlayFile(path=path, text=text)),
    )
    # The step itself turns gradients on.
    calls = msgspec.structs.replace(workload, mode="infer")
    return Problem(reference=program, workloads=(calls,), target=problem.target)
