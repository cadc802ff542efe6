"""openai/whisper whisper/model.py: MultiHeadAttention, a scale on each side, the key permuted at once."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n_state, n_head):
        super().__init__()
        self.n_head = n_head
        self.query = nn.Linear(n_state, n_state)
        self.key = nn.Linear(n_state, n_state, bias=False)
        self.value = nn.Linear(n_state, n_state)
        self.out = nn.Linear(n_state, n_state)

    def forward(self, x, mask=None):
        q = self.query(x)
        k = self.key(x)
        v = self.value(x)
        wv = self.qkv_attention(q, k, v, mask)
        return self.out(wv)

    def qkv_attention(self, q, k, v, mask=None):
        n_batch, n_ctx, n_state = q.shape
        q = q.view(*q.shape[:2], self.n_head, -1).permute(0, 2, 1, 3)
        k = k.view(*k.shape[:2], self.n_head, -1).permute(0, 2, 1, 3)
        v = v.view(*v.shape[:2], self.n_head, -1).permute(0, 2, 1, 3)
        if mask is not None:
            mask = mask[:n_ctx, :n_ctx]
        w = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return w.permute(0, 2, 1, 3).flatten(start_dim=2)


def get_inputs():
    return [torch.randn(2, 256, 128), torch.full((448, 448), -1e9).triu(1)]


def get_init_inputs():
    return [128, 8]
