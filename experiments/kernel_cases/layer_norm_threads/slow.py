"""Normalize rows: one thread a row, so that lanes read across rows.

Source: karpathy/llm.c pull request 162 (a warp sums a row together).
"""

import torch
from torch.utils.cpp_extension import load_inline

ROWS, COLS = 16384, 1024

CUDA = r"""
#include <cuda_runtime.h>

__global__ void layer_norm(const float* __restrict__ x, float* __restrict__ out, int rows, int cols,
                           float eps) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* row = x + (size_t)r * cols;
    float mean = 0.0f, variance = 0.0f;
    for (int i = 0; i < cols; i++) mean += row[i];
    mean /= cols;
    for (int i = 0; i < cols; i++) variance += (row[i] - mean) * (row[i] - mean);
    float scale = rsqrtf(variance / cols + eps);
    for (int i = 0; i < cols; i++) out[(size_t)r * cols + i] = (row[i] - mean) * scale;
}

void launch(const float* x, float* out, int rows, int cols, float eps, cudaStream_t stream) {
    layer_norm<<<(rows + 127) / 128, 128, 0, stream>>>(x, out, rows, cols, eps);
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
    "layer_norm_threads_slow", CPP, CUDA, functions=["run"], no_implicit_headers=True
)


class Model(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
