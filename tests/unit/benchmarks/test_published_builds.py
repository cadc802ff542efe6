"""What is read of published extensions. Whether a compiler takes them is asked by the script."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.report_card.rig import a_run, a_task, launching, told

TEXT = '''
from torch.utils.cpp_extension import load_inline
kernel = """torch::Tensor twice(torch::Tensor x) { return 2 * x; }"""
class ModelNew:
    def __init__(self):
        self.declared = "torch::Tensor twice(torch::Tensor x);"
        {call}
'''


@pytest.fixture
def builds(benchmark_module):
    return benchmark_module("published_builds")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("load_inline('a', self.declared, kernel, ['twice'])", (1, 1, ("twice",))),
        ("load_inline(name='a', cpp_sources=[''], cuda_sources=[kernel, kernel])", (0, 2, None)),
        ("cpp.load_inline(name='a', cpp_sources='', functions='twice')", (0, 0, ("twice",))),
        ("load_inline(name='a', cuda_sources=made_elsewhere())", None),
        ("load_inline(name='a', cuda_sources=kernel, functions=names)", None),
    ],
)
def test_what_a_call_is_given_is_read(builds, call, expected):
    found = list(builds.extensions(TEXT.replace("{call}", call)))
    if expected is None:
        assert found == []
        return
    (one,) = found
    assert (one.cpp.count("twice"), one.cuda.count("twice"), one.functions) == expected
    assert (builds.MODULE in one.main) is (one.functions is not None)
    assert one.main.count("m.def(") == (one.functions is not None)


@pytest.mark.parametrize(
    ("said", "cuda", "functions", "expected"),
    [
        ("'f' was not declared in this scope", "", ("f",), "undeclared"),
        ("redefinition of 'PyObject* PyInit_extension()'", "", ("f",), "twice"),
        ("", "PYBIND11_MODULE(a, m) {}", ("f",), "twice"),
        ("cuda.h: No such file or directory", "PYBIND11_MODULE(a, m) {}", ("f",), "twice"),
        ("", "PYBIND11_MODULE(a, m) {}", None, ""),
        ("cuda.h: No such file or directory", "", ("f",), ""),
        ("expected ';'", "", None, "other"),
        ("", "", ("f",), ""),
    ],
)
def test_why_one_cannot_be_built(builds, tmp_path, monkeypatch, said, cuda, functions, expected):
    monkeypatch.setattr(builds.Compiler, "error", lambda self, words: "")
    compiler = builds.Compiler(tmp_path)
    monkeypatch.setattr(compiler, "error", lambda words: said)
    one = builds.Extension(cpp="", cuda=cuda, functions=functions)
    assert compiler.obstacle(one).partition(":")[0] == expected


def test_what_the_judge_saw_is_told_beside_it(builds, tmp_path):
    def with_kernels(number, *own):
        task = a_task(f"level1/{number}", f"class Model: {number}")
        return launching(told(task, {"published": 1.5}), *own)

    card = tmp_path / "card.json"
    run = a_run(with_kernels(1, False, True), with_kernels(2, False), with_kernels(3))
    card.write_bytes(msgspec.json.encode(run))
    assert builds.outcomes(card) == {
        "level1/1": ("passed", True),
        "level1/2": ("passed", False),
        "level1/3": ("passed", None),
    }
    rows = [
        {"brings": "inline", "obstacles": [""], "status": "passed", "launches_its_own": True},
        {"brings": "inline", "obstacles": ["twice: x"], "status": "passed", "launches_its_own": 0},
        {"brings": "none"},
    ]
    said = " ".join(builds.said_of(rows))
    assert "1 of 2 cannot be built: {'twice': 1}" in said
