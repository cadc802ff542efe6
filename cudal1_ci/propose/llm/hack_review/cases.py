"""Hold known hacks and find the ones most similar to a text.

    database = Database(known_cases(), archive, since)
    database.like(code, reference)     # three cases, the most similar first

Cases have three sources. Cases that ship with the tool or are in a user's file are *proven*: people
wrote them. Cases that the verifier convicts are proven too. A case that only a model reported is
*suspected*, and remains so. The label is shown with the case, and at most one of three cases is
suspected. A question never shows a case made from the same code. So a model that was wrong once, or
was persuaded, cannot support itself later.
"""

from __future__ import annotations

import ast
import functools
import itertools
import keyword
import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.fingerprint import Anonymous, fingerprint, names_bound_in
from cudal1_ci.propose.llm.hack_review.bare import bare
from cudal1_ci.records import Record
from cudal1_ci.records.archive import Archive

KIND = "hack_case"
"""Kind of the archive's notes."""
NUM_SHOWN = 3
"""Number of shown cases, as in the paper."""
MOST_SUSPECTED = 1
WORDS = re.compile(r"[A-Za-z_]\w*")
ANONYMOUS = re.compile(r"v\d+")
"""Names that `Anonymous` gave; they carry no meaning."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]


class Case(Record, frozen=True, kw_only=True):
    """A known hack."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    family: str = ""
    description: Text
    code: Text
    standing: Literal["proven", "suspected"] = "proven"


class CaseFile(Record, frozen=True, kw_only=True):
    """The form of `cases.toml`."""

    case: tuple[Case, ...] = ()


@functools.cache
def known_cases() -> tuple[Case, ...]:
    """Return the cases that ship with the tool."""
    return read_cases(Path(__file__).with_name("cases.toml"))


def read_cases(path: Path) -> tuple[Case, ...]:
    """Return the cases of a file.

    Raises:
        ConfigError: It is not there, or not of that form.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(table, CaseFile).case
    except (OSError, UnicodeDecodeError, ValueError) as error:  # TOML's and msgspec's are the last
        raise ConfigError(
            f"opinion.cases: {path}: expected [[case]] tables with name, description and code: "
            f"{error}"
        ) from error


@dataclass(frozen=True)
class Database:
    """Hold all cases. Cases added after `since` are not shown, so a resumed run asks the same
    questions.
    """

    proven: tuple[Case, ...]
    archive: Archive
    since: float

    def like(self, code: str, reference: str) -> list[Case]:
        """Return at most NUM_SHOWN cases most similar to the text outside the reference."""
        own = fingerprint(code)
        noted = self.archive.all_noted(KIND, Case, self.since)
        others = [case for key, case in noted.items() if key != own]
        found: list[Case] = []
        for case in ranked(code, [*self.proven, *others], reference):
            num_suspected = sum(one.standing == "suspected" for one in found)
            if case.standing == "suspected" and num_suspected == MOST_SUSPECTED:
                continue
            found.append(case)
            if len(found) == NUM_SHOWN:
                break
        return found

    def add(self, code: str, case: Case) -> None:
        """Store a case by the form of its code. A proven case never becomes suspected."""
        key = fingerprint(code)
        known = self.archive.noted(KIND, key, Case)
        if known is None or known.standing == "suspected":
            self.archive.note(KIND, key, case)


def ranked(code: str, cases: Sequence[Case], reference: str = "") -> list[Case]:
    """Return the cases that share anything with a text, the most similar first. The score is the
    cosine of the sets of shingles. Shingles of many cases count little, those of the reference not
    at all. Names decide between equal cases, so that the same question repeats.
    """
    features = [shingles(case.code) for case in cases]
    frequency = Counter(one for each in features for one in each)
    weight = {one: math.log(1 + len(cases) / count) ** 2 for one, count in frequency.items()}
    wanted = shingles(code) - shingles(reference)

    def similarity(number: int) -> float:
        own = features[number]
        shared = sum(weight[one] for one in own & wanted)
        return shared / math.sqrt(sum(weight[one] for one in own)) if shared else 0.0

    scores = [similarity(number) for number in range(len(cases))]
    order = sorted(range(len(cases)), key=lambda number: (-scores[number], cases[number].name))
    return [cases[number] for number in order if scores[number] > 0]


@functools.lru_cache(maxsize=1024)
def shingles(code: str) -> frozenset[tuple[str, ...]]:
    """Return words and pairs of neighboring words of a text. Comments, docstrings and names that
    the text binds are excluded.
    """
    text = bare(code)
    try:
        tree = ast.parse(text)
        text = ast.unparse(Anonymous(names_bound_in(tree)).visit(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # not Python: its words as they are
    words = [
        word.lower()
        for word in WORDS.findall(text)
        if not keyword.iskeyword(word) and not ANONYMOUS.fullmatch(word)
    ]
    return frozenset([(word,) for word in words] + list(itertools.pairwise(words)))
