from __future__ import annotations

import pytest

from cudal1_ci.discover import discover
from cudal1_ci.discover.cuda_source import cuda_source
from cudal1_ci.records import Target

from .conftest import WriteTree


def kernels(text: str) -> list[tuple[str, int, int]]:
    found = cuda_source(text.encode()).kernels
    return [(each.qualname, each.first_line, each.last_line) for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void k(int* a) { a[0] = 1; }", [("k", 1, 1)]),
        ("template <typename T,\n int N = 4>\n__global__ void k(T* a) {\n}\n", [("k", 1, 4)]),
        ("static __global__ __launch_bounds__(256, 2) void k() {}", [("k", 1, 1)]),
        ("__global__ void __launch_bounds__(F(512)) k() {}", [("k", 1, 1)]),
        ('extern "C" __global__ void k() {}', [("k", 1, 1)]),
        ('extern "C" {\n__global__ void k() {}\n}', [("k", 2, 2)]),
        ("namespace a::b { namespace { __global__ void k() {} } }", [("a::b::k", 1, 1)]),
        ("namespace a {\nstruct S {\n template <class T> static __global__ void k(T a) {}\n};\n}",
         [("a::S::k", 3, 3)]),
        ("#ifdef X\n__global__ void k() {}\n#else\n__global__ void j() {}\n#endif\n",
         [("k", 2, 2), ("j", 4, 4)]),
        ("C10_LAUNCH_BOUNDS_1(256)\n__global__ void k(int* a) {}\n", [("k", 2, 2)]),
        ("INSTANTIATE(float)\nMACRO __global__ void k(int* a) {\n if (a) { }\n}\n", [("k", 2, 4)]),
        ("DEFINE_KERNEL(T, __global__ void k(int* a) {\n a[0] = 1;\n})\n", [("k", 1, 3)]),
        ("__global__ void k(int* a);\nextern __global__ void j(int);\n", []),
        ("// __global__ void k() {}\n/* __global__ void j() {} */\n", []),
        ('const char* s = "__global__ void k() {}";', []),
        ("#define GLOBAL __global__\n", []),
        ("__device__ int d(int a) { return a; }\nvoid host() { k<<<1, 2>>>(); }", []),
        ('__global__ void k() { char c = \'}\'; const char* s = "{{{"; }\nint x;', [("k", 1, 1)]),
        ("__global__ void k( { unfinished", []),
        ("", []),
        ("\x00\x01{{{{", []),
    ],
)  # fmt: skip
def test_kernels_survive_templates_namespaces_macros_and_damage(
    text: str, expected: list[tuple[str, int, int]]
) -> None:
    assert kernels(text) == expected


def cuda_targets(root: object) -> dict[str, Target]:
    discovery = discover(root)  # type: ignore[arg-type]
    return {t.qualname: t for t in discovery.targets if t.kind == "cuda_kernel"}


