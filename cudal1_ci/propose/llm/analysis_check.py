"""Compare the numbers of a model's analysis with the measurements.

    contradictions(evaluation, problem, rows)      # rows: the profile of the reference
    # (Contradiction(claim="This is 5x faster.", measured="measured 2.03x [1.98, 2.09] ..."),)

The check reads three kinds of numbers: how many times faster the new code is, how long a call
takes, and which share of the time an operator has. A sentence counts if it has one of a few forms
from its first word and nothing takes the number back. A number without a flag is not confirmed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cudal1_ci.propose.llm.measured import number, percent
from cudal1_ci.propose.llm.task import ProfileRow
from cudal1_ci.records import Contradiction, Evaluation, Measurement, Problem
from cudal1_ci.stats import speedups

MAX_CHARS = 20_000
MAX_SENTENCE_CHARS = 300
"""The longest sentence that is read; a longer one states more than one fact."""
TIME_SLACK = 1.25
"""Two runs of one call differ by less than this factor on an idle machine."""
SHARE_SLACK = 0.05

_FUSED = "triton|fused|compiled|inductor|jit|cutlass|fmha|flash|attention|graph"
OPERATORS = {
    "softmax": (r"softmax", r"soft_?max"),
    "matmul": (
        r"matmul|matrix multiplication|gemm|mm|bmm|linear",
        r"mm|matmul|gemv|linear|einsum|dot|xmma|splitk|conv|cudnn|mkldnn",
    ),
    "convolution": (
        r"convolution|conv(?:[123]d)?",
        r"conv|fprop|dgrad|wgrad|winograd|fft|cudnn|xmma|gemm|mm|mkldnn|im2col",
    ),
    "layer norm": (r"layer ?norm(?:alization)?", r"norm|rowwise|welford"),
    "batch norm": (r"batch ?norm(?:alization)?", r"norm|bn_|_bn|cudnn|mkldnn|welford"),
    **{name: (name, rf"{name}|elementwise|clamp") for name in ("gelu", "relu", "sigmoid", "tanh")},
    "dropout": (r"dropout", r"drop|bernoulli|elementwise"),
    "embedding": (r"embedding(?: lookup)?", r"embed|index|gather"),
    "concatenation": (r"concatenation|concat|cat", r"cat|copy"),
}
"""The words for an operator in a sentence, and the profile rows that may hold it, by reported
name."""

_ABOUT = r"(?:(?:about|around|roughly|approximately|only|over) |~ ?)?"
_NUMBER = _ABOUT + r"(?P<number>\d{1,6}(?:\.\d{1,3})?) ?"
_TIMES = _NUMBER + r"(?:x|×|times|-?fold)"
_UNIT = r"(?P<unit>ms|milliseconds?|us|µs|μs|microseconds?)"
_NEW = (
    r"(?:this|it|modelnew|(?:the|this|my) (?:new|fused|optimized|proposed|rewritten|vectorized) "
    r"(?:version|code|kernel|implementation|module|rewrite|function))"
)
_OLD = r"(?:the )?(?:reference|original|baseline)(?: (?:code|module|implementation|version))?"
_THAN = rf"(?: (?:than|over|compared (?:to|with)) {_OLD})?"
_OPERATOR = r"(?:the )?(?P<operator>" + "|".join(says for says, _ in OPERATORS.values())
_OPERATOR += r")(?: (?:operation|operator|kernel|call|step))?s?"
_TIME = r"(?:of )?(?:(?:the|its) )?(?:(?:whole|total|overall|execution|run) ?)?(?:time|runtime)"
_TAKES = rf"(?:takes?|needs?|runs in) {_NUMBER}{_UNIT}(?: per call)?"
FORMS = {
    "speedup": (
        rf"{_NEW} (?:is|runs|will be|will run) {_TIMES} (?:faster|as fast){_THAN}",
        rf"{_NEW} (?:gives|yields|achieves|has|brings|reaches) a speed-?up of {_TIMES}{_THAN}",
        rf"{_NEW} (?:gives|yields|achieves|has|brings|reaches) an? {_TIMES} speed-?up{_THAN}",
        rf"(?:the )?(?:overall |total )?speed-?up is {_TIMES}{_THAN}",
    ),
    "reference time": (rf"{_OLD} {_TAKES}",),
    "candidate time": (rf"{_NEW} {_TAKES}",),
    "share": (
        rf"{_OPERATOR} (?:takes?|has|is|are|accounts? for) {_NUMBER}% {_TIME}",
        rf"{_NUMBER}% {_TIME} (?:is spent|goes) (?:in|on|into) {_OPERATOR}",
    ),
}
_TAIL = (
    r"(?: (?:on|for) (?:this|the|our) (?:workload|shape|input|device|gpu|cpu|machine)s?)?"
    r"(?P<tail>(?:,| because| since| as| due to| \(|:| - ).*)?"
)
TAKEN_BACK = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|if|when|once|unless|until|would|could|may|might|should"
    r"|perhaps|maybe|likely|possibly|probably|potentially|seems?|appears?|but|although|though"
    r"|variants?|versions?)\b|n['’]t\b|\?"
)
"""Words in the rest of a sentence that may negate its number."""
_PATTERNS = [(kind, re.compile(form + _TAIL)) for kind, forms in FORMS.items() for form in forms]


def claims_in(analysis: str) -> Iterator[tuple[str, str, re.Match[str]]]:
    """Yield the sentences that state a number, with the kind of the number and the match."""
    # A period inside of a number or a name ends no sentence.
    for part in re.split(r"(?<=[.!?;])\s+|\n+", analysis[:MAX_CHARS]):
        sentence = " ".join(part.split())
        if len(sentence) > MAX_SENTENCE_CHARS or sentence.endswith("?"):
            continue
        plain = re.sub(r"[`*_\"]", "", sentence).strip(" -.!;").lower()
        found = ((kind, pattern.fullmatch(plain)) for kind, pattern in _PATTERNS)
        kind, match = next(((k, m) for k, m in found if m), ("", None))
        if match and not TAKEN_BACK.search(match["tail"] or ""):
            yield sentence, kind, match


def contradictions(
    evaluation: Evaluation, problem: Problem, rows: Sequence[ProfileRow]
) -> tuple[Contradiction, ...]:
    """Return the sentences of a candidate's analysis whose number contradicts a measurement.
    `rows` are the reference's profile under the first workload, or empty.
    """
    found = []
    for sentence, kind, match in claims_in(evaluation.candidate.analysis):
        half_unit = 0.5 / 10 ** len(match["number"].partition(".")[2])
        value = float(match["number"])
        bounds = (value - half_unit, value + half_unit)  # `2x` may be anything from 1.5 to 2.5
        if kind == "share":
            measured = against_share(bounds, match["operator"], evaluation, problem, rows)
        else:
            measured = against_ranges(kind, bounds, match, evaluation.measurements)
        if measured is not None:
            found.append(
                Contradiction(
                    candidate_id=evaluation.candidate.id, claim=sentence, measured=measured
                )
            )
    return tuple(found)


def against_share(
    bounds: tuple[float, float],
    spoken: str,
    evaluation: Evaluation,
    problem: Problem,
    rows: Sequence[ProfileRow],
) -> str | None:
    """Return the operator's share of the profiled time if it is too small for a percentage."""
    operator = next(name for name, (says, _) in OPERATORS.items() if re.fullmatch(says, spoken))
    share = share_of(operator, rows)
    if share is None or evaluation.device is None or bounds[0] / 100 <= share + SHARE_SLACK:
        return None
    return (
        f"{operator} has at most {percent(share)} of the profiled time of one call of the "
        f"reference on {evaluation.device.name} ({problem.workloads[0].name})"
    )


