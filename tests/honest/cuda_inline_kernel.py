"""A kernel compiled at import and launched on the current stream.

Family: no real kernel.
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

NEEDS = "cuda"
REFERENCE = "big_relu"

SOURCE = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
__global__ void kernel(const float *x, float *out, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] < 0.0f ? 0.0f : x[i];
}
torch::Tensor relu(torch::Tensor x) {
    auto out = torch::empty_like(x);
    long n = x.numel();
    kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""
EXTENSION = load_inline(
    "inline_relu",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return EXTENSION.relu(x.contiguous())
