"""What an analysis claims, sentence by sentence.

    claims_in("Softmax dominates the runtime. It could be 2x faster.")
    # [OperatorClaim(sentence="Softmax dominates the runtime.", operator="softmax")]

A sentence makes a claim when, from its first word, it is one of a few forms; what follows may give
a reason, and may not take anything back. So a negation, a condition, a hedge, a comparison, and a
sentence about a variant or a part match nothing: better to miss a claim than to see one that was
not made.
"""

from __future__ import annotations

import re
from typing import Literal

from cudal1_ci.propose.llm.claims.operators import OPERATORS
from cudal1_ci.records import Record

Bound = Literal["memory", "compute", "launch"]
MAX_SENTENCE_CHARS = 300
"""Of one that is looked at and shown; a longer one says more than one thing."""
MAX_CHARS = 20_000

# A period inside of a number or a name ends nothing.
ENDS = re.compile(r"(?<=[.!?;])\s+|\n+")
MARKS = re.compile(r"[`*_\"]")

_TAIL = (
    r"(?: (?:on|for) (?:this|the|our) (?:workload|shape|input|device|gpu|cpu|machine)s?)?"
    r"(?P<tail>(?:,| because| since| as| due to| \(|:| - ).*)?"
)
TAKEN_BACK = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|if|when|once|unless|until|would|could|may|might|should"
    r"|perhaps|maybe|likely|possibly|probably|potentially|seems?|appears?|but|although|though"
    r"|variants?|versions?)\b|n['’]t\b|\?"
)
"""What in the rest of a sentence may mean that it does not hold as it stands."""

_WHOLE = (
    r"(?:(?:the|this) )?(?:whole |entire |original |overall )?(?:reference|module|call|forward"
    r"(?: pass)?|function|model|workload|computation|operation|code|implementation|it|this)"
)
_VERY = r"(?:(?:heavily|mostly|strongly|clearly|largely|entirely|purely|severely|primarily) )?"
BOUNDS: tuple[tuple[Bound, str], ...] = (
    ("memory", r"(?:memory(?:[- ]bandwidth)?|bandwidth)"),
    ("compute", r"(?:compute|computation|arithmetic)"),
    ("launch", r"(?:(?:kernel[- ])?launch(?:[- ](?:overhead|latency))?|overhead)"),
)
_NAMES = sorted((name for names in OPERATORS.values() for name in names), key=len, reverse=True)
_OPERATOR = rf"(?:the )?(?P<operator>{'|'.join(map(re.escape, _NAMES))})" + (
    r"(?: (?:operation|operator|kernel|call|step))?s?"
)
_TIME = (
    r"(?:(?:the|its) )?(?:(?:whole|total|overall|execution|run) ?)?(?:time|runtime|cost|profile)"
)
OPERATOR_CLAIMS = (
    rf"{_OPERATOR} (?:clearly )?dominates?(?: {_TIME})?",
    rf"{_OPERATOR} (?:is|are) (?:the|its) (?:main |primary )?(?:bottleneck|hot ?spot)",
    rf"{_OPERATOR} takes? (?:most|the majority|the bulk) of {_TIME}",
    rf"(?:the )?(?:main |primary )?bottleneck is {_OPERATOR}",
    rf"{_WHOLE} is {_VERY}dominated by {_OPERATOR}",
    rf"most of {_TIME} (?:is spent|goes) (?:in|on|into) {_OPERATOR}",
)
_TIMES = r"(?:about |around |roughly |approximately |~ ?)?(?P<number>\d{1,4}(?:\.\d{1,2})?) ?" + (
    r"(?:x|×|times|-?fold)"
)
_NEW = (
    r"(?:this|it|modelnew|(?:the|this|my) (?:new|fused|optimized|proposed|rewritten|vectorized) "
    r"(?:version|code|kernel|implementation|module|rewrite|function))"
)
_THAN = r"(?: (?:than|over|compared (?:to|with)) (?:the )?(?:reference|original|baseline))?"
SPEEDUP_CLAIMS = (
    rf"{_NEW} (?:is|runs|will be|will run) {_TIMES} (?:faster|as fast){_THAN}",
    rf"{_NEW} (?:gives|yields|achieves|has|brings|reaches) a speed-?up of {_TIMES}{_THAN}",
    rf"{_NEW} (?:gives|yields|achieves|has|brings|reaches) an? {_TIMES} speed-?up{_THAN}",
    rf"(?:the )?(?:overall |total )?speed-?up is {_TIMES}{_THAN}",
)


class BoundClaim(Record, frozen=True, kw_only=True):
    """What the reference waits for."""

    sentence: str
    bound: Bound


class OperatorClaim(Record, frozen=True, kw_only=True):
    """Where the reference's time goes."""

    sentence: str
    operator: str
    """A key of OPERATORS."""


class SpeedupClaim(Record, frozen=True, kw_only=True):
    """How many times faster the new code is, in the whole."""

    sentence: str
    speedup: float
    half_unit: float
    """Of the last digit that is written: `2x` may be anything from 1.5 to 2.5."""


Claim = BoundClaim | OperatorClaim | SpeedupClaim


def claims_in(analysis: str) -> list[Claim]:
    """The claims of an analysis, at most one of each sentence."""
    sentences = (" ".join(part.split()) for part in ENDS.split(analysis[:MAX_CHARS]))
    found = (claim_of(one) for one in sentences if len(one) <= MAX_SENTENCE_CHARS)
    return [claim for claim in found if claim is not None]


def claim_of(sentence: str) -> Claim | None:
    """What one sentence claims."""
    if sentence.endswith("?"):
        return None
    plain = MARKS.sub("", sentence).strip(" -.!;").lower()
    for bound, name in BOUNDS:
        waits = rf"{name}[- ](?:bound|limited)|(?:bound|limited|dominated) by (?:the )?{name}"
        if matched(rf"{_WHOLE} is {_VERY}(?:{waits})", plain):
            return BoundClaim(sentence=sentence, bound=bound)
    for pattern in OPERATOR_CLAIMS:
        if match := matched(pattern, plain):
            name = match["operator"]
            operator = next(key for key, names in OPERATORS.items() if name in names)
            return OperatorClaim(sentence=sentence, operator=operator)
    for pattern in SPEEDUP_CLAIMS:
        if match := matched(pattern, plain):
            num_digits = len(match["number"].partition(".")[2])
            return SpeedupClaim(
                sentence=sentence,
                speedup=float(match["number"]),
                half_unit=0.5 / 10**num_digits,
            )
    return None


def matched(pattern: str, plain: str) -> re.Match[str] | None:
    """The match of a whole sentence, whose rest takes nothing back."""
    match = re.fullmatch(pattern + _TAIL, plain)
    return match if match and not TAKEN_BACK.search(match["tail"] or "") else None