def test_a_kernel_is_launched_by_the_bindings_that_reach_it(write_tree: WriteTree) -> None:
    root = write_tree(
        {
            "csrc/scale.cu": """
            #include "scale.h"
            namespace ops {
            template <typename T> __global__ void scale_kernel(T* x, int n) { x[0] *= 2; }
            __global__ void unbound_kernel(float* x) { x[0] = 0; }
            __global__ void by_pointer_kernel(float* x) { x[0] = 0; }
            }
            void launch(float* x) {
              // unbound_kernel<<<1, 1>>>(x);
              ops::scale_kernel<float><<<1, 256, 0, 0>>>(x, 1);
            }
            torch::Tensor scale_cuda(torch::Tensor x) { launch(x.data_ptr<float>()); return x; }
            void lonely(float* x) { ops::unbound_kernel<<<1, 1>>>(x); }
            torch::Tensor& pointed(torch::Tensor& x) {
              auto kernel = &ops::by_pointer_kernel;
              kernel<<<1, 1>>>(nullptr);
              return x;
            }
            """,
            "csrc/bindings.cpp": """
            #include "scale.h"
            PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
              m.def("scale", &scale_cuda, "Scale (CUDA)");
              m.def("lambda_scale", [](torch::Tensor x) { return scale_cuda(x); });
            }
            TORCH_LIBRARY(my_ops, m) {
              m.def("scale(Tensor x) -> Tensor");
            }
            TORCH_LIBRARY_IMPL(my_ops, CUDA, m) {
              m.impl("scale", TORCH_FN(scale_cuda));
              m.impl("pointed", pointed);
            }
            """,
            "setup.py": """
            from setuptools import setup
            from torch.utils.cpp_extension import BuildExtension, CUDAExtension
            setup(ext_modules=[CUDAExtension("ops", ["csrc/bindings.cpp", "csrc/scale.cu"])])
            """,
            "pkg/jit.py": """
            import os
            from torch.utils.cpp_extension import load
            here = os.path.dirname(__file__)
            extension = load(name="ops", sources=[os.path.join(here, "../csrc", "scale.cu")])
            def build():
                sources = ["csrc/bindings.cpp", "other/scale.cu"]
                return load("other", sources)
            """,
        }
    )
    found = cuda_targets(root)
    assert set(found) == {"ops::scale_kernel", "ops::unbound_kernel", "ops::by_pointer_kernel"}
    assert found["ops::scale_kernel"].path == "csrc/scale.cu"
    assert found["ops::scale_kernel"].first_line == 4
    assert found["ops::scale_kernel"].launchers == (
        "csrc/bindings.cpp:lambda_scale",
        "csrc/bindings.cpp:my_ops::scale",
        "csrc/bindings.cpp:scale",
        "pkg/jit.py:extension",
        "setup.py:<module>",
    )
    assert "csrc/scale.cu:lonely" in found["ops::unbound_kernel"].launchers
    assert "csrc/bindings.cpp:my_ops::pointed" in found["ops::by_pointer_kernel"].launchers


def test_kernels_in_python_strings_are_found_with_exact_lines_and_users(
    write_tree: WriteTree,
) -> None:
    root = write_tree(
        {
            "inline.py": '''\
            """Explains `__global__ void prose_kernel() {}` in words."""
            import cupy
            import torch
            from torch.utils.cpp_extension import load_inline

            SOURCE = r"""
            #include <torch/extension.h>

            __global__ void add_kernel(float* x) {
              x[0] += 1;
            }
            """
            _extension = load_inline(name="x", cuda_sources=[SOURCE], functions=["add"])

            class Add(torch.nn.Module):
                def forward(self, x):
                    return _extension.add(x)

            def raw(x):
                text = "extern \\"C\\" __global__ void raw_kernel() {}"
                kernel = cupy.RawKernel(text, "raw_kernel")
                kernel((1,), (1,), ())

            def formatted(dtype):
                """__global__ void docstring_kernel() {}"""
                return f"""
            __global__ void filled_kernel({dtype}* x) {{ x[0] = 1; }}
            """
            PART = "__global__ is not a kernel"
            ''',
        }
    )
    found = cuda_targets(root)
    assert set(found) == {"add_kernel", "raw_kernel", "filled_kernel"}
    assert (found["add_kernel"].first_line, found["add_kernel"].last_line) == (9, 11)
    assert found["add_kernel"].launchers == ("inline.py:Add.forward",)
    assert found["raw_kernel"].launchers == ("inline.py:raw",)
    assert found["filled_kernel"].launchers == ("inline.py:formatted",)
    source = (root / "inline.py").read_text().splitlines()
    assert "raw_kernel" in source[found["raw_kernel"].first_line - 1]


def test_cuda_in_headers_is_found_and_plain_cpp_is_not_looked_at(write_tree: WriteTree) -> None:
    root = write_tree(
        {
            "a/kernel.h": "__global__ void in_header(int* a) { a[0] = 1; }\n",
            "a/plain.cpp": "int main() { return 0; }\n",
        }
    )
    discovery = discover(root)
    assert [t.qualname for t in discovery.targets] == ["in_header"]
    assert not discovery.facts["a/plain.cpp"].is_parsed
