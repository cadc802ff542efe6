"""Turn a runner's failure into a verdict, by whose failure it is.

A candidate that fails is wrong, and its verdict says how. A reference that fails when it is learned
cannot be compared with. A reference that fails when it is timed gives no information on the
candidate, and the repetition does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..builds.compile_errors import line_in
from ..forkserver.handles import RunnerFailure
from ..wire.programs import Program, TextProgram
from .cases import Rejected

One = TypeVar("One")
Result = TypeVar("Result")
MAX_MESSAGE_CHARS = 500


INEXACT = "InexactType"
"""Name of the error of runner/exact_types.py: what is read is of a type of the program's own."""


def rejection_of_candidate(failure: RunnerFailure, program: Program) -> Rejected:
    """Return the rejection of a candidate that failed to answer."""
    if failure.stage == "compile":
        return rejection_of_text(failure, program)
    if failure.kind == "timeout":
        return Rejected("timeout", "runner.timeout", failure.message, log=failure.log)
    if failure.kind == "malformed":
        return Rejected("reward_hack", "runner.malformed", failure.message, log=failure.log)
    if failure.kind == "died":
        return Rejected("runtime_error", "runner.died", failure.message, log=failure.log)
    if failure.stage == "import":
        return Rejected("compile_error", "program.import", failure.message, log=failure.log)
    if failure.error is not None and failure.error.kind == INEXACT:
        return Rejected("reward_hack", "state.type", failure.error.message, log=failure.log)
    rule = "memory.exhausted" if is_out_of_memory(failure) else "program.raised"
    return Rejected("runtime_error", rule, failure.message, log=failure.log)


def rejection_of_text(failure: RunnerFailure, program: Program) -> Rejected:
    """Return the rejection of a text that does not compile: the first error as the message, the
    first ones as the evidence."""
    assert failure.error is not None
    text = failure.error.message.strip()
    first, _, rest = text.partition("\n")
    return Rejected(
        "compile_error",
        "program.compile",
        first[:MAX_MESSAGE_CHARS] or failure.message[:MAX_MESSAGE_CHARS],
        evidence=text if rest else None,
        line=line_in(program.source, text) if isinstance(program, TextProgram) else None,
        log=failure.log,
    )


NO_MEMORY = ("memoryerror", "can't allocate memory", "out of memory", "_status_alloc_failed")
"""Matches such errors, also those of cuBLAS and cuDNN (the last ones)."""


def is_out_of_memory(failure: RunnerFailure) -> bool:
    """Return whether a program ran out of memory. torch's allocators raise RuntimeErrors that
    only their text distinguishes."""
    return says_out_of_memory(failure.message)


def says_out_of_memory(message: str) -> bool:
    """Return whether an error's text says so."""
    text = message.lower()
    return any(one in text for one in NO_MEMORY)


def rejection_of_reference(failure: RunnerFailure) -> Rejected:
    """Return the rejection of a reference: the user's own code failed, with the place."""
    what = {
        "compile": "the reference does not compile",
        "import": "importing the reference failed",
        None: "calling the reference failed",
    }.get(failure.stage, "the reference failed")
    message = f"{what}: {failure.message}"
    return Rejected("invalid_reference", rule_of_reference(failure), message, log=failure.log)


def rejection_of_launch(failure: RunnerFailure) -> Rejected:
    """Return the verdict where the reference failed while it was timed with a candidate: the
    cause is unknown."""
    message = f"the reference failed while it was timed: {failure.message}"
    return Rejected("inconclusive", rule_of_reference(failure), message, log=failure.log)


def rule_of_reference(failure: RunnerFailure) -> str:
    kinds = {"timeout": "reference.timeout", "died": "reference.died"}
    return kinds.get(failure.kind, "reference.raised")


def twice(attempt: Callable[[bool], Result]) -> Result:
    """Return the answer of fresh runners of the reference. Try once more where one died: the
    kernel, short of memory, may kill any process. A runner that dies again does so by its own
    fault. `attempt` gets whether it is the last try.

    Raises:
        RunnerFailure: The reference raised or hung, or died both times.
    """
    try:
        return attempt(False)
    except RunnerFailure as failure:
        if failure.kind != "died":
            raise
    return attempt(True)


def side_by_side(ask: Callable[[One], Result], ones: Iterable[One]) -> list[Result]:
    """Send requests to several runners in parallel.

    Raises:
        RunnerFailure: Of those that failed the trusted one, when there is one: what ended it may
            have ended the others.
    """
    ones = list(ones)
    with ThreadPoolExecutor(len(ones)) as pool:
        asked = [pool.submit(ask, one) for one in ones]
    results = []
    try:
        for one in asked:
            error = one.exception()
            if isinstance(error, RunnerFailure) and error.is_trusted:
                raise error
        for one in asked:
            results.append(one.result())
    finally:
        # An exception whose own traceback leads back to it lives until the collector runs. With it
        # lives the runners' memory that its frames reference.
        del asked, one, error
    return results
