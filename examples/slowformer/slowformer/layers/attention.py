"""Attention layers."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalSelfAttention(nn.Module):
    """Multi-head self-attention in which a token sees itself and those before it."""

    def __init__(self, dim, num_heads, dropout=0.0):
        super().__init__()
        assert dim % num_heads == 0
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.attn_drop = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        qkv = self.qkv(x).reshape(B, T, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]

        # scaled scores, no peeking at later tokens
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        mask = torch.triu(torch.ones(T, T, device=x.device), diagonal=1).bool()
        scores = scores.masked_fill(mask, float("-inf"))

        weights = F.softmax(scores, dim=-1)
        weights = self.attn_drop(weights)
        out = torch.matmul(weights, v)
        out = out.transpose(1, 2).reshape(B, T, C)
        return self.proj(out)


class CrossAttention(nn.Module):
    """Queries of one sequence on keys and values of another. Already as fast as it gets."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.to_q = nn.Linear(dim, dim)
        self.to_kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, context):
        B, T, C = x.shape
        q = self.to_q(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        k, v = self.to_kv(context).chunk(2, dim=-1)
        k = k.view(B, -1, self.num_heads, C // self.num_heads).transpose(1, 2)
        v = v.view(B, -1, self.num_heads, C // self.num_heads).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(B, T, C))


class HeadwisePooling(nn.Module):
    """Pools a sequence with one learned query a head."""

    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Parameter(torch.randn(num_heads, head_dim) * 0.02)

    def forward(self, x):
        # x: (heads, batch, time, head_dim)
        pooled = []
        for h in range(self.num_heads):
            logits = (x[h] * self.query[h]).sum(dim=-1)
            weights = torch.softmax(logits, dim=-1)
            pooled.append((weights.unsqueeze(-1) * x[h]).sum(dim=1))
        return torch.stack(pooled, dim=1)
