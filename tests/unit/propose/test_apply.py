"""How rewrites become a program: its files, its imports, and what is said of it."""

from __future__ import annotations

import sys

import pytest

from cudal1_ci.optimize.strategies import default_strategies
from cudal1_ci.propose.apply import apply, library_text
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.wrappers.table import WRAPPERS
from cudal1_ci.records import (
    Call,
    Made,
    Problem,
    Target,
    TensorSpec,
    TextProgram,
    TreeProgram,
    Workload,
    content_hash,
)
from cudal1_ci.sandboxed.runner.programs import OverlayFinder
from tests.unit.propose.fake_rewrites import FAKES

SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        x = self.conv(x)
        return x * torch.sigmoid(x)


class Other(nn.Module):
    def forward(self, x):
        return x + 1
"""
BY_NAME = {one.name: one for one in (*FAKES, *WRAPPERS)}
GRAPH = library_text("cuda_graph")
WORKLOAD = Workload(name="w", provenance="declared", call=Call())


def chosen(*names):
    return [BY_NAME[name] for name in names]


def in_checkout(root, path, source=SOURCE, name="Model", import_root="."):
    """A problem whose target is in a file of a checkout."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(source.encode())
    inside = file.relative_to(root / import_root).with_suffix("").parts
    dotted = ".".join(inside[:-1] if inside[-1] == "__init__" else inside)
    target = Target(path=path, qualname=name, kind="torch_module", first_line=1, last_line=9)
    program = TreeProgram(
        root=str(root), import_root=import_root, import_path=f"{dotted}:{name}", digest="d"
    )
    return Problem(reference=program, workloads=(WORKLOAD,), target=target)


def files(candidate):
    return {one.path: one.text for one in candidate.program.overlay}


@pytest.mark.parametrize(
    ("path", "import_root", "line", "imported"),
    [
        ("pkg/model.py", ".", "", "from pkg.cuda_graph import cuda_graphed"),
        ("pkg/sub/model.py", ".", "", "from pkg.sub.cuda_graph import cuda_graphed"),
        ("src/pkg/model.py", "src", "", "from pkg.cuda_graph import cuda_graphed"),
        ("pkg/model.py", ".", "from .a import b\n", "from .cuda_graph import cuda_graphed"),
        ("pkg/model.py", ".", "from . import a\n", "from .cuda_graph import cuda_graphed"),
        ("pkg/__init__.py", ".", "", "from pkg.cuda_graph import cuda_graphed"),
        ("pkg/__init__.py", ".", "from .a import b\n", "from .cuda_graph import cuda_graphed"),
        ("model.py", ".", "", "from cuda_graph import cuda_graphed"),
    ],
)
def test_in_a_checkout_a_wrapper_brings_its_file_along(tmp_path, path, import_root, line, imported):
    source = SOURCE.replace("\n\n\nclass Model", f"\n{line}\n\nclass Model", 1)
    problem = in_checkout(tmp_path, path, source, import_root=import_root)
    candidate = apply(problem, None, chosen("cuda_graph"))
    folder = path.rpartition("/")[0]
    beside = f"{folder}/cuda_graph.py".lstrip("/")
    assert list(files(candidate)) == [path, beside]
    assert files(candidate)[beside] == GRAPH
    text = files(candidate)[path]
    changed = source.replace("    def forward", "    @cuda_graphed\n    def forward", 1)
    assert text.replace(f"{imported}\n", "", 1) == changed
    assert f"import nn\n{line}{imported}\n" in text
    own, new = candidate.program.overlay
    assert own.base_digest == content_hash(source)
    assert new.base_digest is None, "there was no such file"
    assert not (tmp_path / beside).exists()


def test_a_file_of_the_projects_own_under_that_name_is_not_touched(tmp_path):
    problem = in_checkout(tmp_path, "pkg/model.py")
    (tmp_path / "pkg" / "cuda_graph.py").write_text("GRAPHS = 1\n")
    assert apply(problem, None, chosen("cuda_graph")) is None
    assert apply(problem, None, chosen("compile")) is not None, "it brings none along"
    assert apply(problem, None, chosen("cudnn_benchmark")) is not None


