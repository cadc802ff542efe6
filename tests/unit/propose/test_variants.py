"""What of a program a prompt shows."""

from __future__ import annotations

from cudal1_ci.propose.llm.variants import reference_text, variant_text
from cudal1_ci.records import OverlayFile, Problem, Target, TextProgram, TreeProgram

FILE = '''"""Layers."""
import torch

EPS = 1e-6


@torch.compile
class Norm(torch.nn.Module):
    def forward(self, x):
        return x / x.norm()


def other(x):
    return x
'''
FASTER = FILE.replace("import torch\n", "import torch\nimport triton\n", 1).replace(
    "x / x.norm()", "kernel(x)"
)
KERNEL = "\n\n@triton.jit\ndef kernel(x):\n    return x\n"


def tree(root, *overlay: OverlayFile) -> TreeProgram:
    (root / "pkg").mkdir(exist_ok=True)
    (root / "pkg/layers.py").write_text(FILE)
    return TreeProgram(
        root=str(root), import_root=".", import_path="pkg.layers:Norm", digest="d", overlay=overlay
    )


def problem(program, target: Target | None = None) -> Problem:
    return Problem(reference=program, workloads=(), target=target)


def kernel(path: str, name: str, kind, line: int) -> Target:
    return Target(path=path, qualname=name, kind=kind, first_line=line, last_line=line + 1)


def test_of_a_kernel_the_statement_that_holds_it_or_its_cuda_file(tmp_path):
    program = tree(tmp_path)
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    text = "import triton\n\nif triton:\n    @triton.jit\n    def k(x):\n        pass\n\nX = 1\n"
    (tmp_path / "k.py").write_text(text)
    (tmp_path / "s.py").write_text(
        f"SOURCE = {chr(39) * 3}\n__global__ void k() {{}}\n{chr(39) * 3}\n"
    )
    assert reference_text(problem(program, kernel("k.cu", "k", "cuda_kernel", 1))) == (
        "__global__ void k() {}\n"
    )
    assert reference_text(problem(program, kernel("k.py", "k", "triton_kernel", 4))) == (
        "if triton:\n    @triton.jit\n    def k(x):\n        pass"
    )
    assert reference_text(problem(program, kernel("s.py", "k", "cuda_kernel", 2))).startswith(
        "SOURCE = "
    )


def test_of_the_reference_the_statement_that_defines_the_target(tmp_path):
    assert reference_text(problem(tree(tmp_path))) == (
        "@torch.compile\nclass Norm(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x / x.norm()"
    )


def test_of_a_candidate_what_it_changes(tmp_path):
    program = tree(tmp_path, OverlayFile(path="pkg/layers.py", text=FASTER + KERNEL))
    assert variant_text(program) == (
        "import triton\n\n@torch.compile\nclass Norm(torch.nn.Module):\n"
        "    def forward(self, x):\n        return kernel(x)\n\n"
        "@triton.jit\ndef kernel(x):\n    return x"
    )


CU = """\
#include <cuda.h>
#define WIDTH 32

__global__ void k(float* x) { x[0] = WIDTH; }

void run(float* x) {
  const int threads = 32;
  k<<<1, threads>>>(x);
}
"""


def test_of_a_cuda_file_functions_and_lines_that_are_new(tmp_path):
    program = tree(tmp_path, OverlayFile(path="pkg/op.cu", text=CU.replace("32", "64")))
    (tmp_path / "pkg/op.cu").write_text(CU)
    assert variant_text(program) == (
        "#define WIDTH 64\n\nvoid run(float* x) {\n  const int threads = 64;\n"
        "  k<<<1, threads>>>(x);\n}"
    )


def test_files_that_are_new_are_shown_whole(tmp_path):
    files = (
        OverlayFile(path="pkg/op.cu", text="__global__ void k() {}"),
        OverlayFile(path="pkg/new.py", text="A = 1\n"),
    )
    assert variant_text(tree(tmp_path, *files)) == "__global__ void k() {}\n\nA = 1"


def test_lines_are_those_of_python(tmp_path):
    text = FILE.replace("EPS = 1e-6", "EPS = 1e-6\n\f\nTEXT = 'a\u2028b'").replace("\n", "\r\n")
    program = tree(tmp_path, OverlayFile(path="pkg/layers.py", text=text))
    assert variant_text(program) == "TEXT = 'a\u2028b'"


def test_a_text_is_its_own_variant():
    program = TextProgram(source="class Model: ...", entry="Model")
    assert variant_text(program) == reference_text(problem(program)) == "class Model: ..."
