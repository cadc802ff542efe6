"""CUDA answers in CUDA text: what is replaced, what is added and where, what is refused."""

from __future__ import annotations

import pytest

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.splice.cuda import squeezed, with_kernel
from cudal1_ci.propose.llm.splice.cuda_strings import with_kernel_in_string

FILE = """\
// Copyright
#include <torch/extension.h>
#define TILE 32

namespace ops {

__device__ float twice(float x) { return 2 * x; }

// Scales.
template <typename T>
__global__ void scale(const T* __restrict__ x, T* y, const int n) {  // one thread an element
  int i = threadIdx.x;
  if (i < n) y[i] = twice(x[i]);
}

}  // namespace ops

torch::Tensor run(const torch::Tensor& x) {
  auto y = torch::empty_like(x);
  ops::scale<float><<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), 32);
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
KERNEL = """\
template <typename T>
__global__ void __launch_bounds__(256) scale(const T* in, T* __restrict__ out, int count) {
  for (int i = 0; i < count; ++i) out[i] = twice(in[i]);
}
"""
START = FILE.index("template <typename T>")
END = FILE.index("\n\n}  // namespace")
OLD_RUN = FILE[FILE.index("torch::Tensor run") : FILE.index("\n\nPYBIND")]
NEW_RUN = OLD_RUN.replace("<<<1, 32>>>", "<<<2, 16>>>")


def spliced(answer: str, text: str = FILE, name: str = "ops::scale") -> str:
    found = with_kernel(text, name, answer)
    assert isinstance(found, str), found
    return found


def expected(before: str = "", kernel: str = KERNEL.rstrip()) -> str:
    return FILE[:START] + before + kernel + FILE[END:]


def test_the_kernel_is_replaced_and_no_other_byte():
    assert spliced(KERNEL) == expected()


def test_an_answer_may_repeat_namespaces_and_what_the_file_has():
    answer = (
        "#include <torch/extension.h>\n#define TILE 32\nnamespace ops {\n"
        f"__device__ float twice(float x) {{ return 2*x; }}\n{KERNEL}\n}}\n"
    )
    assert spliced(answer) == expected()


def test_what_the_kernel_needs_is_put_before_it_and_headers_with_the_headers():
    answer = (
        "#include <cuda_fp16.h>\n#define UNROLL 4\nconstexpr int kThreads = 256;\n"
        "struct Pair { float a, b; };\n"
        f"__device__ float half_of(float x) {{ return x / 2; }}\n// New.\n{KERNEL}"
    )
    before = (
        "#define UNROLL 4\n\nconstexpr int kThreads = 256;\n\nstruct Pair { float a, b; };\n\n"
        "__device__ float half_of(float x) { return x / 2; }\n\n"
    )
    assert spliced(answer) == expected(before).replace(
        "extension.h>\n", "extension.h>\n#include <cuda_fp16.h>\n"
    )


def test_a_file_without_headers_gets_them_on_top():
    text = "__global__ void k(int n) { n = 1; }\n"
    answer = "#include <mma.h>\n__global__ void k(int n) { n = 2; }\n"
    assert spliced(answer, text, "k") == answer


def test_what_launches_the_kernel_is_replaced_with_it_and_frees_its_parameters():
    kernel = KERNEL.replace("int count", "int count, int stride").rstrip()
    run = NEW_RUN.replace(", 32);", ", 32, 1);")
    assert spliced(f"{kernel}\n{run}\n") == expected(kernel=kernel).replace(OLD_RUN, run)


def test_a_whole_file_replaces_the_file():
    answer = (
        "#include <torch/extension.h>\n__device__ float twice(float x) { return x + x; }\n"
        f"{KERNEL}{NEW_RUN}\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }\n'
    )
    assert spliced(answer) == answer


OTHERS = FILE.replace(
    "torch::Tensor run",
    "__global__ void other(float* x) { x[0] = TILE; }\n\n"
    "torch::Tensor start(torch::Tensor x) { other<<<1, 1>>>(x.data_ptr<float>()); return x; }\n\n"
    "torch::Tensor run",
)


FASTER = OTHERS.replace("i < n", "i < n && n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[0] = TILE", "x[0] = 2 * TILE"),  # another kernel
        ("other<<<1, 1>>>", "other<<<2, 2>>>"),  # what launches that
    ],
)
def test_of_a_whole_file_what_has_nothing_to_do_with_the_kernel_stays(old, new):
    assert spliced(FASTER, OTHERS) == FASTER
    assert spliced(FASTER.replace(old, new), OTHERS).replace(" ", "") == FASTER.replace(" ", "")


def test_of_a_whole_file_what_other_kernels_read_stays():
    found = with_kernel(OTHERS, "ops::scale", FASTER.replace("#define TILE 32", "#define TILE 64"))
    assert isinstance(found, Unusable)
    assert found.kind == "name_clash"


def test_a_whole_file_keeps_the_parameters_of_what_is_bound():
    answer = FILE.replace("i < n", "i < n && n").replace(
        "run(const torch::Tensor& x)", "run(const torch::Tensor& x, int y)"
    )
    found = with_kernel(FILE, "ops::scale", answer)
    assert isinstance(found, Unusable)
    assert found.kind == "signature"


def test_line_ends_are_the_files():
    text = spliced(KERNEL, FILE.replace("\n", "\r\n"))
    assert text == expected().replace("\n", "\r\n")


def test_bytes_beyond_ascii_stay_in_place():
    text = FILE.replace("// Scales.", "// Größe — ×2").replace("return y;", 'puts("é"); return y;')
    new = expected().replace("// Scales.", "// Größe — ×2")
    assert spliced(KERNEL, text) == new.replace("return y;", 'puts("é"); return y;')


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ("__device__ int other() { return 1; }\n", "no_entry", "`other`"),
        ("// nothing\n", "no_entry", "no function"),
        (FILE[START:END], "unchanged", "faster"),
        (FILE, "unchanged", "faster"),
        (KERNEL + KERNEL, "unsupported", "2 times"),
        (KERNEL.replace("int count", "long count"), "signature", "T*,T*,int"),
        (KERNEL.replace(", int count", ""), "signature", "launches"),
        (KERNEL.replace("typename T", "typename T, int N"), "signature", "template"),
        (KERNEL.replace("template <typename T>", "").replace("T*", "float*"), "signature", "scale"),
        ("#define TILE 64\n" + KERNEL, "name_clash", "TILE"),
    ],
)
def test_what_cannot_take_the_kernels_place_is_refused(answer, kind, says):
    found = with_kernel(FILE, "ops::scale", answer)
    assert isinstance(found, Unusable)
    assert found.kind == kind
    assert says in found.message.replace(", ", ",").replace("2,times", "2 times")


def test_a_kernel_that_is_defined_twice_is_left_alone():
    text = "#ifdef A\n__global__ void k() { }\n#else\n__global__ void k() { int i; }\n#endif\n"
    found = with_kernel(text, "k", "__global__ void k() { int j; }\n")
    assert isinstance(found, Unusable)
    assert found.kind == "unsupported"


@pytest.mark.parametrize(
    "string",
    [
        '"__global__ void k(int n) { n = 1; }"',
        '"""__global__ void k(int n) { n = 1; }\\n"""',
        'f"""__global__ void k(int n) {{ n = {one}; }}"""',
        '"""x"""',
    ],
)
def test_strings_that_cannot_be_written_by_hand_are_refused(string):
    found = with_kernel_in_string(f"S = {string}\n", "k", "__global__ void k(int n) { n = 2; }\n")
    assert isinstance(found, Unusable)
    assert found.kind == "unsupported"


def test_backslashes_go_into_raw_strings_only():
    answer = '__global__ void k(int n) { printf("%d\\n", n); }'
    raw = 'S = r"""\n__global__ void k(int n) { }\n"""\nx = 1\n'
    assert with_kernel_in_string(raw, "k", answer) == f'S = r"""\n{answer}\n"""\nx = 1\n'
    assert isinstance(with_kernel_in_string(raw.replace('r"', '"'), "k", answer), Unusable)


def test_spaces_and_comments_make_no_difference():
    assert squeezed("a /* x */ + b // y\n  ;") == squeezed("a+b;")
    assert squeezed("int a;") != squeezed("inta;")
