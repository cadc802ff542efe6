"""Stage 3 on the toy language: what is paid is learned, what is found is shown, a kill costs
nothing but time."""

from __future__ import annotations

import statistics

import msgspec
import pytest
import torch

from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.propose.llm.hack_review.cases import KIND, Case
from cudal1_ci.records import Evaluation, Verdict
from cudal1_ci.records.archive import Archive
from model_training.contrastive import ContrastiveConfig, contrastive
from model_training.environment import EnvironmentConfig
from model_training.grpo_trainer import warmup
from model_training.objective.reward import smoothed
from model_training.policy import PolicyConfig, load_policy
from model_training.rollouts.transformers_rollouts import TransformersRollouts
from model_training.run import Run, Stopped
from model_training.scoring import Scorer
from model_training.toy import DEVICE, POLICY, PROGRAMS, ToyJudge, tasks
from tests.training.contrastive_rig import (
    VARYING,
    Killed,
    MemoryRun,
    config,
    rig,
)

NEEDED = {
    *("reward", "reward_std", "executable", "correct", "copies", "hacks", "fast_1", "fast_1.2"),
    *("speedup_median", "speedup_geometric_mean", "best", "silent_share", "length", "cut"),
    *("clipped_share", "entropy", "divergence", "ratio", "generate_s", "score_s", "train_s"),
    *("judged", "prefiltered", "prefilter_s", "tokens_per_s"),
    *("exemplar_age", "exemplar_diversity", "analysis"),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors this small are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def learned(taught, tmp_path_factory):
    """A run of twelve steps, with its archive's folder."""
    folder = tmp_path_factory.mktemp("run")
    run = MemoryRun(folder)
    with rig(folder, taught, config(num_steps=12), run) as life:
        assert life.train() == 12
    return run


def weights(life) -> list[torch.Tensor]:
    return [one.detach().clone() for one in life.policy.parameters()]


def mean(run: MemoryRun, name: str, steps) -> float:
    return statistics.fmean(run.numbers[step][name] for step in steps)


def test_what_is_faster_is_learned(learned):
    assert mean(learned, "reward", [1]) < 1.0
    assert mean(learned, "reward", [10, 11, 12]) > 2.0
    assert mean(learned, "fast_1.2", [1]) < 0.4
    assert mean(learned, "fast_1.2", [10, 11, 12]) > 0.8
    assert learned.numbers[12]["best"] == pytest.approx(2.5)


def test_every_number_of_a_step_is_there(learned):
    for numbers in learned.numbers.values():
        assert set(numbers) >= NEEDED
    first, second = learned.numbers[1], learned.numbers[2]
    assert first["ratio"] == pytest.approx(1.0)
    assert first["divergence"] == pytest.approx(0.0, abs=1e-6)
    assert second["divergence"] > 1e-4
    assert first["exemplar_age"] is None, "only the reference was shown"
    assert second["exemplar_age"] == 1.0


def test_samples_are_written_as_all_stages_write_them(learned):
    assert len(learned.samples) == 12 * 4 * 8
    first = learned.samples[0]
    assert [one["role"] for one in first["messages"]] == ["system", "user"]
    assert sum("messages" in one for one in learned.samples) == 12 * 4
    passed = [one for one in learned.samples if one["status"] == "passed"]
    assert {round(one["speedup"], 6) for one in passed} <= {2.5, 1.3, 1.0, 0.5}
    assert all(one["reward"] == one["speedup"] for one in passed), "before it is smoothed"


def test_what_a_step_found_is_shown_by_the_next(learned):
    with Archive.open(learned.folder / "archive.sqlite") as archive:
        codes = {
            one.candidate.id: one.candidate.program.source
            for task in tasks()
            for one in archive.passed(task.problem.id)
        }
    seen: dict[int, set[str]] = {}
    for sample in learned.samples:
        if "messages" in sample:
            text = sample["messages"][1]["content"]
            found = {name for name in sample["exemplar_ids"] if name in codes}
            assert all(codes[name].strip() in text for name in found)
            seen.setdefault(sample["step"], set()).update(found)
    assert seen[1] == set()
    assert seen[2]
    assert any("2.50" in one["messages"][1]["content"] for one in learned.samples[-32:-31])


def test_hacks_are_paid_nothing_kept_as_cases_and_never_shown(learned):
    hacks = [one for one in learned.samples if one["status"] == "reward_hack"]
    assert hacks
    assert all(one["reward"] == 0.0 and one["findings"] == ["toy.reward_hack"] for one in hacks)
    kept = next(one.code for one in PROGRAMS if one.name == "kept")
    with Archive.open(learned.folder / "archive.sqlite") as archive:
        (case,) = {one.code.strip() for one in archive.all_noted(KIND, Case).values()}
    assert case == kept
    shown = [one["messages"][1]["content"] for one in learned.samples if "messages" in one]
    assert not any(kept in text for text in shown)
    assert mean(learned, "hacks", [10, 11, 12]) < 0.05


def test_copies_are_paid_nothing(learned):
    copies = [one for one in learned.samples if one["status"] == "copy"]
    assert copies
    assert all(one["reward"] == 0.0 and one["refused"] == "unchanged" for one in copies)


@pytest.mark.parametrize("sampler", ["none", "random", "island"])
def test_baselines_differ_in_what_is_shown(taught, tmp_path, sampler):
    run = MemoryRun(tmp_path)
    with rig(tmp_path, taught, config(num_steps=3, sampler=sampler), run) as life:
        life.train()
    shown = [one["exemplar_ids"] for one in run.samples if one["step"] > 1]
    texts = [one["messages"][1]["content"] for one in run.samples if "messages" in one]
    if sampler == "none":
        assert not any(shown)
        assert not any("Earlier variants" in text for text in texts)
        assert run.numbers[3]["exemplar_diversity"] is None
    else:
        assert any(shown)
        assert all("Earlier variants" in text for text in texts)


def test_frozen_weights_stay_and_exemplars_get_better(taught, tmp_path):
    run = MemoryRun(tmp_path)
    with rig(tmp_path, taught, config(num_steps=4, learning_rate=0.0), run) as life:
        before = weights(life)
        life.train()
        assert all(torch.equal(a, b) for a, b in zip(before, weights(life), strict=True))
    assert run.numbers[4]["best"] > run.numbers[1]["best"] > 1.0
    assert run.numbers[4]["exemplars"] > run.numbers[1]["exemplars"]


def dies_while_writing(life, step):
    life.run.dies_in = step


def dies_while_judging(life, step):
    """Some verdicts into a step."""
    outcomes = life.scorer.outcomes

    def dying(answers):
        if len(life.run.numbers) < step - 1:
            return outcomes(answers)
        outcomes(answers[:9])
        raise Killed

    life.scorer.outcomes = dying


@pytest.mark.parametrize("dies", [dies_while_writing, dies_while_judging])
def test_a_run_that_was_killed_makes_the_same_curve(taught, learned, tmp_path, dies):
    """From a checkpoint some steps before the kill, whose verdicts are in the archive already."""
    settings = config(num_steps=4, checkpoint_every=1)
    first, second = MemoryRun(tmp_path / "first"), MemoryRun(tmp_path / "second")
    with rig(tmp_path, taught, settings, first) as life:
        dies(life, 4)
        with pytest.raises(Killed):
            life.train()
    checkpoint = first.saved[0]
    assert (checkpoint.step, sorted(first.numbers)) == (1, [1, 2, 3])
    with rig(tmp_path, taught, settings, second) as life:
        assert life.train(checkpoint) == 4
    assert sorted(second.numbers) == [2, 3, 4]
    whole = {step: numbers for step, numbers in learned.curve().items() if step <= 4}
    assert {**first.curve(), **second.curve()} == whole
    again = [one for one in second.samples if one["step"] == 3]
    former = [one for one in first.samples if one["step"] == 3]
    assert [one["completion"] for one in again] == [one["completion"] for one in former]
    assert checkpoint.state["stream"]["cursor"] == 4
    assert checkpoint.state["archive_published"] == checkpoint.state["stream"]["published"]


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(taught, learned, tmp_path):
    """What its former life has found is not known until it is found again."""
    first, second = MemoryRun(tmp_path), MemoryRun(tmp_path)
    with rig(tmp_path, taught, config(num_steps=3), first) as life:
        dies_while_writing(life, 3)
        with pytest.raises(Killed):
            life.train()
    with rig(tmp_path, taught, config(num_steps=3), second) as life:
        assert life.train() == 3
        assert life.judge.asked == [], "all verdicts are known"
    assert second.curve() == {step: learned.curve()[step] for step in (1, 2, 3)}


def test_a_run_that_must_stop_keeps_what_it_has_done(taught, learned, tmp_path):
    first, second = MemoryRun(tmp_path, stops_after=2), MemoryRun(tmp_path)
    with rig(tmp_path, taught, config(num_steps=4), first) as life:
        assert life.train() == 2
    with rig(tmp_path, taught, config(num_steps=4), second) as life:
        assert life.train(first.saved[-1]) == 4
    whole = {step: numbers for step, numbers in learned.curve().items() if step <= 4}
    assert {**first.curve(), **second.curve()} == whole
    assert [one.step for one in second.saved] == [4]


class Strict(ToyJudge):
    """Passes nothing."""

    def evaluate(self, problem, candidate):
        verdict = Verdict(status="timeout")
        return Evaluation(candidate=candidate, verdict=verdict, device=DEVICE)


def test_where_nothing_differs_nothing_is_learned(taught, tmp_path):
    run = MemoryRun(tmp_path)
    with rig(tmp_path, taught, config(num_steps=2), run) as life:
        life.scorer.judges[0].judge = Strict()
        before = weights(life)
        life.train()
        assert all(torch.equal(a, b) for a, b in zip(before, weights(life), strict=True))
    assert run.numbers[2]["silent_share"] == 1.0
    assert (run.numbers[2]["num_tokens"], run.numbers[2]["loss"]) == (0, None)


def test_gradients_that_are_no_numbers_end_the_stage_with_its_weights(taught, tmp_path):
    run = MemoryRun(tmp_path)
    with rig(tmp_path, taught, config(num_steps=5), run) as life:
        before = weights(life)
        first = life.policy.parameters()[0]
        handle = first.register_hook(lambda gradient: gradient * torch.nan)
        with pytest.raises(UnsupportedError, match="no number"):
            life.train()
        handle.remove()
        assert all(torch.equal(a, b) for a, b in zip(before, weights(life), strict=True))
    assert [run.numbers[step]["skipped"] for step in (1, 2)] == [1, 2]


def test_rewards_are_smoothed_over_the_batch(taught, tmp_path):
    with rig(tmp_path, taught, config(num_steps=1), MemoryRun(tmp_path)) as life:
        loop = life.loop()
        asked = loop.roll_out(1)
        paid = [one for group in loop.rewards(asked.groups) for one in group]
    raw = [one.reward for group in asked.groups for one in group.outcomes]
    assert max(raw) == pytest.approx(2.5)
    assert paid == smoothed(raw) != raw
    assert max(paid) <= 1.5


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"contrastive.group-size: expected 2 or more, got 1"):
        ContrastiveConfig(group_size=1)
    with pytest.raises(ValueError, match="expected a divisor of the 32 completions"):
        config(grpo={"piece_size": 5})
    rates = [warmup(step, ContrastiveConfig(num_warmup_steps=1)) for step in (1, 2, 3)]
    assert rates == [0.5, 1.0, 1.0]


