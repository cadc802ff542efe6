"""Files of examples: those that stage 1 learns from, and those of an earlier run.

    examples = read_examples(run.folder / "examples.jsonl")
    known = earlier_examples(("third/examples.jsonl.gz",), tasks, quotes=True)

Examples of an earlier run were judged on its device and keep the speedups that were measured there.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Problem
from model_training.answers import with_quotes
from model_training.collection import Example
from model_training.tasks.record import Task


def read_examples(path: Path) -> list[Example]:
    """A data set of JSON lines; compressed where the file's name ends so.

    Raises:
        ConfigError: The file is not there, or a line is no example.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
            lines = opened.read().splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(
            f"{path}: expected examples to learn from ({error}); "
            "`python -m model_training collect` writes them"
        ) from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=Example))
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}:{number}: expected an example: {error}") from error
    return found


def earlier_examples(
    files: Iterable[str], tasks: Sequence[Task], *, quotes: bool
) -> dict[str, list[Example]]:
    """Those of these tasks, by the task's id, each once; with `quotes` their answers name what they
    exchange.

    Raises:
        ConfigError: A file cannot be read, or has another program under a task's name.
    """
    by_name = {one.name: one for one in tasks}
    found: dict[str, list[Example]] = {}
    for file in files:
        path = Path(file).expanduser()
        for number, one in enumerate(read_examples(path), 1):
            task = by_name.get(one.task)
            if task is None:
                continue
            *request, answer = one.messages
            if not any(task.text.strip() in message.content for message in request):
                raise ConfigError(
                    f"{path}:{number}: expected an example of {one.task} as this run has it, got "
                    "one of another program; leave the file out of collection.known, or take the "
                    "tasks of the run that it is of"
                )
            if quotes:
                one = quoting(one, task.problem, request, answer)
            if one not in (some := found.setdefault(task.id, [])):
                some.append(one)
    return found


def quoting(
    example: Example, problem: Problem, request: Sequence[Message], answer: Message
) -> Example:
    said = msgspec.structs.replace(answer, content=with_quotes(problem, answer.content))
    return msgspec.structs.replace(example, messages=(*request, said))