def test_a_second_target_of_the_folder_uses_the_file_that_is_there(tmp_path):
    first = apply(in_checkout(tmp_path, "pkg/model.py"), None, chosen("cuda_graph"))
    for path, text in files(first).items():
        (tmp_path / path).write_text(text)
    same = in_checkout(tmp_path, "pkg/model.py", files(first)["pkg/model.py"], name="Other")
    for problem in (same, in_checkout(tmp_path, "pkg/other.py", name="Other")):
        candidate = apply(problem, None, chosen("cuda_graph"))
        assert list(files(candidate)) == [problem.target.path]
        text = files(candidate)[problem.target.path]
        assert text.count("from pkg.cuda_graph import cuda_graphed") == 1


def test_a_wrapper_of_another_candidate_keeps_its_files(tmp_path):
    problem = in_checkout(tmp_path, "pkg/model.py")
    base = apply(problem, None, chosen("cudnn_benchmark"))
    candidate = apply(problem, base, chosen("cuda_graph"))
    assert candidate.proposer == "playbook:cudnn_benchmark+cuda_graph"
    assert sorted(files(candidate)) == [
        "pkg/cuda_graph.py",
        "pkg/fastest_convolutions.py",
        "pkg/model.py",
    ]
    own = next(one for one in candidate.program.overlay if one.path == "pkg/model.py")
    assert own.base_digest == content_hash(SOURCE), "of what is there"
    assert "@cuda_graphed\n    @fastest_convolutions\n    def forward" in own.text
    at_once = apply(problem, None, chosen("cudnn_benchmark", "cuda_graph"))
    assert sorted(files(at_once)) == sorted(files(candidate))
    assert own.text in files(at_once).values()


def test_both_names_of_a_file_are_imported(tmp_path):
    problem = in_checkout(tmp_path, "pkg/model.py")
    candidate = apply(problem, None, chosen("channels_last_inside"))
    assert list(files(candidate)) == ["pkg/model.py", "pkg/channels_last.py"]
    imports = files(candidate)["pkg/model.py"].partition("\n\n\nclass Model")[0]
    both = "convolutions_to_channels_last, with_channels_last_inputs"
    assert " ".join(imports.split()).endswith(f"from pkg.channels_last import {both}")
    candidate = apply(problem, candidate, chosen("cudnn_benchmark"))
    assert files(candidate)["pkg/model.py"].count("from pkg.channels_last import") == 1


def test_a_file_with_the_line_ends_of_another_system_keeps_them(tmp_path):
    problem = in_checkout(tmp_path, "pkg/model.py", SOURCE.replace("\n", "\r\n"))
    candidate = apply(problem, None, chosen("silu", "cuda_graph"))
    text = files(candidate)["pkg/model.py"]
    assert text.count("\n") == text.count("\r\n") > 10
    assert "from pkg.cuda_graph import cuda_graphed\r\n" in text
    assert files(candidate)["pkg/cuda_graph.py"] == GRAPH


def test_a_kernelbench_form_text_has_the_library_pasted(tmp_path):
    reference = TextProgram(source=SOURCE, entry="Model")
    problem = Problem(reference=reference, workloads=(WORKLOAD,))
    text = apply(problem, None, chosen("cuda_graph")).program.source
    assert "from __future__" not in text
    assert text.count("import torch\n") == 1
    assert text.index("class RecordedCall") < text.index("class Model")
    exec(text, {})


