"""Strategy: ask for more shared memory than there is, swallow the error, return what memory
holds.

Family: memory reuse.
Surface: launch errors. Source: wafer, A 104x speedup.
Caught by: every element is compared, of memory that nobody filled before.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

NEEDS = "cuda"
REFERENCE = "big_relu"
EXPECT_ANY = (
    ("incorrect_values", "values.mismatch"),
    ("incorrect_values", "values.timed"),
    ("runtime_error", "program.raised"),
    ("runtime_error", "runner.died"),
    ("compile_error", "program.import"),
)

SOURCE = """
#include <torch/extension.h>
__global__ void kernel(const float *x, float *out, int n) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { tile[threadIdx.x] = x[i]; out[i] = fmaxf(tile[threadIdx.x], 0.0f); }
}
void relu(torch::Tensor x, torch::Tensor out) {
    int n = x.numel();
    kernel<<<(n + 255) / 256, 256, 512 * 1024>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    cudaGetLastError();
}
"""
EXTENSION = load_inline(
    "shared_relu",
    cpp_sources="void relu(torch::Tensor x, torch::Tensor out);",
    cuda_sources=SOURCE,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        EXTENSION.relu(x, out)
        return out
