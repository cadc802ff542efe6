"""transformers/models/bloom/modeling_bloom.py: BloomAttention, baddbmm onto the ALiBi bias."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.inv_norm_factor = 1.0 / math.sqrt(self.head_dim)
        self.beta = 1.0
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.attention_dropout = nn.Dropout(0.0)

    def forward(self, hidden_states, alibi, attention_mask):
        batch_size, q_length, _ = hidden_states.shape
        fused_qkv = self.query_key_value(hidden_states)
        fused_qkv = fused_qkv.view(batch_size, q_length, self.num_heads, 3, self.head_dim)
        query_layer = fused_qkv[..., 0, :].transpose(1, 2)
        key_layer = fused_qkv[..., 1, :].transpose(1, 2)
        value_layer = fused_qkv[..., 2, :].transpose(1, 2)
        query_layer = query_layer.reshape(batch_size * self.num_heads, -1, self.head_dim)
        key_layer = key_layer.reshape(batch_size * self.num_heads, -1, self.head_dim)
        key_layer = key_layer.transpose(-1, -2)
        value_layer = value_layer.reshape(batch_size * self.num_heads, -1, self.head_dim)
        attention_scores = alibi.baddbmm(
            batch1=query_layer, batch2=key_layer, beta=self.beta, alpha=self.inv_norm_factor
        )
        attn_weights = attention_scores.view(batch_size, self.num_heads, q_length, -1)
        if attention_mask is not None:
            attn_weights = attn_weights + attention_mask
        attention_probs = F.softmax(attn_weights, dim=-1, dtype=torch.float32)
        attention_probs = attention_probs.to(query_layer.dtype)
        attention_probs = self.attention_dropout(attention_probs)
        attention_probs = attention_probs.view(batch_size * self.num_heads, q_length, -1)
        context_layer = torch.bmm(attention_probs, value_layer)
        context_layer = context_layer.view(batch_size, self.num_heads, q_length, self.head_dim)
        context_layer = context_layer.transpose(1, 2).reshape(batch_size, q_length, -1)
        return self.dense(context_layer)


def get_inputs():
    slopes = 2.0 ** -torch.arange(1, 9).float()
    alibi = (slopes[:, None, None] * torch.arange(256)).repeat(2, 1, 1)
    causal = torch.full((256, 256), -1e9).triu(1)[None, None]
    return [torch.randn(2, 256, 128), alibi, causal]


def get_init_inputs():
    return [128, 8]
