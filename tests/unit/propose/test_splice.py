"""Splicing: KernelBench files, checkouts, CUDA files and strings, and what each language may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.llm.answer import Parsed, Unusable, parse
from cudal1_ci.propose.llm.splice import splice
from cudal1_ci.records import Problem, Target, TextProgram, TreeProgram, content_hash

ANSWERS = Path(__file__).parent / "answers"
SLOWFORMER = Path(__file__).parents[3] / "examples" / "slowformer"

REFERENCE = """\
import torch
import torch.nn as nn

class Model(nn.Module):
    \"\"\"Multiplies by a diagonal.\"\"\"
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return torch.diag(a) @ b

N = 8

def get_inputs():
    return [torch.rand(N), torch.rand(N, N)]

def get_init_inputs():
    return []
"""
TEXT = Problem(reference=TextProgram(source=REFERENCE, entry="Model"), workloads=())
FORWARD = "    def forward(self, a, b):\n        return a[:, None] * b\n"


def python(code: str) -> Parsed:
    return Parsed(analysis="", design="", code=code, language="python")


def cuda(code: str) -> Parsed:
    return Parsed(analysis="", design="", code=code, language="cuda")


def text_source(code: str) -> str:
    program = splice(TEXT, python(code))
    assert isinstance(program, TextProgram), program
    assert program.entry == "ModelNew"
    return program.source


def refusal(problem: Problem, parsed: Parsed) -> Unusable:
    found = splice(problem, parsed)
    assert isinstance(found, Unusable), found
    return found


# --- KernelBench files --------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(ANSWERS.glob("*.md")), ids=lambda file: file.stem)
def test_every_usable_answer_of_the_corpus_defines_the_entry(file):
    parsed = parse(file.read_bytes().decode())
    if isinstance(parsed, Unusable):
        return
    if parsed.language == "cuda":
        assert refusal(TEXT, parsed).kind == "wrong_language"
        return
    source = text_source(parsed.code)
    compile(source, "candidate.py", "exec")
    assert "class ModelNew(nn.Module):" in source
    assert "import torch.nn as nn" in source


def test_an_answer_that_needs_nothing_is_taken_to_the_letter():
    code = (
        '"""Mine."""\nimport torch\nfrom torch import nn\n\n\n# Broadcast.\n'
        f"class ModelNew(nn.Module):\n{FORWARD}"
    )
    assert text_source(code) == code


def test_missing_imports_that_everybody_means_are_added():
    code = (
        "@triton.jit\ndef k(x, N: tl.constexpr): pass\n\n"
        "class ModelNew(nn.Module):\n    def forward(self, a, b):\n"
        "        return F.relu(torch.sin(a)) * math.pi * np.e\n"
    )
    assert text_source(code) == (
        "import math\n\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        "import triton\nimport triton.language as tl\n\n" + code
    )


def test_imports_are_added_to_those_that_are_there():
    code = f"import torch\n\n\nclass ModelNew(nn.Module):\n{FORWARD}"
    assert text_source(code) == code.replace("torch\n", "torch\nimport torch.nn as nn\n", 1)


def test_a_bound_name_is_not_imported():
    code = f"import torch\n\nF = nn = torch.nn\n\nclass ModelNew(nn.Module):\n{FORWARD}    y = F\n"
    assert text_source(code) == code


@pytest.mark.parametrize("name", ["Model", "OptimizedModel", "FusedDiag", "Net"])
def test_a_class_of_another_name_is_renamed_wherever_it_is_meant(name):
    code = (
        "import torch\nimport torch.nn as nn\n\n"
        f"class {name}(nn.Module):\n    kind = '{name}'\n\n    def __init__(self):\n"
        f"        super({name}, self).__init__()\n"
        f"        self.{name} = isinstance(self, {name})\n\n"
        f"{FORWARD}\nbest = {name}\nnamed = dict({name}=1)\n"
    )
    expected = code.replace(f"class {name}(", "class ModelNew(").replace(
        f"super({name},", "super(ModelNew,"
    )
    expected = expected.replace(f"(self, {name})", "(self, ModelNew)")
    assert text_source(code) == expected.replace(f"best = {name}", "best = ModelNew")


def test_the_module_that_no_other_uses_is_the_entry():
    code = (
        "import torch\nfrom torch import nn\n\nclass Half(nn.Module):\n    def forward(self, x):\n"
        f"        return x / 2\n\nclass Fast(nn.Module):\n    half = Half()\n{FORWARD}"
    )
    assert text_source(code) == code.replace("class Fast", "class ModelNew")


def test_an_alias_is_the_entry():
    code = f"import torch\nfrom torch import nn\n\nclass A(nn.Module):\n{FORWARD}"
    assert text_source(f"{code}\nModelNew = A\n") == code.replace("class A", "class ModelNew")


def test_what_the_judge_makes_itself_and_the_script_are_left_out():
    code = f"import torch\nfrom torch import nn\n\nclass ModelNew(nn.Module):\n{FORWARD}"
    extra = (
        "\ndef get_inputs():\n    return [torch.zeros(1), torch.zeros(1, 1)]\n\n"
        "def get_init_inputs():\n    return []\n\nif __name__ == '__main__':\n    print(1)\n"
    )
    assert text_source(code + extra) == code


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("import torch\n\nclass A: pass\n\nclass B: pass\n", "no_entry", "`A`, `B`"),
        ("def helper(x): return x\n", "no_entry", "the class `ModelNew`"),
        ("class ModelNew(nn.Module):\n    def __init__(self): pass\n", "no_entry", "no `forward`"),
        (REFERENCE, "unchanged", "the reference itself"),
        (REFERENCE.replace("Model", "ModelNew"), "unchanged", "the reference itself"),
        ("class X(nn.Module):\n    def forward(self, X): return X\n", "no_entry", "a local"),
    ],
)
def test_an_answer_without_an_entry_of_its_own_is_refused(code, kind, says):
    found = refusal(TEXT, python(code))
    assert found.kind == kind
    assert says in found.message


def test_the_reference_with_another_helper_is_not_the_reference():
    code = REFERENCE.replace("torch.diag(a) @ b", "multiply(a, b)")
    assert "multiply" in text_source(code + "def multiply(a, b):\n    return a[:, None] * b\n")


def test_a_function_may_be_the_reference():
    reference = TextProgram(source="def Model(x):\n    return x * 1\n", entry="Model")
    program = splice(
        Problem(reference=reference, workloads=()), python("def Model(x):\n    return x\n")
    )
    assert program == TextProgram(source="def ModelNew(x):\n    return x\n", entry="ModelNew")


# --- checkouts ----------------------------------------------------------------------------------


def tree_problem(path: str, qualname: str, kind="torch_module", *, called=None, launchers=()):
    target = Target(
        path=path, qualname=qualname, kind=kind, first_line=1, last_line=1, launchers=launchers
    )
    module, _, name = (called or f"{path}:{qualname}").partition(":")
    program = TreeProgram(
        root=str(SLOWFORMER),
        import_root=".",
        import_path=f"{module.removesuffix('.py').replace('/', '.')}:{name}",
        digest="d",
    )
    return Problem(reference=program, workloads=(), target=target)


def overlay_of(problem: Problem, parsed: Parsed) -> tuple[str, str]:
    """What a spliced checkout overlays: the path of the one file, and its text."""
    program = splice(problem, parsed)
    assert isinstance(program, TreeProgram), program
    assert program.import_path == problem.reference.import_path
    (file,) = program.overlay
    original = (SLOWFORMER / file.path).read_text(encoding="utf-8")
    assert file.base_digest == content_hash(original)
    return file.path, file.text


NORM = "slowformer/layers/norm.py"
SCALE_EXT = "slowformer/kernels/scale_ext.py"
SCALE_CU = "csrc/scale_shift.cu"
SWISH = "slowformer/kernels/swish_triton.py"
RMS = (
    "class RMSNorm(nn.Module):\n    def __init__(self, dim, eps=1e-6):\n"
    "        super().__init__()\n        self.eps = eps\n"
    "        self.weight = nn.Parameter(torch.ones(dim))\n\n    def forward(self, x):\n"
    "        return torch.rms_norm(x, self.weight.shape, self.weight, self.eps)\n"
)


def test_an_answer_for_a_checkout_overlays_the_targets_file_and_only_it():
    path, text = overlay_of(tree_problem(NORM, "RMSNorm"), python(RMS))
    assert path == NORM
    original = (SLOWFORMER / NORM).read_text(encoding="utf-8")
    old = original[original.index("        norm = x") : original.index("\n\n\nclass TokenNorm")]
    new = "        return torch.rms_norm(x, self.weight.shape, self.weight, self.eps)"
    assert text == original.replace(old, new)


def test_what_an_earlier_candidate_laid_over_the_file_is_what_is_spliced():
    problem = tree_problem(NORM, "RMSNorm")
    program = splice(problem, python(RMS))
    again = Problem(reference=program, workloads=(), target=problem.target)
    assert refusal(again, python(RMS)).kind == "unchanged"


def test_a_file_that_is_gone_is_refused():
    assert refusal(tree_problem("gone.py", "A"), python(RMS)).kind == "unsupported"


# --- kernels ------------------------------------------------------------------------------------

KERNEL = """\
#include <cuda_fp16.h>
template <typename scalar_t>
__global__ void scale_shift_kernel(const scalar_t* in, scalar_t* __restrict__ out, float scale,
                                   float shift, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += 1) out[i] = in[i] * scale + shift;
}
"""
CUDA = tree_problem(
    SCALE_CU, "scale_shift_kernel", "cuda_kernel", called=f"{SCALE_EXT}:scale_shift"
)


def test_a_cuda_answer_replaces_the_kernel_of_the_cuda_file():
    path, text = overlay_of(CUDA, cuda(KERNEL))
    original = (SLOWFORMER / SCALE_CU).read_text(encoding="utf-8")
    before, _, after = original.partition("template <typename scalar_t>")
    after = after[after.index("\n}\n") + 3 :]
    header, kernel = KERNEL.split("\n", 1)
    assert path == SCALE_CU
    assert text == before.replace("extension.h>\n", f"extension.h>\n{header}\n") + kernel + after


def test_a_python_answer_to_a_kernel_of_a_cuda_file_is_refused():
    code = "def scale_shift(x, scale, shift):\n    return x * scale + shift\n"
    found = refusal(CUDA, python(code))
    assert found.kind == "wrong_language"
    assert "in CUDA" in found.message


def test_cuda_for_a_python_target_is_refused_with_a_way_out():
    found = refusal(tree_problem(NORM, "RMSNorm"), cuda(KERNEL))
    assert found.kind == "wrong_language"
    assert "load_inline" in found.message


def test_a_triton_answer_replaces_the_kernel_and_its_launcher():
    code = (
        "import torch, triton\nimport triton.language as tl\n\n@triton.jit\n"
        "def silu_kernel(x, y, n, stride, BLOCK: tl.constexpr):\n    tl.store(y, n)\n\n"
        "def silu(x):\n    silu_kernel[(1,)](x, x, 1, 1, BLOCK=1)\n    return x\n"
    )
    problem = tree_problem(
        SWISH, "silu_kernel", "triton_kernel", called=f"{SWISH}:silu", launchers=(f"{SWISH}:silu",)
    )
    path, text = overlay_of(problem, python(code))
    assert path == SWISH
    assert text.count("silu_kernel") == 2
    assert (
        "    def silu_kernel(x, y, n, stride, BLOCK: tl.constexpr):\n        tl.store(y, n)" in text
    )
    assert '    """SiLU of a CUDA tensor."""\n    silu_kernel[(1,)](x, x, 1, 1, BLOCK=1)' in text
    alone = python(code[: code.index("def silu(x)")])
    assert refusal(problem, alone).kind == "signature", "the launcher would call it wrongly"


KERNELS = """\
import triton


