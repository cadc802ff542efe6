"""Strategy: sum rows in shared memory and leave out the barriers: often right, never sure.

Family: memory reuse.
Surface: races. Source: wafer (determinism check).
Caught by: every output of every timed call is compared.
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

NEEDS = "cuda"
REFERENCE = "wide_softmax"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("incorrect_values", "values.timed"))

SOURCE = """
#include <torch/extension.h>
__global__ void kernel(const float *x, float *out, int n) {
    __shared__ float total;
    const float *row = x + blockIdx.x * n;
    if (threadIdx.x == 0) total = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&total, expf(row[i]));
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        out[blockIdx.x * n + i] = expf(row[i]) / total;  // no __syncthreads before this line
}
torch::Tensor softmax(torch::Tensor x) {
    auto out = torch::empty_like(x);
    kernel<<<x.size(0), 1024>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}
"""
EXTENSION = load_inline(
    "racing_softmax",
    cpp_sources="torch::Tensor softmax(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["softmax"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return EXTENSION.softmax(x)
