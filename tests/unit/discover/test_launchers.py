"""What can be called to make a kernel run."""

from __future__ import annotations

import pytest

from cudal1_ci.discover import discover
from cudal1_ci.discover.launchers import functions_to_trace, reach_of

from .conftest import WriteTree

SILU = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def silu_kernel(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at) * 2)
"""
TWO_CU = """
    #include <torch/extension.h>
    __global__ void scale_kernel(float* x) { x[threadIdx.x] *= 2; }
    __global__ void shift_kernel(float* x) { x[threadIdx.x] += 2; }
    torch::Tensor scale(torch::Tensor x) { scale_kernel<<<1, 32>>>(x.data_ptr<float>()); return x; }
    torch::Tensor shift(torch::Tensor x) { shift_kernel<<<1, 32>>>(x.data_ptr<float>()); return x; }
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); m.def("shift", &shift); }
"""
TWO_PY = """
    import functools
    from pathlib import Path
    from torch.utils import cpp_extension

    SOURCE = Path(__file__).parents[1] / "csrc" / "two.cu"

    @functools.cache
    def extension():
        return cpp_extension.load(name="two", sources=[str(SOURCE)])

    def scale(x):
        return extension().scale(x)

    def shift(x):
        return extension().shift(x)
"""


def launchers(root, name):
    found = {kernel.qualname: reach for kernel, reach in reaches(root).items()}
    return [f"{one.path}:{one.qualname}" for one in found[name].launchers]


def reaches(root):
    discovery = discover(root)
    return reach_of(discovery, [target for target in discovery.targets if target.is_kernel])


def test_functions_and_modules_of_other_files_are_launchers_the_nearest_first(
    write_tree: WriteTree,
):
    root = write_tree(
        {
            "pkg/__init__.py": "",
            "pkg/kernels.py": SILU,
            "pkg/ops.py": """
                import torch
                from .kernels import silu_kernel

                class Silu(torch.autograd.Function):
                    @staticmethod
                    def forward(ctx, x):
                        y = torch.empty_like(x)
                        silu_kernel[(1,)](x, y, x.numel(), BLOCK=64)
                        return y

                def silu(x):
                    return Silu.apply(x)
            """,
            "pkg/model.py": """
                import torch
                from pkg import ops

                class Gate(torch.nn.Module):
                    def forward(self, x):
                        return ops.silu(x) * x

                def unrelated(x):
                    return torch.relu(x)
            """,
        }
    )
    assert launchers(root, "silu_kernel") == ["pkg/ops.py:silu", "pkg/model.py:Gate"]


def test_what_calls_another_kernel_of_the_extension_is_no_launcher(write_tree: WriteTree):
    root = write_tree({"csrc/two.cu": TWO_CU, "pkg/two.py": TWO_PY})
    assert launchers(root, "scale_kernel") == ["pkg/two.py:scale"]
    assert launchers(root, "shift_kernel") == ["pkg/two.py:shift"]


def test_where_no_binding_is_read_by_its_name_all_users_are_launchers(write_tree: WriteTree):
    python = TWO_PY.replace("extension().scale(x)", 'getattr(extension(), "sca" + "le")(x)')
    python = python.replace("extension().shift(x)", 'getattr(extension(), "shi" + "ft")(x)')
    root = write_tree({"csrc/two.cu": TWO_CU, "pkg/two.py": python})
    found = launchers(root, "scale_kernel")
    assert {"pkg/two.py:scale", "pkg/two.py:shift"} <= set(found)


def test_files_of_other_extensions_with_the_same_names_are_told_apart(write_tree: WriteTree):
    root = write_tree(
        {
            "csrc/two.cu": TWO_CU,
            "pkg/two.py": TWO_PY,
            "csrc/other.cu": TWO_CU.replace("scale_kernel", "other_kernel"),
            "pkg/other.py": TWO_PY.replace("two.cu", "other.cu").replace('"two"', '"other"'),
        }
    )
    assert launchers(root, "scale_kernel") == ["pkg/two.py:scale"]
    assert launchers(root, "other_kernel") == ["pkg/other.py:scale"]


def test_a_kernel_in_a_string_is_launched_by_what_uses_the_string(write_tree: WriteTree):
    root = write_tree(
        {
            "pkg/inline.py": """
                from torch.utils.cpp_extension import load_inline

                SOURCE = '''
                __global__ void twice(float* x) { x[threadIdx.x] *= 2; }
                '''
                EXTENSION = load_inline(name="twice", cpp_sources="", cuda_sources=SOURCE)

                def double(x):
                    return EXTENSION.run(x)

                def another(x):
                    return x
            """,
        }
    )
    assert launchers(root, "twice") == ["pkg/inline.py:double"]


def test_a_registered_operator_is_launched_through_torch_ops(write_tree: WriteTree):
    root = write_tree(
        {
            "csrc/op.cu": """
                #include <torch/library.h>
                __global__ void op_kernel(float* x) { x[0] = 1; }
                at::Tensor op(at::Tensor x) { op_kernel<<<1, 1>>>(x.data_ptr<float>()); return x; }
                TORCH_LIBRARY(mine, m) { m.def("op", &op); }
            """,
            "pkg/op.py": """
                import torch

                def op(x):
                    return torch.ops.mine.op(x)
            """,
        }
    )
    assert launchers(root, "op_kernel") == ["pkg/op.py:op"]


@pytest.mark.parametrize(
    ("setup", "loads", "is_installed"),
    [
        ("CUDAExtension('two._C', ['csrc/two.cu'])", False, True),
        ("CUDAExtension('two._C', ['csrc/two.cu'])", True, False),
        ("None", True, False),
        ("None", False, False),
    ],
)
def test_an_extension_that_only_setup_builds_is_installed(
    write_tree: WriteTree, setup, loads, is_installed
):
    files = {
        "setup.py": f"""
            from setuptools import setup
            from torch.utils.cpp_extension import CUDAExtension
            setup(ext_modules=[{setup}])
        """,
        "csrc/two.cu": TWO_CU,
    }
    root = write_tree({**files, "pkg/two.py": TWO_PY} if loads else files)
    assert {one.is_installed for one in reaches(root).values()} == {is_installed}


def test_a_triton_kernel_and_a_function_of_cpp_of_one_word_have_nothing_to_do_with_each_other(
    write_tree: WriteTree,
):
    root = write_tree(
        {
            "pkg/kernels.py": SILU.replace("silu_kernel", "scale"),
            "csrc/two.cu": TWO_CU,
            "pkg/two.py": TWO_PY,
        }
    )
    assert launchers(root, "scale") == []


def test_what_launches_a_kernel_is_traced_like_what_computes(write_tree: WriteTree):
    other = "import torch\n\ndef f(x):\n    return torch.relu(x)\n\ndef g(x):\n    return 1\n"
    root = write_tree({"csrc/two.cu": TWO_CU, "pkg/two.py": TWO_PY, "pkg/other.py": other})
    assert functions_to_trace(discover(root)) == {
        "pkg/other.py": ["f"],
        "pkg/two.py": ["scale", "shift"],
    }
