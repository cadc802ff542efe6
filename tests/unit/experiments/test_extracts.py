"""What the pages state is what their extracts hold, and these are what the raw results hold."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest

from cudal1_ci import assets
from cudal1_ci.render.wording import interval_text

ROOT = Path(__file__).parents[3]
PAGES = [
    "docs/comparison.md",
    "docs/lab/adoption.md",
    "docs/lab/report-card.md",
    "docs/lab/repositories.md",
    "docs/lab/verifier.md",
    "docs/published-kernels.md",
    "docs/results.md",
]
NAMES = [path.stem for path in (ROOT / "experiments" / "results").glob("*.json")]
LARGE = {"sensitivity": pytest.mark.slow}
"""Whose raw results take ten seconds to read."""


@pytest.fixture
def extracts(experiment_module):
    return experiment_module("extracts")


def test_every_extract_is_of_a_block(extracts):
    assert sorted(NAMES) == sorted(extracts.place(name).stem for name in extracts.BLOCKS)


def test_the_pages_with_blocks_are_those_of_the_test_of_links(extracts):
    assert set(extracts.pages()) == {*PAGES}


def test_pages_and_drawings_are_what_the_extracts_make(extracts):
    made = extracts.files(extracts.pages())
    assert {path for path in made if path.endswith(".svg")} == {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs" / "lab" / "images").glob("*.svg")
    }
    stale = [path for path, text in made.items() if text != (ROOT / path).read_text("utf-8")]
    assert stale == [], "run `python experiments/extracts.py`"


def test_a_page_with_another_figure_is_noticed(extracts):
    pages = extracts.pages()
    changed = {path: text.replace("1.86 [1.72", "2.86 [1.72") for path, text in pages.items()}
    assert changed != pages
    assert {p: t for p, t in extracts.files(changed).items() if p in pages} == pages


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="archives hold no raw results")
@pytest.mark.parametrize("stem", [pytest.param(stem, marks=LARGE.get(stem, ())) for stem in NAMES])
def test_an_extract_is_what_its_raw_result_holds(extracts, stem):
    (name,) = (one for one in extracts.BLOCKS if extracts.place(one).stem == stem)
    fresh = json.loads(json.dumps(extracts.extract(name)))
    assert fresh == extracts.read(name), "run `python experiments/extracts.py --fresh`"


def row(extracts, name, start):
    """Return the cells of the one row of an extract that begins so, after its first."""
    (line,) = {line for line in extracts.read(name)["lines"] if line.startswith(f"| {start} | ")}
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_readme_states_the_report_card_as_its_extract_does(extracts):
    readme = (ROOT / "README.md").read_text("utf-8")
    ((num_all, num_counted, num_empty),) = re.findall(
        r"of CUDA-L1's (\d+) references (\d+) on an H100, and (\d+) that are excluded", readme
    )
    lines = "\n".join(extracts.read("Report card")["lines"])
    assert f"| {num_counted} tasks | mean" in lines
    assert f"Excluded from every column, {num_empty} of {num_all} tasks" in lines
    (geometric,) = re.findall(r"(\S+x \[\S+ \S+\]) in the geometric mean \|", readme)
    assert geometric.replace("x ", " ") == overall(extracts, "Summary", "**`best`**")
    assert f"| {with_x(overall(extracts, 'Summary', '`compile`'))} |" in readme


def test_the_readme_states_the_gpu_modules_as_their_extract_does(extracts):
    readme = (ROOT / "README.md").read_text("utf-8")
    lines = "\n".join(extracts.read("GPU modules")["lines"])
    ((num, num_all, mean),) = re.findall(
        r"(\d+) of (\d+) modules have a proposal; the geometric mean over all is (\S+x)", lines
    )
    said = f"{num} of {num_all} have a proposal; {mean} in the geometric mean |"
    assert said in readme


def overall(extracts, name, solver):
    """Return a column's geometric mean with its interval, over all tasks."""
    lines = extracts.read(name)["lines"]
    line = next(line for line in lines if line.startswith(f"| {solver} | "))
    return line.split("|")[3].strip()


def with_x(text):
    number, _, interval = text.partition(" ")
    return f"{number}x {interval}"


def gains(extracts):
    """Return how many tasks each column of ours wins on the report card."""
    said = "\n".join(extracts.read("Report card")["lines"])
    won = re.search(r"above 1.01x on (\d+) \(([^)]*)\)", said)
    by = {name: int(count) for name, count in re.findall(r"`([\w-]+)` (\d+)", won[2])}
    assert sum(by.values()) == int(won[1])
    return by


def test_pages_state_what_kinds_of_gains_there_are_as_the_extract_does(extracts):
    by = gains(extracts)
    plain = sum(by[name] for name in ("compile", "compile-reduce-overhead", "cuda-graph"))
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert (
        f"Of the report card's {sum(by.values())} gains, {by['playbook']} are source rewrites "
        f"alone and {plain} are plain `torch.compile` or CUDA graphs. The other {by['best']} "
        "combine them."
    ) in readme
    page = " ".join((ROOT / "docs" / "results.md").read_text("utf-8").split())
    assert (
        f"{by['playbook']} gains are source rewrites alone. {plain} are plain `torch.compile` or "
        f"CUDA graphs. {by['best']} combine them."
    ) in page


