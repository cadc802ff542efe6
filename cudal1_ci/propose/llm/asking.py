"""Hold several conversations with a model at once, and reuse earlier answers.

The store keys an answer by question, model and seed. A killed run asks the same questions when it
resumes, and finds its earlier answers here. No answer is generated twice, and the results are the
same. Failures are not stored.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from cudal1_ci.propose.llm.servers import Answer, LanguageModel, Message
from cudal1_ci.records import content_hash

T = TypeVar("T")
KIND = "answer"
PATIENCE_S = 0.5
Ready = queue.SimpleQueue["tuple[Question, Answer, float]"]
"""Answers, and the times of their arrival."""


class Memory(Protocol):
    """Store answers from any thread; the archive implements it."""

    def note(self, kind: str, key: str, value: Any) -> None: ...
    def noted(self, kind: str, key: str, form: type[T]) -> T | None: ...


@dataclass(frozen=True)
class Question:
    """A conversation that needs an answer."""

    messages: tuple[Message, ...]
    seed: int
    turn: int = 0
    exemplar_ids: tuple[str, ...] = ()


@dataclass
class Times:
    """Total seconds of a run's questions."""

    generating_s: float = 0.0
    waiting_s: float = 0.0
    """Seconds in which the caller had to wait for an answer."""


@dataclass
class Asker:
    """Ask a model from one thread; other threads produce the answers."""

    model: LanguageModel
    memory: Memory
    num_concurrent: int
    is_over: Callable[[], bool]
    """Called during a wait; True ends the requests in progress."""
    times: Times = field(default_factory=Times)

    def answers(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        """Yield each question with its answer when it is ready. Closing the iterator or the end of
        the time cancels the rest.
        """
        open_questions = []
        for question in questions:
            known = self.memory.noted(KIND, self.key(question), Answer)
            if known is None:
                open_questions.append(question)
            else:
                yield question, known
        if not open_questions:
            return
        yield from self._asked(open_questions)

    def key(self, question: Question) -> str:
        return content_hash([self.model.identity, question.messages, question.seed])

    def _asked(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        left: queue.SimpleQueue[Question] = queue.SimpleQueue()
        for question in questions:
            left.put(question)
        ready: Ready = queue.SimpleQueue()
        is_cancelled = threading.Event()

        def work() -> None:
            while not is_cancelled.is_set():
                try:
                    question = left.get_nowait()
                except queue.Empty:
                    return
                answer = self._answer(question)
                ready.put((question, answer, time.monotonic()))

        number = min(self.num_concurrent, len(questions))
        threads = [threading.Thread(target=work, name="model", daemon=True) for _ in range(number)]
        ended_s = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            for _ in questions:
                asked_s = time.monotonic()
                found = self._next(ready)
                if found is None:
                    return
                question, answer, at_s = found
                self.times.generating_s += max(0.0, at_s - ended_s)
                ended_s = max(ended_s, at_s)
                self.times.waiting_s += time.monotonic() - asked_s
                yield question, answer
        finally:
            is_cancelled.set()
            for thread in threads:
                while thread.is_alive():  # again for a thread that was about to ask
                    self.model.cancel()
                    thread.join(PATIENCE_S)

    def _next(self, ready: Ready) -> tuple[Question, Answer, float] | None:
        """Return the next answer; None if the time ends before."""
        while not self.is_over():
            with contextlib.suppress(queue.Empty):
                return ready.get(timeout=PATIENCE_S)
        return None

    def _answer(self, question: Question) -> Answer:
        try:
            (answer,) = self.model.ask(question.messages, n=1, seed=question.seed)
        except Exception as error:  # noqa: BLE001 (a model's failure costs an answer, whatever it is)
            return Answer(failure="server", message=f"{type(error).__name__}: {error}"[:500])
        if answer.failure is None:  # at once: a run that is killed before verification still has it
            self.memory.note(KIND, self.key(question), answer)
        return answer
