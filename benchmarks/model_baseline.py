"""The zero line of a model: what it answers before any training, and what the judge says of it.

Forty tasks of KernelBench (baseline_tasks.py), which is fetched and never committed; what is needed
of it is packed into one file that can be carried to a machine with a GPU:

    python benchmarks/model_baseline.py KernelBench/.git --pack build/gpu/baseline-tasks.json
    python benchmarks/batch_server.py /models/qwen2.5-coder-0.5b --port 8100 &
    python benchmarks/model_baseline.py build/gpu/baseline-tasks.json \\
        --url http://127.0.0.1:8100/v1
    python benchmarks/model_baseline.py --table benchmarks/results/model-baseline-h200.json

Prompts, sampling, parser and judge are the product's: the reference with its workload, the device,
a profile, exemplars by the setting, a client of OpenAI's protocol, a session with its static rules.
A task has eight answers at temperature 0.8 and one that takes the likeliest token, in each of three
settings: no exemplars, exemplars drawn at random, and one from each of two buckets of similar
speedup. `none` comes first; what passed of it, what passed of the playbook, the original and the
best of similar tasks are what the other two draw from, both from the same. Where they draw the
same, as they must where there are two variants or fewer, they ask word for word the same with the
same seed, and share the answer.

Three stages, each ended by `--limit`, can be run apart; each goes on where it was ended, with what
is in the archive beside the result (`--append`): `judge` (the references, the playbook, whatever
answers there are), `generate` (what can be asked: first `none`, and the others once that was
judged), `table`. `all` is judge, generate, judge, generate, judge, table. A model that shares the
device with the judge should be ended while that is at work. Equal programs are judged once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import baseline_tasks
import msgspec
import text_trials
from baseline_judges import DEVICE, REFERENCE, TRIAL, Bench, judge_all, shares
from baseline_table import UNSETTLED, table
from discovery_speed import provenance

from cudal1_ci.optimize.llm_loop import Loop, Optimizer, begin, variants_of
from cudal1_ci.propose.llm.answer import Parsed, Unusable, parse
from cudal1_ci.propose.llm.asking import KIND, Asker, Question
from cudal1_ci.propose.llm.contrast import ContrastConfig
from cudal1_ci.propose.llm.contrastive import Optimization, OptimizerConfig
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.propose.llm.servers import Answer, LanguageModel
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.propose.llm.splice import splice
from cudal1_ci.propose.llm.variants import reference_text, variant_text
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.records import Candidate, Device, Identity, Problem, Record
from cudal1_ci.records.archive import Archive

OUTPUT = Path(__file__).parent / "results" / "model-baseline.json"
SETTINGS = ("none", "random", "bucket")
SAMPLINGS = ("greedy", "sampled")
ASKED, MODEL = "baseline question", "baseline model"
FINAL = ("degenerate", "empty", "too_long")
"""Failures that are the model's: the answer stands. After others it is asked for again."""
MOST_REWRITES = 16
REQUEST_S = 3600.0
"""An answer may wait for all others: the limit is the stage's."""
TOLD = 20
"""Answers between two lines."""


class Asked(Record, frozen=True, kw_only=True):
    """A question as it was fixed when its setting was begun, whatever is known later."""

    setting: str
    sampling: str
    task: str
    place: int
    temperature: float
    question: Question
    answer_key: str
    num_known: int
    """Variants from which its exemplars could be drawn."""


@dataclass(frozen=True)
class Reading:
    """What an answer comes to."""

    kind: str
    """`program`, or why there is none."""
    has_code: bool
    """Whether the code could be read, new or not."""
    candidate: Candidate | None = None


class Anywhere:
    """A model whose answers are the same wherever it is served: a run may go on behind another
    port."""

    def __init__(self, model: LanguageModel):
        self.identity = msgspec.structs.replace(model.identity, server="")
        self.ask, self.cancel = model.ask, model.cancel


