"""Scaled dot product attention by the kernel that computes in single precision.

Family: precision.
"""

from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

NEEDS = "cuda"
REFERENCE = "attention"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
