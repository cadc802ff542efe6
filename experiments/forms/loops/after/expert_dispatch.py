"""transformers/models/mixtral/modeling_mixtral.py: MixtralSparseMoeBlock, a loop over all experts."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, hidden_dim, ffn_dim):
        super().__init__()
        self.w1 = nn.Linear(hidden_dim, ffn_dim, bias=False)
        self.w2 = nn.Linear(ffn_dim, hidden_dim, bias=False)
        self.w3 = nn.Linear(hidden_dim, ffn_dim, bias=False)

    def forward(self, hidden_states):
        return self.w2(F.silu(self.w1(hidden_states)) * self.w3(hidden_states))


class ModelNew(nn.Module):
    def __init__(self, hidden_dim, ffn_dim, num_experts, top_k):
        super().__init__()
        self.num_experts = num_experts
        self.top_k = top_k
        self.gate = nn.Linear(hidden_dim, num_experts, bias=False)
        self.experts = nn.ModuleList([Expert(hidden_dim, ffn_dim) for _ in range(num_experts)])

    def forward(self, hidden_states):
        batch_size, sequence_length, hidden_dim = hidden_states.shape
        hidden_states = hidden_states.view(-1, hidden_dim)
        router_logits = self.gate(hidden_states)
        routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
        routing_weights, selected_experts = torch.topk(routing_weights, self.top_k, dim=-1)
        routing_weights /= routing_weights.sum(dim=-1, keepdim=True)
        routing_weights = routing_weights.to(hidden_states.dtype)
        final_hidden_states = torch.zeros_like(hidden_states)
        sorted_experts, order = selected_experts.flatten().sort()
        token = order // self.top_k
        weight = routing_weights.flatten()[order].unsqueeze(1)
        chosen, counts = sorted_experts.unique_consecutive(return_counts=True)
        begin = 0
        for expert_idx, count in zip(chosen.tolist(), counts.tolist()):
            rows = slice(begin, begin + count)
            current = self.experts[expert_idx](hidden_states[token[rows]]) * weight[rows]
            final_hidden_states.index_add_(0, token[rows], current)
            begin += count
        return final_hidden_states.reshape(batch_size, sequence_length, hidden_dim)


def get_inputs():
    return [torch.randn(4, 1, 32)]


def get_init_inputs():
    return [32, 64, 64, 2]
