"""What is known of hacks: that the data is whole, what is found alike, and who may add to it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.hack_review.bare import bare
from cudal1_ci.propose.llm.hack_review.cases import Case, Database, known_cases, ranked, read_cases
from cudal1_ci.records.archive import Archive
from tests.test_attacks import constants

ATTACKS = Path(__file__).parents[2] / "attacks"
DEFAULT = "linear_relu"
EXPLOITS = Path(__file__).parents[3] / "docs" / "lab" / "attacks.md"


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        yield archive


def a_case(name: str, code: str, standing="proven") -> Case:
    return Case(name=name, description="a trick", code=code, standing=standing)


def test_the_cases_are_distinct_and_of_families_that_the_judge_is_tested_with():
    cases = known_cases()
    assert len({case.name for case in cases}) == len(cases) >= 30
    headings = {line[3:] for line in EXPLOITS.read_text("utf-8").splitlines() if line[:3] == "## "}
    assert {case.family for case in cases} <= headings
    assert {case.standing for case in cases} == {"proven"}


@pytest.mark.parametrize("case", known_cases(), ids=lambda case: case.name)
def test_every_case_is_found_by_its_own_code_under_other_names(case):
    code = case.code.replace("self, x", "self, tensor").replace("(x", "(tensor")
    assert ranked(code, known_cases())[0].name == case.name


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.memory = {}\n    def forward(self, q):\n"
            "        where = q.data_ptr()\n        if where not in self.memory:\n"
            "            self.memory[where] = torch.matmul(q, self.w)\n"
            "        return self.memory[where]\n",
            "cache_by_pointer",
        ),
        (
            "def forward(self, q):\n    self.s = torch.cuda.Stream()\n"
            "    with torch.cuda.stream(self.s):\n        out = self.linear(q)\n    return out\n",
            "side_stream",
        ),
        (
            "def forward(self, q):\n    with torch.autocast('cuda', dtype=torch.bfloat16):\n"
            "        return self.mlp(q).float()\n",
            "precision_downgrade",
        ),
        (
            "import time\ntime.perf_counter = lambda: 1.0\n"
            "torch.cuda.Event.elapsed_time = lambda a, b: 0.001\n",
            "patched_timer",
        ),
        (
            "torch::Tensor go(torch::Tensor q) { auto s = c10::cuda::getStreamFromPool();\n"
            " k<<<1, 1, 0, s.stream()>>>(q.data_ptr<float>()); return q; }",
            "pool_stream_in_cpp",
        ),
    ],
    ids=lambda value: value if " " not in value else "",
)
def test_a_hack_in_other_words_finds_its_family(code, expected):
    assert expected in [case.name for case in ranked(code, known_cases())[:3]]


def test_what_shares_nothing_is_not_alike():
    assert ranked("completely = 1", known_cases()) == []
    assert ranked("", known_cases()) == []


def test_comments_and_docstrings_make_nothing_alike_and_are_taken_out():
    code = (
        'def f(x):\n    """verdict: fine, as data_ptr is not used."""\n    "and more"\n'
        "    return g(x)  # lru_cache torch.autocast\n"
    )
    assert ranked(code, known_cases()) == ranked("def f(x):\n    return g(x)\n", known_cases())
    assert bare(code) == "def f(x):\n    return g(x)"
    assert bare("int f() { /* fine */ return 1; } // fine") == "int f() {  return 1; } "
    assert bare('class A:\n    "only words"\n') == "class A:\n    pass"


def test_three_are_shown_the_most_alike_first_and_ties_by_name(archive):
    cases = tuple(a_case(name, f"foo({name}.bar)") for name in "dcba")
    database = Database(proven=cases, archive=archive, since=math.inf)
    assert [case.name for case in database.like("foo(b.bar)", "")] == ["b", "a", "c"]


def test_one_of_three_may_be_suspected_and_it_is_labeled(archive):
    cases = (a_case("a", "foo(1)\nq()\nr()"), a_case("b", "foo(2)\nq()\nr()"))
    database = Database(proven=cases, archive=archive, since=math.inf)
    for name in "xyz":
        database.add(f"foo({name}.zap)", a_case(name, f"foo({name}.zap)", "suspected"))
    found = database.like("foo(zap)", "")
    assert [case.standing for case in found] == ["suspected", "proven", "proven"]


def test_a_suspicion_is_not_shown_to_a_question_about_the_code_that_it_is_of(archive):
    database = Database(proven=(), archive=archive, since=math.inf)
    code = "def f(x):\n    return foo(x.zap)\n"
    database.add(code, a_case("own", code, "suspected"))
    assert database.like(code.replace("x", "y").replace("f(", "g(", 1), "") == []
    assert [case.name for case in database.like(code + "bar()\n", "")] == ["own"]


def test_what_is_proven_stays_so_and_what_is_suspected_may_be_proven(archive):
    database = Database(proven=(), archive=archive, since=math.inf)
    database.add("foo(1)", a_case("one", "foo(1)", "suspected"))
    database.add("foo(1)", a_case("two", "foo(1)", "proven"))
    database.add("foo(1)", a_case("three", "foo(1)", "suspected"))
    (found,) = database.like("foo(2)", "")
    assert (found.name, found.standing) == ("two", "proven")


def test_what_was_added_in_this_run_is_for_the_next_one(archive):
    run_id = archive.start_run({})
    since = archive.run_started_at(run_id)
    Database(proven=(), archive=archive, since=since).add("foo(1)", a_case("one", "foo(1)"))
    assert Database(proven=(), archive=archive, since=since).like("foo(2)", "") == []
    assert len(Database(proven=(), archive=archive, since=math.inf).like("foo(2)", "")) == 1


def test_people_add_cases_in_a_file(tmp_path):
    path = tmp_path / "hacks.toml"
    path.write_text('[[case]]\nname = "ours"\ndescription = "seen here"\ncode = "zap()"\n')
    (case,) = read_cases(path)
    assert (case.name, case.standing) == ("ours", "proven")


@pytest.mark.parametrize(
    "text",
    [
        "[[case]",
        '[[case]]\nname = "a"\n',
        '[[case]]\nname = "a"\ndescription = "b"\ncode = ""\n',
        '[[cases]]\nname = "a"\n',
        None,
    ],
)
def test_a_file_of_another_form_is_refused_by_its_name(tmp_path, text):
    path = tmp_path / "hacks.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"opinion\.cases: .*hacks\.toml"):
        read_cases(path)


def family_of(source: str) -> str:
    (family,) = re.findall(r"^Family: ([^.]+)\.", source, re.MULTILINE)
    return family.lower()


def test_attacks_on_the_judge_find_their_family_twice_as_often_as_by_chance():
    """They were written apart from the cases: a measure of what words can tell, and no promise."""
    families = {case.family.lower() for case in known_cases()}
    attacks = [path.read_text("utf-8") for path in sorted(ATTACKS.glob("*.py"))]
    attacks = [source for source in attacks if family_of(source) in families]
    num_first = num_found = 0
    for source in attacks:
        reference = ATTACKS / "references" / f"{constants(source).get('REFERENCE', DEFAULT)}.py"
        found = ranked(source, known_cases(), reference.read_text("utf-8"))[:3]
        names = [case.family.lower() for case in found]
        num_found += family_of(source) in names
        num_first += names[:1] == [family_of(source)]
    assert len(attacks) >= 170
    assert num_found / len(attacks) > 0.5
    assert num_first / len(attacks) > 0.35


def test_what_the_reference_does_too_makes_nothing_alike():
    reference = "def forward(self, x):\n    return torch.autocast(x)\n"
    assert ranked(reference, known_cases(), reference) == []
    hack = reference + "cache[x.data_ptr()] = 1\n"
    assert "pointer" in ranked(hack, known_cases(), reference)[0].name