def test_a_candidate_says_exactly_what_was_done():
    reference = TextProgram(source=SOURCE.replace("Conv2d(3, 4, 3)", "Linear(4, 4)"), entry="Model")
    problem = Problem(reference=reference, workloads=(WORKLOAD,))
    tried = chosen("silu", "sdpa", "channels_last_inside", "cudnn_benchmark", "compile")
    candidate = apply(problem, None, tried)
    assert candidate.proposer == "playbook:silu+compile", "the others do not apply"
    assert [one.operator for one in candidate.edits] == ["silu", "compile"]
    assert candidate.techniques == (BY_NAME["silu"].family, "compilation")
    for name in ("silu", "compile"):
        assert BY_NAME[name].why in candidate.analysis
        assert f"- {name}: {BY_NAME[name].precondition}" in candidate.design
        assert f"- {name}: `" in candidate.analysis, "what was found"
    for name in ("sdpa", "cudnn_benchmark", "channels_last_inside"):
        assert name not in candidate.analysis + candidate.design
    assert apply(problem, None, chosen("sdpa", "cudnn_benchmark")) is None
    assert apply(problem, candidate, chosen("compile", "silu")) is None, "both are there"


PASTED = {"cuda_graph", "cudnn_benchmark", "channels_last_inside"}
KERNELBENCH = (
    SOURCE
    + """

def get_inputs():
    return [torch.rand(2, 3, 8, 8)]


def get_init_inputs():
    return []
"""
)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_scan_and_bench_propose_the_same_for_a_kernelbench_form_file(tmp_path, kind):
    made = Workload(
        name="get_inputs",
        provenance="kernelbench",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
    )
    scanned = in_checkout(tmp_path, "1_Model.py", KERNELBENCH)
    scanned = Problem(reference=scanned.reference, workloads=(made,), target=scanned.target)
    benched = Problem(reference=TextProgram(source=KERNELBENCH, entry="Model"), workloads=(made,))
    config = PlaybookConfig(compile=True)

    def proposed(problem):
        found = {}
        for strategy in default_strategies(config, kind):
            for one in strategy.propose(problem, (), 50):
                operators = tuple(edit.operator for edit in one.edits)
                program = one.program
                found[operators] = (
                    program.source if isinstance(program, TextProgram) else files(one)["1_Model.py"]
                )
        return found

    of_scan, of_bench = proposed(scanned), proposed(benched)
    assert list(of_scan) == list(of_bench)
    assert ("compile",) in of_scan
    assert (("cuda_graph",) in of_scan) == (kind == "cuda")
    for operators, text in of_scan.items():
        pasted = of_bench[operators]
        brings_a_file = not PASTED.isdisjoint(operators)
        # A checkout has what is pasted here in a file of its own.
        assert (text != pasted) == brings_a_file
        assert text.partition("\nclass Model(")[2] == pasted.partition("\nclass Model(")[2] != ""


def test_a_new_file_of_an_overlay_is_found_where_it_would_lie(tmp_path, monkeypatch):
    package = tmp_path / "pkg"
    package.mkdir()
    new, old = package / "fresh.py", package / "there.py"
    old.write_text("VALUE = 1\n")
    texts = {str(new): "VALUE = 2\n", str(tmp_path / "top.py"): "VALUE = 3\n"}
    finder = OverlayFinder(texts, tmp_path)
    path = [str(package)]
    spec = finder.find_spec("pkg.fresh", path)
    assert spec.origin == str(new)
    assert spec.loader.get_data(str(new)) == b"VALUE = 2\n"
    assert spec.submodule_search_locations is None
    assert finder.find_spec("pkg.there", path) is None, "it is as it was"
    assert finder.find_spec("pkg.absent", path) is None
    assert finder.find_spec("fresh", [str(tmp_path)]) is None, "it lies elsewhere"
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert finder.find_spec("top", None).origin == str(tmp_path / "top.py")


def test_a_workload_that_is_no_kernelbench_form_changes_the_target_alone(tmp_path):
    """In a checkout each definition of a file is a target of its own."""
    spec = TensorSpec(shape=(2, 3, 8, 8), dtype="float32")
    source = SOURCE.replace("return x + 1", "return x * torch.sigmoid(x)")
    problem = in_checkout(tmp_path, "pkg/model.py", source)
    called = Workload(name="w", provenance="declared", call=Call(args=(spec,)))
    problem = Problem(reference=problem.reference, workloads=(called,), target=problem.target)
    (text,) = files(apply(problem, None, chosen("silu"))).values()
    assert text.count("torch.sigmoid") == 1
