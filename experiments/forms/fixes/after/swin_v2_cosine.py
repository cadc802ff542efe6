"""microsoft/Swin-Transformer models/swin_transformer_v2.py: WindowAttention, cosine attention."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, dim, num_tokens, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones((num_heads, 1, 1))))
        self.bias = nn.Parameter(torch.randn(num_heads, num_tokens, num_tokens))
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(dim, dim)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x, mask=None):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        q = F.normalize(q, dim=-1) * torch.clamp(self.logit_scale, max=4.6052).exp()
        k = F.normalize(k, dim=-1)
        bias = 16 * torch.sigmoid(self.bias).unsqueeze(0)
        if mask is not None:
            bias = (bias + mask.unsqueeze(1)).repeat(B_ // mask.shape[0], 1, 1, 1)
        p = self.attn_drop.p if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p, scale=1.0)
        x = x.transpose(1, 2).reshape(B_, N, C)
        return self.proj(x)


def get_inputs():
    return [torch.randn(8, 144, 96)]


def get_init_inputs():
    return [96, 144, 6]