@dataclass
class Run:
    """The tasks, and the archive with all that is known of them."""

    options: argparse.Namespace
    problems: dict[str, Problem]
    archive: Archive

    def asked(self) -> list[Asked]:
        """All questions that were fixed, by setting, sampling, task and place."""
        found = self.archive.all_noted(ASKED, Asked).values()
        order = list(self.problems)
        return sorted(
            (one for one in found if one.task in self.problems),
            key=lambda one: (
                SETTINGS.index(one.setting),
                one.sampling,
                order.index(one.task),
                one.place,
            ),
        )

    def references(self) -> dict[str, dict[str, Any]]:
        found = self.archive.all_noted(REFERENCE, dict[str, Any])
        return {task: found[task] for task in self.problems if task in found}

    def readings(self) -> Iterator[tuple[Asked, Answer, Reading]]:
        """Every answer with what it comes to; equal programs of a task are one candidate."""
        first: dict[tuple[str, str], Candidate] = {}
        for one in self.asked():
            answer = self.archive.noted(KIND, one.answer_key, Answer)
            if answer is None:
                continue
            reading = read(self.problems[one.task], answer)
            if reading.candidate is not None:
                form = fingerprint(variant_text(reading.candidate.program))
                same = first.setdefault((one.task, form), reading.candidate)
                reading = Reading(reading.kind, reading.has_code, same)
            yield one, answer, reading


def read(problem: Problem, answer: Answer) -> Reading:
    """An answer by the product's parser, as a program for its task."""
    if answer.failure is not None:
        return Reading(answer.failure, False)
    found = parse(answer.text, ("ModelNew", "Model"), is_cut=answer.finish_reason == "length")
    if isinstance(found, Unusable):
        return Reading(found.kind, False)
    assert isinstance(found, Parsed)
    program = splice(problem, found)
    if isinstance(program, Unusable):
        return Reading(program.kind, True)
    text = variant_text(program)
    if fingerprint(text) == fingerprint(reference_text(problem)):
        return Reading("unchanged", True)
    candidate = Candidate(problem_id=problem.id, program=program, proposer="model")
    return Reading("program", True, candidate)


# --- asking ------------------------------------------------------------------------------------


def generate(run: Run) -> None:
    """Asks what can be asked."""
    device = run.archive.noted(DEVICE, DEVICE, Device)
    usable = [task for task, row in run.references().items() if row["status"] == "passed"]
    if device is None or len(run.references()) < len(run.problems):
        raise SystemExit("nothing is known of some references: run --stage judge first")
    with contextlib.ExitStack() as stack:
        models: dict[str, LanguageModel] = {
            sampling: Anywhere(stack.enter_context(opened(model_config(run.options, sampling))))
            for sampling in SAMPLINGS
        }
        same_model(run, models["sampled"].identity)
        wanted = [name for name in SETTINGS if name in run.options.settings.split(",")]
        begun = {one.setting for one in run.asked()}
        if "none" in wanted and (not begun or open_work(run)):
            # The others are shown what came of it.
            wanted = [name for name in wanted if name == "none" or name in begun]
        new = [name for name in wanted if name not in begun]
        fix(run, new, usable, device, models)
        ask_all(run, [one for one in run.asked() if one.setting in wanted], models)


def model_config(options: argparse.Namespace, sampling: str) -> ModelConfig:
    return ModelConfig(
        model=options.url,
        name=options.name,
        temperature=options.temperature if sampling == "sampled" else 0.0,
        max_tokens=options.max_tokens,
        num_concurrent=options.concurrent,
        request_s=REQUEST_S,
    )


def same_model(run: Run, identity: Identity) -> None:
    """Raises SystemExit: what is in the archive is another model's."""
    known = run.archive.noted(MODEL, MODEL, Identity)
    if known is None:
        run.archive.note(MODEL, MODEL, identity)
    elif known != identity:
        raise SystemExit(f"{run.archive.path}: holds the answers of {known}, not of {identity}")


def open_work(run: Run) -> bool:
    """Whether there are questions without an answer, or programs without a verdict."""
    answered = list(run.readings())
    judged = run.archive.all_noted(TRIAL, dict[str, Any])
    return len(answered) < len(run.asked()) or any(
        reading.candidate is not None and reading.candidate.id not in judged
        for _, _, reading in answered
    )


