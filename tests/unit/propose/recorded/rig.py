"""Propose for a module given as text, recorded in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import msgspec
import torch

from cudal1_ci.propose.recorded.rule import RecordedRule
from cudal1_ci.propose.recorded.strategy import RULES, RecordedRewrites
from cudal1_ci.records import Problem, TextProgram
from cudal1_ci.records.recording import Recording
from cudal1_ci.sandboxed.recorder import launches
from cudal1_ci.sandboxed.recorder.recording import recorded
from cudal1_ci.sandboxed.runner.arguments import flatten
from cudal1_ci.verification.verify import text_problem

EVERY_US = 10.0


def loaded(text: str, path: Path) -> ModuleType:
    """Return the module of a text, with a file of its own."""
    path.write_text(text)
    module = ModuleType("given")
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def problem_and_recording(tmp_path: Path, text: str, mode: str = "infer") -> tuple[Problem, Any]:
    """Return a text's problem, and one call of its `Model` as the recorder keeps it, but with the
    same time for each operation: a busy machine delays one at random."""
    path = tmp_path / "before.py"
    module = loaded(text, path)
    problem = text_problem(path, mode)
    made = getattr(module, "get_init_inputs", list)()
    model = module.Model(*made).train(mode == "train")
    inputs = module.get_inputs()
    with torch.set_grad_enabled(mode == "train"):
        tensors = [one for one in flatten(inputs)[0] if isinstance(one, torch.Tensor)]
        # No model of a text has built one, and the search looks at all objects of this process.
        with mock.patch.object(launches, "extensions", list):
            found = recorded(lambda: model(*inputs), model, tensors, None, path)
    recording = msgspec.convert(found, Recording, from_attributes=True)
    even = [msgspec.structs.replace(one, host_us=EVERY_US) for one in recording.operations]
    return problem, msgspec.structs.replace(recording, operations=tuple(even))


def proposed(
    tmp_path: Path,
    text: str,
    rules: Sequence[RecordedRule] = RULES,
    mode: str = "infer",
    kind: str = "cpu",
) -> dict[str, str]:
    """Return new texts by the name of the only rule that made them."""
    problem, recording = problem_and_recording(tmp_path, text, mode)
    found: dict[str, str] = {}
    for rule in rules:
        strategy = RecordedRewrites(rules=(rule,), kind=kind)
        for one in strategy.propose_recorded(problem, recording, (), 9):
            assert isinstance(one.program, TextProgram)
            found[rule.name] = one.program.source
    return found


def outputs(text: str, path: Path, seed: int = 0) -> Any:
    """Return what the text's model, or its replacement, makes of random inputs."""
    module = loaded(text, path)
    torch.default_generator.manual_seed(seed)  # of all devices it takes ten times as long
    model = getattr(module, "ModelNew", None) or module.Model
    made = model(*getattr(module, "get_init_inputs", list)()).eval()
    inputs = module.get_inputs()
    with torch.no_grad():
        return made(*inputs)


def assert_same(tmp_path: Path, text: str, new: str) -> None:
    """Assert that two texts give close outputs for the same random inputs and parameters."""
    for seed in range(3):
        torch.testing.assert_close(
            outputs(new, tmp_path / "after.py", seed),
            outputs(text, tmp_path / "again.py", seed),
            rtol=1e-4,
            atol=1e-5,
        )


def assert_found(tmp_path: Path, text: str, rule: str) -> None:
    """Assert that a rule proposes for a text, and that its proposal gives the same."""
    found = proposed(tmp_path, text, named(rule))
    assert rule in found
    assert_same(tmp_path, text, found[rule])


def assert_left_alone(tmp_path: Path, text: str, rule: str) -> None:
    """Assert that a rule proposes nothing for a text."""
    assert named(rule) and proposed(tmp_path, text, named(rule)) == {}


def named(rule: str) -> list[RecordedRule]:
    """Return the rules of a name."""
    return [one for one in RULES if one.name == rule]