def test_an_adapter_is_trained_in_the_folder_of_a_run(taught, tmp_path):
    """Interrupted while answers are judged, and taken up again: one curve, in files."""
    settings = config(num_steps=3, grpo={"piece_size": 8})
    judge = ToyJudge()

    def opened(folder, is_resumed=False) -> Run:
        return Run.open(folder, settings, seed=3, weights=taught, is_resumed=is_resumed)

    def trained(run, scorer) -> str:
        policy = load_policy(PolicyConfig(path=str(taught), device="cpu"), seed=1)
        return contrastive(policy, TransformersRollouts(policy), scorer, tasks(), settings, run, 3)

    class Impatient:
        """Told to stop in its third step."""

        def __init__(self, scorer, run):
            self.scorer, self.run, self.num_asked = scorer, run, 0
            self.prefilter_s = 0.0
            self.archive, self.device, self.config = scorer.archive, scorer.device, scorer.config

        def outcomes(self, answered):
            self.num_asked += 1
            if self.num_asked == 3:
                self.scorer.outcomes(answered[:5])
                raise Stopped("SIGTERM")
            return self.scorer.outcomes(answered)

    curves = []
    for name in ("whole", "stopped"):
        folder = tmp_path / name
        with Archive.open(tmp_path / f"{name}.sqlite") as archive:
            scorer = Scorer([judge], archive, POLICY, settings.environment)
            with opened(folder) as run:
                if name == "stopped":
                    with pytest.raises(Stopped, match="SIGTERM"):
                        trained(run, Impatient(scorer, run))
                    assert run.newest("contrastive").step == 2
                else:
                    assert trained(run, scorer) == "contrastive-3"
            if name == "stopped":
                with opened(folder, is_resumed=True) as run:
                    assert trained(run, scorer) == "contrastive-3"
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        said = [msgspec.json.decode(line) for line in lines]
        assert [one["step"] for one in said] == [1, 2, 3]
        curves.append([{k: v for k, v in one.items() if is_steady(k)} for one in said])
        samples = (folder / "samples/contrastive.jsonl").read_text().splitlines()
        assert len(samples) == 3 * 32
        saved = folder / "checkpoints/contrastive-3"
        assert {"adapter_model.safetensors", "optimizer.pt", "state.json"} <= {
            path.name for path in saved.iterdir()
        }
    assert curves[0] == curves[1]


def test_a_scorer_that_pays_otherwise_is_refused(taught, tmp_path):
    with rig(tmp_path, taught, config(), MemoryRun(tmp_path)) as life:
        other = EnvironmentConfig(pays_shown=False)
        scorer, rollouts = Scorer([life.judge], life.archive, POLICY, other), life.loop().rollouts
        with pytest.raises(ValueError, match="expected a scorer that pays"):
            contrastive(life.policy, rollouts, scorer, tasks(), config(), life.run, 0)


def is_steady(name: str) -> bool:
    """Whether a number of a step is alike when it is made again."""
    return name != "seconds" and not name.endswith("_s") and name not in VARYING
