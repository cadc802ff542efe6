import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
__global__ void normalize_kernel(const float *x, const float *weight, float *out, int n) {
    const float *row = x + (long)blockIdx.x * n;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i] * row[i];
    __shared__ float parts[256];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    float scale = 1.0f / sqrtf(parts[0] / n + 1e-6f);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        out[(long)blockIdx.x * n + i] = row[i] * scale * weight[i];
}
torch::Tensor normalize(torch::Tensor x, torch::Tensor weight) {
    auto out = torch::empty_like(x);
    int n = x.size(-1);
    int rows = x.numel() / n;
    normalize_kernel<<<rows, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""
EXTENSION = load_inline(
    "throughput_rms_norm",
    cpp_sources="torch::Tensor normalize(torch::Tensor x, torch::Tensor weight);",
    cuda_sources=SOURCE,
    functions=["normalize"],
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return EXTENSION.normalize(x.contiguous(), self.weight)
