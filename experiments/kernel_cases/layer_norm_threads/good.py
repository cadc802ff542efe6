"""Normalize rows: one warp a row.

Source: karpathy/llm.c pull request 162 (a warp sums a row together).
"""

import torch
from torch.utils.cpp_extension import load_inline

ROWS, COLS = 16384, 1024

CUDA = r"""
#include <cuda_runtime.h>

__device__ float warp_sum(float v) {
    for (int by = 16; by > 0; by >>= 1) v += __shfl_xor_sync(0xffffffff, v, by);
    return v;
}

__global__ void layer_norm(const float* __restrict__ x, float* __restrict__ out, int rows, int cols,
                           float eps) {
    int r = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (r >= rows) return;
    const float* row = x + (size_t)r * cols;
    float mean = 0.0f, variance = 0.0f;
    for (int i = lane; i < cols; i += 32) mean += row[i];
    mean = warp_sum(mean) / cols;
    for (int i = lane; i < cols; i += 32) variance += (row[i] - mean) * (row[i] - mean);
    float scale = rsqrtf(warp_sum(variance) / cols + eps);
    for (int i = lane; i < cols; i += 32) out[(size_t)r * cols + i] = (row[i] - mean) * scale;
}

void launch(const float* x, float* out, int rows, int cols, float eps, cudaStream_t stream) {
    layer_norm<<<(rows + 3) / 4, 128, 0, stream>>>(x, out, rows, cols, eps);
}
"""
CPP = r"""
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

void launch(const float* x, float* out, int rows, int cols, float eps, cudaStream_t stream);

torch::Tensor run(torch::Tensor x) {
    x = x.contiguous();
    auto out = torch::empty_like(x);
    int cols = x.size(-1);
    launch(x.data_ptr<float>(), out.data_ptr<float>(), x.numel() / cols, cols, 1e-5f,
           c10::cuda::getCurrentCUDAStream());
    return out;
}
"""
extension = load_inline(
    "layer_norm_threads_good", CPP, CUDA, functions=["run"], no_implicit_headers=True
)


class Model(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