def fix(
    run: Run,
    settings: Sequence[str],
    tasks: Sequence[str],
    device: Device,
    models: dict[str, LanguageModel],
) -> None:
    """Writes down what is asked in these settings, each with exemplars of its own."""
    before_s = time.time()
    begun = [
        (setting, sampling, task, work_on(run, task, device, models[sampling], setting))
        for setting in settings
        for sampling in SAMPLINGS
        for task in tasks
    ]
    for setting, sampling, task, work in begun:
        variants = variants_of(work.problem, (), run.archive, device, before_s)
        for place in range(1 if sampling == "greedy" else run.options.samples):
            question = work.question(0, place, variants)
            asked = Asked(
                setting=setting,
                sampling=sampling,
                task=task,
                place=place,
                temperature=models[sampling].identity.temperature,
                question=question,
                answer_key=work.asker.key(question),
                num_known=len(variants),
            )
            run.archive.note(ASKED, f"{setting}/{sampling}/{task}/{place}", asked)


def work_on(
    run: Run, task: str, device: Device, model: LanguageModel, setting: Any
) -> Optimization:
    """The product's optimization of a task: it makes the prompts."""

    def unused(_: Candidate) -> Any:
        raise AssertionError("candidates are judged in another stage")

    loop = Loop(
        problem=run.problems[task],
        evaluations=(),
        evaluate=unused,
        is_over=lambda: False,
        archive=run.archive,
        device=device,
        measure=lambda _: "it could not be made",
        told=lambda *_: None,
    )
    optimizer = Optimizer(
        model=model,
        config=OptimizerConfig(num_samples=run.options.samples, seed=run.options.seed),
        contrast=ContrastConfig(sampler=setting),
        num_concurrent=run.options.concurrent,
        overlaps=False,
        since=0.0,
    )
    return begin(loop, optimizer)


def ask_all(run: Run, asked: Sequence[Asked], models: dict[str, LanguageModel]) -> None:
    """All at once, both samplings; each answer is in the archive when it comes."""
    over_s = time.monotonic() + run.options.limit
    lock, count = threading.Lock(), 0

    def tell(answer: Answer, total: int) -> None:
        nonlocal count
        with lock:
            count += 1
            if count % TOLD == 0 or answer.failure not in (None, *FINAL):
                print(
                    f"{count} of {total} {answer.failure or ''} {answer.message}".strip(),
                    file=sys.stderr,
                )

    def ask(sampling: str) -> None:
        asker = Asker(
            model=models[sampling],
            memory=run.archive,
            num_concurrent=run.options.concurrent,
            is_over=lambda: time.monotonic() > over_s,
        )
        # By their keys: two settings may ask the same.
        questions = {one.answer_key: one.question for one in asked if one.sampling == sampling}
        for question, answer in asker.answers(list(questions.values())):
            if answer.failure in FINAL:
                run.archive.note(KIND, asker.key(question), answer)
            tell(answer, len({one.answer_key for one in asked}))

    started_s = time.monotonic()
    with ThreadPoolExecutor(len(SAMPLINGS)) as pool:
        list(pool.map(ask, SAMPLINGS))
    answers = [run.archive.noted(KIND, one.answer_key, Answer) for one in asked]
    print(
        f"{sum(answer is not None for answer in answers)} of {len(asked)} questions are answered, "
        f"after {time.monotonic() - started_s:.0f} s",
        file=sys.stderr,
    )


# --- judging, telling ----------------------------------------------------------------------------


def judge(run: Run) -> None:
    """The references and the playbook's rewrites, then all programs that have no verdict."""
    known, judged = run.references(), run.archive.all_noted(TRIAL, dict[str, Any])
    if run.options.again:
        judged = settled(judged)
        if not run.asked():  # a task that comes later would be asked in some of the settings
            known = settled(known)
    candidates: dict[str, dict[str, Candidate]] = {
        task: {one.id: one for one in Playbook().propose(problem, [], MOST_REWRITES)}
        for task, problem in run.problems.items()
    }
    for one, _, reading in run.readings():
        if reading.candidate is not None:
            candidates[one.task].setdefault(reading.candidate.id, reading.candidate)
    works = [
        work
        for task, problem in run.problems.items()
        if task not in known or known[task]["status"] == "passed"
        for work in shares(
            task, problem, [one for key, one in candidates[task].items() if key not in judged]
        )
        if work.candidates or task not in known
    ]
    bench = Bench(
        archive=run.archive.path,
        known=frozenset(known),
        device=run.options.device,
        mode=run.options.mode,
        over_s=time.time() + run.options.limit,
        trial_s=run.options.trial_limit,
        gpus=tuple(run.options.gpus.split(",")) if run.options.gpus else (),
    )
    judge_all(works, bench, run.options.judges)


