"""Sort what is known of the uses of compared targets that no workload shows (`contract`).

Text, Markdown, HTML and the comment say the same: what worked in the base and does not in the head,
by name; how many lines were tried of the rest; and of which targets none was tried, and why.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ci.records import Comparison
from cudal1_ci.render.changes import Change, Changes
from cudal1_ci.render.wording import (
    contract_lines,
    contract_text,
    count_text,
    duration_text,
    one_line,
)

EXPLANATION = (
    "The outputs of these workloads are the same. Each line worked in the base when the target was "
    "used in that way; no verdict on time depends on it."
)
UNBROKEN = "What worked in the base works in the head"


@dataclass(frozen=True, kw_only=True)
class OtherUses:
    """Hold the changes of a report whose contracts are known."""

    changed: tuple[Change, ...]
    """Those that break a line, or differ in one."""
    kept: tuple[Change, ...]
    untried: dict[str, tuple[Change, ...]]
    """By the reason for which no line was tried."""

    @property
    def is_known(self) -> bool:
        return bool(self.changed or self.kept or self.untried)

    @property
    def unbroken_text(self) -> str:
        """Format `3 targets: 93 held, 0 broken, 12 not tried in 20 s`."""
        checks = [check for change in self.kept for check in change.comparison.contract or ()]
        took_s = sum(change.comparison.contract_s or 0.0 for change in self.kept)
        said = f"{contract_text(checks)} in {duration_text(took_s)}"
        return f"{count_text(len(self.kept), 'target')}: {said}"

    @property
    def folded_text(self) -> str:
        """Format what stands above the fold: the words for all that is not broken."""
        said = [f"{UNBROKEN} ({self.unbroken_text})"] if self.kept else []
        num_untried = sum(map(len, self.untried.values()))
        said += [f"not examined: {count_text(num_untried, 'target')}"] if num_untried else []
        text = "; ".join(said)
        return text[:1].upper() + text[1:]


def other_uses(found: Changes) -> OtherUses:
    """Return the changes whose contracts are known, sorted by what came of them."""
    changed, kept, untried = [], [], dict[str, tuple[Change, ...]]()
    for change in found.all:
        comparison = change.comparison
        if comparison.contract is None:
            continue
        reason = reason_untried(comparison)
        if reason is not None:
            untried[reason] = (*untried.get(reason, ()), change)
        elif changed_lines(comparison):
            changed.append(change)
        else:
            kept.append(change)
    return OtherUses(changed=tuple(changed), kept=tuple(kept), untried=untried)


def reason_untried(comparison: Comparison) -> str | None:
    """Return why no line of a contract was tried; None where one was."""
    checks = comparison.contract or ()
    if any(one.result != "not_tried" for one in checks) or not checks:
        return None
    return one_line(checks[0].detail) or "no reason was given"


def examined_text(comparison: Comparison) -> str:
    """Format `31 held, 1 broken, 4 not tried in 7.1 s`."""
    took = "" if comparison.contract_s is None else f" in {duration_text(comparison.contract_s)}"
    return f"{contract_text(comparison.contract or ())}{took}"


def changed_lines(comparison: Comparison) -> list[str]:
    """Format what worked in the base and does not in the head, then what differs."""
    stated = [one for one in comparison.contract or () if one.result in ("broken", "differs")]
    return contract_lines(stated)


OTHER_USES_FILTERS = {"examined": examined_text, "changed_lines": changed_lines}
"""The same words under the names that templates call them by."""
