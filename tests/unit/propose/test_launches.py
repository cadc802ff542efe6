"""Which numbers a launch has, where they are written, and what is tried of them."""

from __future__ import annotations

import pytest

from cudal1_ci.propose.launch_config import launch_candidates
from cudal1_ci.propose.launch_config.cuda import cuda_numbers, cuda_numbers_in_strings
from cudal1_ci.propose.launch_config.number import LaunchNumber, Place, written
from cudal1_ci.propose.launch_config.triton import triton_numbers
from cudal1_ci.records import Call, Exemplar, Problem, Target, TensorSpec, TreeProgram, Workload

KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr, GROUP: tl.constexpr = 8, D: tl.constexpr = 64):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n), i < n)

"""


def values(numbers: tuple[LaunchNumber, ...]) -> dict[str, int]:
    return {one.name: one.value for one in numbers}


@pytest.mark.parametrize(
    ("launch", "found", "moved"),
    [
        pytest.param(
            "add[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)",
            {"BLOCK": 256, "num_warps": 4},
            "add[(triton.cdiv(n, 512),)](x, y, n, BLOCK=512, num_warps=8)",
            id="a number in the grid too",
        ),
        pytest.param(
            "add[((n + 255) // 256,)](x, y, n, 256, num_warps=2)",
            {"BLOCK": 256, "num_warps": 2},
            "add[((n + 511) // 512,)](x, y, n, 512, num_warps=4)",
            id="by its place",
        ),
        pytest.param(
            "B = 64\n    add[lambda meta: (n // meta['BLOCK'],)](x, y, n, BLOCK=B, D=64)",
            {"BLOCK": 64, "num_warps": 4},
            "B = 128\n    add[lambda meta: (n // meta['BLOCK'],)]"
            "(x, y, n, BLOCK=B, D=64, num_warps=8)",
            id="behind a name",
        ),
        pytest.param(
            "grid = (n // 32, 1)\n    ops.add[grid](x, y, n, BLOCK=32, GROUP=4)",
            {"BLOCK": 32, "GROUP": 4, "num_warps": 4},
            "grid = (n // 64, 1)\n    ops.add[grid](x, y, n, BLOCK=64, GROUP=8, num_warps=8)",
            id="in the grid behind a name",
        ),
        pytest.param(
            "add[g](\n        x,\n        y,\n        n,\n        BLOCK=128,  # of float32\n    )",
            {"BLOCK": 128, "num_warps": 4},
            "add[g](\n        x,\n        y,\n        n,\n        BLOCK=256,  # of float32\n"
            "        num_warps=8,\n    )",
            id="a line for each",
        ),
        pytest.param(
            "add[g](x, y, n, BLOCK = 1024, GROUP = 128)",
            {"BLOCK": 1024, "num_warps": 4},
            "add[g](x, y, n, BLOCK = 2048, GROUP = 128, num_warps = 8)",
            id="spelled as the others are",
        ),
        pytest.param(
            "add[g](x, y, n, BLOCK=64)\n    add[g](y, x, n, BLOCK=64)",
            {"BLOCK": 64, "num_warps": 4},
            "add[g](x, y, n, BLOCK=128, num_warps=8)\n    add[g](y, x, n, BLOCK=128, num_warps=8)",
            id="two launches alike",
        ),
        pytest.param(
            "add[g](x, y, n, BLOCK=64, num_warps=1)\n    add[g](y, x, n, BLOCK=32, num_warps=1)",
            {"num_warps": 1},
            "add[g](x, y, n, BLOCK=64, num_warps=2)\n    add[g](y, x, n, BLOCK=32, num_warps=2)",
            id="two launches that differ",
        ),
        pytest.param(
            "B = 64\n    B = triton.next_power_of_2(n)\n    add[g](x, y, n, BLOCK=B, num_warps=w)",
            {},
            None,
            id="computed",
        ),
        pytest.param("add[g](x, y, n, BLOCK=100, **meta)", {}, None, id="no power of two"),
        pytest.param("other[g](x, y, n, BLOCK=128)", {}, None, id="another kernel"),
    ],
)
def test_numbers_of_a_triton_launch(launch, found, moved):
    text = f"{KERNEL}def run(x, y, n, w, g, meta):\n    {launch}\n"
    numbers = triton_numbers(text, "add", text)
    assert values(numbers) == found
    if moved is not None:
        steps = {one: one.after(1) for one in numbers}
        assert written(text, steps) == text.replace(launch, moved)


def test_stages_are_of_a_kernel_with_a_loop():
    text = KERNEL.replace("    i = tl", "    for _ in range(2):\n        pass\n    i = tl")
    launch = "add[g](x, y, n, BLOCK=16, num_stages=1)"
    (block, warps, stages) = triton_numbers(f"{text}\n{launch}\n", "add", f"{text}\n{launch}\n")
    assert (stages.name, stages.after(1), stages.after(-1)) == ("num_stages", 2, None)
    assert (block.after(-1), warps.after(-2), warps.after(-3)) == (None, 1, None)


@pytest.mark.parametrize(
    "decorated",
    ["@triton.autotune(configs, key=[])\n@triton.jit", "@autotune([])\n@triton.jit"],
)
def test_what_an_autotuner_launches_is_its_own(decorated):
    text = KERNEL.replace("@triton.jit", decorated) + "add[g](x, y, n, BLOCK=64)\n"
    assert triton_numbers(text, "add", text) == ()


def test_a_launch_in_another_file_knows_the_kernels_parameters():
    text = "from kernels import add\nSIZE = 512\n\ndef run(x):\n    add[g](x, x, 3, SIZE)\n"
    assert values(triton_numbers(text, "add", KERNEL)) == {"BLOCK": 512, "num_warps": 4}
    assert triton_numbers("def (", "add", KERNEL) == ()


def test_two_sizes_of_which_the_grid_may_repeat_either_stay():
    kernel = KERNEL.replace("GROUP: tl.constexpr = 8", "TILE: tl.constexpr")
    launch = "add[(m // 64, n // 64)](x, y, n, BLOCK=64, TILE=64)\n"
    assert values(triton_numbers(kernel + launch, "add", kernel + launch)) == {"num_warps": 4}


CUDA = """\
#define SIZE 128
__global__ void scale(float* x) {{ }}
constexpr int kThreads = 64;
void run(float* x, int n, cudaStream_t stream) {{
  {launch}
}}
"""


@pytest.mark.parametrize(
    ("launch", "found", "moved"),
    [
        (
            "scale<<<(n + 255) / 256, 256, 0, stream>>>(x);",
            {"blockDim": 256},
            "scale<<<(n + 511) / 512, 512, 0, stream>>>(x);",
        ),
        (
            "const int t = 32; int b = (n + t - 1) / t; ops::scale<float, 4><<<b, t>>>(x);",
            {"t": 32},
            "const int t = 64; int b = (n + t - 1) / t; ops::scale<float, 4><<<b, t>>>(x);",
        ),
        (
            "const int b = n / 128; scale<<<b, dim3(128)>>>(x);",
            {"blockDim": 128},
            "const int b = n / 256; scale<<<b, dim3(256)>>>(x);",
        ),
        (
            "dim3 block(16, 8); scale<<<n, block>>>(x);",
            {"blockDim.x": 16, "blockDim.y": 8},
            "dim3 block(32, 16); scale<<<n, block>>>(x);",
        ),
        ("scale<<<n, SIZE>>>(x);", {"SIZE": 128}, None),
        ("dim3 block = dim3(kThreads, 1); scale<<<n, block>>>(x);", {"kThreads": 64}, None),
        ("int t = 64; t = n; scale<<<n, t>>>(x);", {}, None),
        ("scale<<<n, 100>>>(x);", {}, None),
        ("scale<<<n, threads_for(n)>>>(x);", {}, None),
        ("scale<<<n, n>>>(x); other<<<n, 64>>>(x);", {}, None),
    ],
)
def test_numbers_of_a_cuda_launch(launch, found, moved):
    text = CUDA.format(launch=launch)
    numbers = cuda_numbers(text, "scale")
    assert values(numbers) == found
    if moved is not None:
        steps = {one: one.after(1) for one in numbers}
        assert written(text, steps) == text.replace(launch, moved)


def test_a_launch_in_a_string_of_a_python_file():
    held = CUDA.format(launch="scale<<<1, 64>>>(x);")
    text = f'# \N{GREEK SMALL LETTER MU}s\nSOURCE = r"""\n{held}"""\n'
    (number,) = cuda_numbers_in_strings(text, "scale")
    assert written(text, {number: 128}) == text.replace("<<<1, 64>>>", "<<<1, 128>>>")
    with_escapes = text.replace('r"""', '"""').replace("scale<<<1", "scale\\t<<<1")
    assert cuda_numbers_in_strings(with_escapes, "scale") == ()


def test_a_number_moves_by_steps_within_what_it_may_be():
    number = LaunchNumber("BLOCK", 64, (Place(0, 2),), "by doubling", 32, 128)
    assert [number.after(by) for by in (-2, -1, 0, 1, 2)] == [None, 32, 64, 128, None]


def a_problem(tmp_path, text: str) -> Problem:
    (tmp_path / "ops.py").write_text(text, encoding="utf-8")
    return Problem(
        reference=TreeProgram(
            root=str(tmp_path), import_root="", import_path="ops:run", digest="d"
        ),
        workloads=(
            Workload(
                name="w",
                provenance="declared",
                init=Call(),
                call=Call(args=(TensorSpec(shape=(2,), dtype="float32"),)),
            ),
        ),
        target=Target(
            path="ops.py",
            qualname="add",
            kind="triton_kernel",
            first_line=4,
            last_line=7,
            launchers=("ops.py:run",),
        ),
    )


def texts_of(candidates) -> list[str]:
    return [one.program.overlay[0].text.splitlines()[-1].strip() for one in candidates]


def test_first_each_number_by_itself_then_what_gained_together_and_further(tmp_path):
    launch = "def run(x):\n    add[g](x, x, 3, BLOCK=64)\n"
    problem = a_problem(tmp_path, KERNEL + launch)
    first = launch_candidates(problem, (), 12)
    assert texts_of(first)[:4] == [
        "add[g](x, x, 3, BLOCK=128)",
        "add[g](x, x, 3, BLOCK=64, num_warps=8)",
        "add[g](x, x, 3, BLOCK=32)",
        "add[g](x, x, 3, BLOCK=64, num_warps=2)",
    ]
    scores = {"BLOCK=128)": 1.2, "num_warps=2)": 1.1, "num_warps=1)": 1.3, "BLOCK=32)": 0.8}
    passed = [
        Exemplar(candidate=one, score=score)
        for one, text in zip(first, texts_of(first), strict=True)
        for end, score in scores.items()
        if text.endswith(end)
    ]
    assert texts_of(launch_candidates(problem, passed, 12)) == [
        "add[g](x, x, 3, BLOCK=128, num_warps=1)",
    ]
    # One warp is the least; without it the block goes on, and is put together with two warps.
    without = [one for one in passed if one.score != 1.3]
    assert texts_of(launch_candidates(problem, without, 12)) == [
        "add[g](x, x, 3, BLOCK=128, num_warps=2)",
        "add[g](x, x, 3, BLOCK=256)",
        "add[g](x, x, 3, BLOCK=256, num_warps=2)",
    ]
    assert len(launch_candidates(problem, without, 2)) == 2
    lost = [Exemplar(candidate=one.candidate, score=0.9) for one in passed]
    assert launch_candidates(problem, lost, 12) == []
    assert "`BLOCK`: 64 -> 128" in first[0].analysis