def settled(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those that have a verdict."""
    return {key: row for key, row in rows.items() if row["status"] not in UNSETTLED}


def result(run: Run) -> dict[str, Any]:
    """All that is known as rows, without a word of KernelBench's or the model's."""
    options = run.options
    device = run.archive.noted(DEVICE, DEVICE, Device)
    model = run.archive.noted(MODEL, MODEL, Identity)
    rows = [
        {
            "setting": one.setting,
            "sampling": one.sampling,
            "temperature": one.temperature,
            "task": one.task,
            "place": one.place,
            "kind": reading.kind,
            "has_code": reading.has_code,
            "candidate": reading.candidate.id if reading.candidate else None,
            "finish_reason": answer.finish_reason,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "num_known": one.num_known,
            "num_shown": len(one.question.exemplar_ids),
            "answer": one.answer_key[:12],
        }
        for one, answer, reading in run.readings()
    ]
    return {
        **provenance(),
        "kernelbench": baseline_tasks.commit_of(options.source),
        "device": msgspec.to_builtins(device),
        "model": msgspec.to_builtins(model),
        "about_the_model": options.about,
        "mode": options.mode,
        "config": msgspec.to_builtins(text_trials.MODES[options.mode]),
        "tasks": list(run.problems),
        "settings": options.settings.split(","),
        "num_questions": len(run.asked()),
        "references": run.references(),
        "programs": run.archive.all_noted(TRIAL, dict[str, Any]),
        "answers": rows,
    }


def tell(run: Run) -> None:
    document = result(run)
    text_trials.write(run.options.output, document)
    print(table(document), end="")


STAGES: dict[str, tuple[Callable[[Run], None], ...]] = {
    "judge": (judge,),
    "generate": (generate,),
    "table": (tell,),
    "all": (judge, generate, judge, generate, judge, tell),
}


def opened_archive(options: argparse.Namespace) -> Archive:
    """Beside the result. Raises SystemExit: there is one, and it is not to be gone on with."""
    path = options.archive or options.output.with_suffix(".sqlite")
    if path.exists() and not options.append:
        raise SystemExit(f"{path} is there: go on with --append, or remove it")
    return Archive.open(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, nargs="?", help="git directory, folder, packed file")
    parser.add_argument("--pack", type=Path, help="write what is needed of it, and run nothing")
    parser.add_argument("--table", type=Path, help="print a result as Markdown, and run nothing")
    parser.add_argument("--stage", choices=STAGES, default="all")
    parser.add_argument("--url", default="http://127.0.0.1:8100/v1", help="of the model's server")
    parser.add_argument("--name", help="which of the server's models; else the first")
    parser.add_argument("--about", default="", help="of the weights, for the result: where from")
    parser.add_argument("--tasks", type=int, help="the first so many")
    parser.add_argument("--only", default="", help="tasks: 1/12,2/6")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--samples", type=int, default=8, help="of a task in a setting")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--max-tokens", type=int, default=1024, help="of an answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--concurrent", type=int, default=400, help="requests at the same time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mode", choices=text_trials.MODES, default="brief")
    parser.add_argument("--judges", type=int, default=1, help="processes side by side")
    parser.add_argument("--gpus", default="", help="that they take in turn: 0,1,2")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds for a stage")
    parser.add_argument("--trial-limit", type=float, default=90.0, help="seconds for one trial")
    parser.add_argument("--again", action="store_true", help="judge what got no verdict once more")
    parser.add_argument("--append", action="store_true", help="go on with what is in the archive")
    parser.add_argument("--archive", type=Path, help="else beside the result")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))), end="")
        return
    if options.source is None:
        print("no copy of KernelBench given: nothing is asked")
        return
    names = baseline_tasks.tasks(options.tasks, options.only)
    references = baseline_tasks.read(options.source, names)
    if options.pack:
        commit = baseline_tasks.commit_of(options.source)
        text_trials.write(options.pack, {"commit": commit, "references": references})
        return
    problems = {name: text_trials.problem_of(text) for name, text in references.items()}
    with opened_archive(options) as archive:
        run = Run(options, problems, archive)
        for stage in STAGES[options.stage]:
            stage(run)


if __name__ == "__main__":
    main()