def test_the_sentences_of_the_results_are_those_of_the_extracts(extracts):
    page = " ".join((ROOT / "docs" / "results.md").read_text("utf-8").split())
    best, compiled, graph = (
        with_x(overall(extracts, "Summary", name))
        for name in ("**`best`**", "`compile`", "`cuda-graph`")
    )
    assert f"a geometric mean of {best}." in page
    assert f"`torch.compile` alone reaches {compiled.split()[0]}" in page
    assert f"and CUDA graphs alone {graph.split()[0]}." in page
    kernelbench = with_x(overall(extracts, "Summary of KernelBench", "**`best`**"))
    assert f"this says little yet: {kernelbench}." in page
    assert f"| {kernelbench} |" in (ROOT / "README.md").read_text("utf-8")
    card = "\n".join(extracts.read("Report card")["lines"])
    (won,) = re.findall(
        r"of (\d+) tasks on which these are right: .*? on (\d+) \(.*?, within 2 % on (\d+) and "
        r"behind by more than 2 % on (\d+) ",
        card,
    )
    assert "Of {} right ones, ours are ahead on {}, level on {} and behind on {}.".format(*won) in (
        page
    )
    above = overall_cells(extracts, "`eager`")[-1]
    assert f"is above 1.01x on {above} tasks" in page
    (bias,) = re.findall(r"selection bias of `best`: ([\d.]+)%", "\n".join(lines_of(extracts)))
    assert f"adds {bias} % to the geometric mean" in page


def lines_of(extracts):
    return extracts.read("Counts")["lines"]