@triton.jit
def k(x, n):
    pass


def near(x):
    k[(1,)](x, 1)
    return x
"""
OPS = """\
from kernels import k


def far(x):
    k[(1,)](x, 1)
    return x
"""


def kernel_problem(folder, called: str, *launchers: str) -> Problem:
    (folder / "kernels.py").write_text(KERNELS, encoding="utf-8")
    (folder / "ops.py").write_text(OPS, encoding="utf-8")
    target = Target(
        path="kernels.py",
        qualname="k",
        kind="triton_kernel",
        first_line=4,
        last_line=6,
        launchers=launchers,
    )
    program = TreeProgram(root=str(folder), import_root=".", import_path=called, digest="d")
    return Problem(reference=program, workloads=(), target=target)


FASTER = "import triton\n\n@triton.jit\ndef k(x, n):\n    x = n\n"
NEAR = "\ndef near(x):\n    k[(2,)](x, 1)\n    return x\n"


def test_what_changes_is_the_kernels_own_file_though_another_one_is_called(tmp_path):
    problem = kernel_problem(tmp_path, "ops:far", "ops.py:far")
    spliced = splice(problem, python(FASTER))
    (file,) = spliced.overlay
    assert (file.path, file.text) == ("kernels.py", KERNELS.replace("pass", "x = n"))
    assert spliced.import_path == "ops:far"


def test_what_launches_the_kernel_may_change_with_it_in_its_file(tmp_path):
    problem = kernel_problem(tmp_path, "ops:far", "kernels.py:near", "ops.py:far")
    (file,) = splice(problem, python(FASTER + NEAR)).overlay
    assert file.text == KERNELS.replace("pass", "x = n").replace("(1,)", "(2,)")


def test_a_kernel_that_another_file_launches_too_keeps_its_parameters(tmp_path):
    other = (FASTER + NEAR).replace("k(x, n)", "k(x, n, m)").replace("(x, 1)", "(x, 1, 2)")
    both = kernel_problem(tmp_path, "kernels:near", "kernels.py:near", "ops.py:far")
    assert refusal(both, python(other)).kind == "signature"
    alone = kernel_problem(tmp_path, "kernels:near", "kernels.py:near")
    assert isinstance(splice(alone, python(other)), TreeProgram)


def test_a_kernel_in_a_string_is_replaced_in_its_string(tmp_path):
    source = (
        'SOURCE = r"""\n#include <x>\n__global__ void k(float* x) { x[0] = 1; }\n"""\n\n'
        "def run(x):\n    return build(SOURCE).k(x)\n"
    )
    (tmp_path / "ops.py").write_text(source, encoding="utf-8")
    target = Target(path="ops.py", qualname="k", kind="cuda_kernel", first_line=3, last_line=3)
    program = TreeProgram(root=str(tmp_path), import_root=".", import_path="ops:run", digest="d")
    problem = Problem(reference=program, workloads=(), target=target)
    spliced = splice(problem, cuda("__global__ void k(float* x) { x[0] = 2; }\n"))
    assert isinstance(spliced, TreeProgram)
    assert spliced.overlay[0].text == source.replace("= 1", "= 2")
    quoted = cuda('__global__ void k(float* x) { printf("""3"""); }\n')
    assert refusal(problem, quoted).kind == "unsupported"
