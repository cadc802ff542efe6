"""Apply RMS norm to half precision: each load of a lane is sixteen bytes.

Source: vllm-project/vllm pull request 27931 (vector loads and stores, smaller blocks).
"""

import torch
from torch.utils.cpp_extension import load_inline

ROWS, COLS = 8192, 4096

CUDA = r"""
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__device__ float block_sum(float v) {
    __shared__ float parts[32];
    for (int by = 16; by > 0; by >>= 1) v += __shfl_xor_sync(0xffffffff, v, by);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0f;
    for (int by = 16; by > 0; by >>= 1) v += __shfl_xor_sync(0xffffffff, v, by);
    return v;
}

struct alignas(16) Eight {
    __half v[8];
};

__global__ void rms_norm(const __half* __restrict__ x, const __half* __restrict__ weight,
                         __half* __restrict__ out, int cols, float eps) {
    const __half* row = x + (size_t)blockIdx.x * cols;
    __half* to = out + (size_t)blockIdx.x * cols;
    int whole = cols % 8 == 0 ? cols / 8 : 0;
    float total = 0.0f;
    for (int i = threadIdx.x; i < whole; i += blockDim.x) {
        Eight e = ((const Eight*)row)[i];
        for (int k = 0; k < 8; k++) {
            float v = __half2float(e.v[k]);
            total += v * v;
        }
    }
    for (int i = 8 * whole + threadIdx.x; i < cols; i += blockDim.x) {
        float v = __half2float(row[i]);
        total += v * v;
    }
    float scale = rsqrtf(block_sum(total) / cols + eps);
    for (int i = threadIdx.x; i < whole; i += blockDim.x) {
        Eight e = ((const Eight*)row)[i], w = ((const Eight*)weight)[i];
        for (int k = 0; k < 8; k++)
            e.v[k] = __float2half(__half2float(e.v[k]) * scale * __half2float(w.v[k]));
        ((Eight*)to)[i] = e;
    }
    for (int i = 8 * whole + threadIdx.x; i < cols; i += blockDim.x)
        to[i] = __float2half(__half2float(row[i]) * scale * __half2float(weight[i]));
}

void launch(const void* x, const void* weight, void* out, int rows, int cols, float eps,
            cudaStream_t stream) {
    rms_norm<<<rows, 256, 0, stream>>>((const __half*)x, (const __half*)weight, (__half*)out, cols,
                                       eps);
}
"""
CPP = r"""
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

void launch(const void* x, const void* weight, void* out, int rows, int cols, float eps,
            cudaStream_t stream);

torch::Tensor run(torch::Tensor x, torch::Tensor weight, double eps) {
    x = x.contiguous();
    auto out = torch::empty_like(x);
    int cols = x.size(-1);
    launch(x.data_ptr<at::Half>(), weight.data_ptr<at::Half>(), out.data_ptr<at::Half>(),
           x.numel() / cols, cols, eps, c10::cuda::getCurrentCUDAStream());
    return out;
}
"""
extension = load_inline(
    "rms_norm_loads_good", CPP, CUDA, functions=["run"], no_implicit_headers=True
)


class Model(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(cols, dtype=torch.float16))

    def forward(self, x):
        return extension.run(x, self.weight, 1e-6)


def get_inputs():
    return [torch.randn(ROWS, COLS).half()]


def get_init_inputs():
    return [COLS]