def overall_cells(extracts, solver):
    lines = extracts.read("Summary")["lines"]
    line = next(line for line in lines if line.startswith(f"| {solver} | "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_readme_states_modules_and_repositories_as_their_extracts_do(extracts):
    readme = (ROOT / "README.md").read_text("utf-8")
    said = "\n".join(extracts.read("GPU modules")["lines"])
    ((num, of, mean),) = re.findall(r"(\d+) of (\d+) modules .*? over all is (\S+x)", said)
    assert f"| {num} of {of} have a proposal; {mean} in the geometric mean |" in readme
    cells = row(extracts, "Third party new yield", "all")
    assert f"| {cells[5]} of the {cells[2]} asked |" in readme


@pytest.mark.parametrize("page", ["experiments/README.md", *PAGES])
def test_what_a_page_with_figures_links_to_is_there(page):
    text = (ROOT / page).read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s#]+)", text) if not re.match("[a-z]+:", link)]
    assert links
    held = {f"assets/{name}" for name in assets.manifest()}
    for link in links:
        place = os.path.normpath((ROOT / page).parent / link)
        assert Path(place).exists() or os.path.relpath(place, ROOT) in held, link


def test_the_page_on_acceptance_states_what_its_raw_result_holds():
    """Edits that were accepted, their suites, and the README blocks that give the same."""
    raw = json.loads((ROOT / "assets" / "results" / "acceptance.json").read_text("utf-8"))
    page = " ".join((ROOT / "docs" / "optimizer.md").read_text("utf-8").split())
    winners = [one for result in raw["results"] for one in result["winners"]]
    checked = [one["checked"] for one in winners]
    places = {result["repository"]: result for result in raw["results"] if result["winners"]}
    assert len(winners) == 8
    assert len(places) == 5
    assert "Eight edits of the source by rules, in five repositories" in page
    for name, result in places.items():
        assert f"{name} {result['commit'][:7]}" in page
    assert all(one["said"].startswith("Accepted") for one in winners)
    assert not any(one["tests_newly_failing"] or one["blocks"]["differ"] for one in checked)
    num_same = sum(one["blocks"]["num_same"] for one in checked)
    assert f"all {num_same} README blocks that were reached give the same" in page
    unreached = [number for one in checked if (number := one["blocks"]["num_not_reached"])]
    assert len(unreached) == 2
    assert f"{sum(unreached)} blocks of two patches were not reached" in page
    (hook,) = places["vit-pytorch"]["recorded_case"]
    assert hook.startswith("vit_pytorch/recorder.py:28 hooks `attend`")


def test_the_page_on_repositories_states_what_root_models_gained(experiment_module):
    raw = json.loads((ROOT / "assets" / "results" / "roots-h200.json").read_text("utf-8"))
    page = (ROOT / "docs" / "lab" / "repositories.md").read_text("utf-8")
    shown = page.partition("<!-- roots -->")[2].partition("<!-- /roots -->")[0]
    assert shown.strip() == experiment_module("repository_roots").table(raw)
    for one in raw["repositories"]:
        assert one["software"]["torch"].startswith("2.11")
        assert one["ended"] == "budget"
    lines = " ".join(page.split())
    assert "Each was alone on its GPU, one thread, torch 2.11, policy `strict`" in lines
    assert [one["budget"] for one in raw["repositories"]] == ["9m", "20m"]
    (diffusion,) = (one for one in raw["repositories"] if "diffusion" in one["repository"])
    assert not any("GaussianDiffusion" in root["root"] for root in diffusion["roots"])
    graphs, others = [], []
    for one in diffusion["failed"]:
        is_graph = one.get("proposer", "").endswith("cuda_graph")
        is_wrong = is_graph and one["status"] == "incorrect_values"
        (graphs if is_wrong else others).append(one)
    assert len(graphs) == 3
    assert all("GaussianDiffusion" in one["target"] for one in graphs)
    assert "CUDA graphs of three returned wrong values" in page
    (vit,) = (one for one in raw["repositories"] if "vit" in one["repository"])
    assert vit["totals"]["num_judged"] == 8 and "eight models were measured" in page
    assert vit["totals"]["num_proposals"] == 7 and "and seven are proposed" in page
    confirmed = [one for one in vit["measured"] if one["phase"] == "confirmed"]
    assert all(one["is_proposed"] and "graph" in one["proposer"] for one in confirmed)
    assert len({one["path"] for one in confirmed}) == 7
    trained, inferred = (
        interval_text(*(one[key] for key in ("speedup", "speedup_low", "speedup_high")))
        for one in confirmed
        if one["path"].endswith("/vivit.py")
    )
    assert f"training {trained}, inference {inferred}" in lines
    assert not any(one["compiled"] for one in vit["roots"])
    refused = {one["target"].partition(":")[0] for one in vit["failed"] if "status" in one}
    assert {"xcit.py", "cct_3d.py"} <= refused
    later = diffusion["later"]
    assert f"(commit `{later['made_with']}`, 7 min with the harvest" in page
    texts: dict[str, list[str]] = {}
    for one in later["measured"]:  # in training, then in inference
        assert one["proposer"].endswith("training_graph+cuda_graph")
        interval = (one[key] for key in ("speedup", "speedup_low", "speedup_high"))
        said = texts.setdefault(one["target"], [one["phase"]])
        said.append(interval_text(*interval))
    repetitions = {"confirmed": "confirmed", "screened": "one repetition"}
    for target, (phase, trained, inferred) in texts.items():
        said = f"{target}: training {trained}, inference {inferred}, {repetitions[phase]}."
        assert said in lines
    assert len(texts) == 2
    said = [one.get("why", one["status"]) for one in others]
    assert sum("two processes of the reference" in one for one in said) == 1
    assert sum("its reference was not verified within" in one for one in said) == 1
    assert sum(one == "not done within 255 s, its part of the budget" for one in said) == 1


def test_the_readme_shows_what_the_demo_printed():
    readme = (ROOT / "README.md").read_text("utf-8")
    printed = (ROOT / "experiments" / "results" / "demo.txt").read_text("utf-8").splitlines()
    shown = readme.partition("[all of it]")[2].split("```")[1].strip().splitlines()
    assert len(shown) > 10
    for line in shown:
        if line.strip() not in ("", "..."):
            assert any(one.startswith(line.rstrip()) for one in printed), line


def test_the_picture_of_the_terminal_shows_what_the_demo_printed(experiment_module):
    script = experiment_module("demo_picture")
    printed = script.PRINTED.read_text("utf-8")
    assert script.PICTURE.read_text("utf-8") == script.picture(printed)
    shown = script.shown(printed)
    assert shown[0].startswith("TextModel")
    assert len(shown) > 10
    assert all(line in printed for line in shown)


def test_the_page_of_the_attacks_is_written_from_the_attacks(experiment_module):
    written = (ROOT / "docs" / "lab" / "attacks.md").read_text("utf-8")
    made = experiment_module("exploit_table").page()
    assert written == made, "run `python experiments/exploit_table.py`"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="archives hold no raw results")
def test_sentences_on_kernels_and_modules_follow_from_their_raw_results():
    page = " ".join((ROOT / "docs" / "results.md").read_text("utf-8").split())
    cases = json.loads((ROOT / "assets/results/kernel-cases.json").read_text("utf-8"))["cases"]
    gains = [one for one in cases if (one["gain"].get("speedup_low") or 0) > 1]
    found = sorted(one["gain"]["speedup"] for one in gains)
    assert (len(cases), len(gains)) == (12, 7)
    assert f"a proven gain in seven cases, from {found[0]:.2f}x to {found[-1]:.2f}x." in page
    slower = [one for one in gains if (one["loss"].get("speedup_high") or 2) < 1]
    assert len(slower) == 4
    assert "The slow form is found slower in four of the seven" in page
    assert sum(one["loss"]["status"] == "precision" for one in cases) == 1
    lines = json.loads((ROOT / "experiments/results/gpu-modules.json").read_text("utf-8"))["lines"]
    rows = [line.split("|") for line in lines if "x [" in line or "| none |" in line]
    best = [
        float(row[3].partition("x")[0])
        for row in rows
        if "scan kernel" not in row[2] and "none" not in row[2]
    ]
    rest = math.prod(best) ** (1 / (len(rows) - 1))
    assert (len(rows), f"without it the mean is {rest:.2f}x" in page) == (12, True), rest