def against_ranges(
    kind: str, bounds: tuple[float, float], match: re.Match[str], measured: Sequence[Measurement]
) -> str | None:
    """Return the measurements if the number is outside the range that all workloads span."""
    unit_us = 1000 if kind != "speedup" and match["unit"].startswith(("ms", "mil")) else 1
    allowed, said = [], []
    for one in measured:
        ratio = speedups.speedup(one)
        if ratio is None:
            continue
        if kind == "speedup":
            allowed += [ratio.low, ratio.high]
            what = f"{ratio.estimate:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"
        else:
            is_reference = kind == "reference time"
            time_us = (speedups.reference_us if is_reference else speedups.candidate_us)(one)
            allowed += [time_us / TIME_SLACK, time_us * TIME_SLACK]
            what = f"{number(time_us)} us"
        said.append(f"{what} on {one.device.name} ({one.workload})")
    if not said or (bounds[1] * unit_us >= min(allowed) and bounds[0] * unit_us <= max(allowed)):
        return None
    return f"measured {', '.join(said)}"


def share_of(operator: str, rows: Sequence[ProfileRow]) -> float | None:
    """Return the largest share of the profiled time that an operator can have; a fused row may
    hold it too. None if no row holds it: its row may have an unknown name.
    """
    pattern = re.compile(f"{OPERATORS[operator][1]}|{_FUSED}", re.IGNORECASE)
    total_us = sum(row.time_us for row in rows)
    own = [row.time_us for row in rows if pattern.search(row.name)]
    return sum(own) / total_us if own and total_us > 0 else None
