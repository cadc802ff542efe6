"""Write work on sequences: attention by hand, and positions."""

from __future__ import annotations

from model_training.tasks.draft import Draft

# --- attention -----------------------------------------------------------------------------------


def projected(d: Draft) -> tuple[str, str, str]:
    """Add statements for queries, keys and values."""
    width = d.parameter(d.dims[2])
    q, k, v = (
        d.module(name, f"nn.Linear({width}, {width}, bias=False)")
        for name in ("query", "key", "value")
    )
    return f"q = {q}(x)", f"k = {k}(x)", f"v = {v}(x)"


def heads_of(d: Draft) -> None:
    heads = d.parameter(d.size("heads", d.rng.choice((2, 4))))
    d.init(f"self.heads = {heads}")


SPLIT = "{0} = {0}.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)"


def single_head(d: Draft) -> None:
    d.forward(
        *projected(d),
        "scores = torch.matmul(q, k.transpose(1, 2)) / x.shape[2] ** 0.5",
        "x = torch.matmul(torch.softmax(scores, dim=-1), v)",
    )


def causal(d: Draft) -> None:
    d.forward(
        *projected(d),
        "scores = torch.bmm(q, k.transpose(1, 2)) / x.shape[2] ** 0.5",
        "mask = torch.triu(torch.ones(x.shape[1], x.shape[1], device=x.device), diagonal=1)",
        "scores = scores.masked_fill(mask.bool(), float('-inf'))",
        "x = torch.bmm(torch.softmax(scores, dim=-1), v)",
    )


def many_heads(d: Draft) -> None:
    heads_of(d)
    out = d.module("out", f"nn.Linear({d.parameter(d.dims[2])}, {d.dims[2]})")
    d.forward(
        *projected(d),
        *(SPLIT.format(name) for name in "qkv"),
        "scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5)",
        "p = torch.exp(scores - scores.max(dim=-1, keepdim=True)[0])",
        "p = p / p.sum(dim=-1, keepdim=True)",
        "x = (p @ v).transpose(1, 2).contiguous().reshape(x.shape)",
        f"x = {out}(x)",
    )


def heads_in_a_loop(d: Draft) -> None:
    heads_of(d)
    d.forward(
        *projected(d),
        "outputs = []",
        "for a, b, c in zip(q.chunk(self.heads, -1), k.chunk(self.heads, -1), "
        "v.chunk(self.heads, -1)):",
        "    scores = a @ b.transpose(1, 2) / a.shape[-1] ** 0.5",
        "    outputs.append(torch.softmax(scores, dim=-1) @ c)",
        "x = torch.cat(outputs, dim=-1)",
    )


def linear_attention_in_the_wrong_order(d: Draft) -> None:
    d.forward(
        *projected(d),
        "q = F.elu(q) + 1",
        "k = F.elu(k) + 1",
        "scores = q @ k.transpose(1, 2)",
        "x = (scores @ v) / (scores.sum(dim=-1, keepdim=True) + 1e-6)",
    )


def pooled_by_a_query(d: Draft) -> None:
    query = d.module("query", f"nn.Parameter(torch.randn({d.parameter(d.dims[2])}))")
    d.forward(
        f"scores = (x * {query}.reshape(1, 1, -1)).sum(dim=-1) / x.shape[2] ** 0.5",
        "shares = torch.softmax(scores, dim=1)",
        "x = (x * shares.unsqueeze(-1)).sum(dim=1)",
    )
    d.dims = (d.dims[0], d.dims[2])


ATTENTION = {
    "attention by hand": single_head,
    "causal attention by hand": causal,
    "attention with several heads": many_heads,
    "attention head by head": heads_in_a_loop,
    "linear attention through the whole matrix": linear_attention_in_the_wrong_order,
    "pooling by a query": pooled_by_a_query,
}

# --- positions -----------------------------------------------------------------------------------


def sines_made_in_each_call(d: Draft) -> None:
    d.needs("math")
    d.forward(
        "length, width = x.shape[1], x.shape[2]",
        "place = torch.arange(length, device=x.device, dtype=x.dtype).unsqueeze(1)",
        "rate = torch.exp(torch.arange(0, width, 2, device=x.device, dtype=x.dtype) "
        "* (-math.log(10000.0) / width))",
        "table = torch.zeros(length, width, device=x.device, dtype=x.dtype)",
        "table[:, 0::2] = torch.sin(place * rate)",
        "table[:, 1::2] = torch.cos(place * rate)",
        "x = x + table.unsqueeze(0).expand(x.shape[0], -1, -1)",
    )


def rotated_pairs(d: Draft) -> None:
    d.forward(
        "place = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)",
        "rate = 1.0 / (10000.0 ** (torch.arange(0, x.shape[2], 2, device=x.device, "
        "dtype=x.dtype) / x.shape[2]))",
        "angle = torch.outer(place, rate)",
        "even, odd = x[..., 0::2], x[..., 1::2]",
        "first = even * torch.cos(angle) - odd * torch.sin(angle)",
        "second = even * torch.sin(angle) + odd * torch.cos(angle)",
        "x = torch.stack([first, second], dim=-1).flatten(-2)",
    )


def learned_table(d: Draft) -> None:
    length, width = d.parameter(d.dims[1]), d.parameter(d.dims[2])
    table = d.module("table", f"nn.Embedding({length}, {width})")
    d.forward(
        "place = torch.arange(x.shape[1], device=x.device).repeat(x.shape[0], 1)",
        f"x = x + {table}(place)",
    )


def neighbors_averaged(d: Draft) -> None:
    d.forward(
        "before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)",
        "after = torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], dim=1)",
        "x = (before + x + after) / 3.0",
    )


def transposed_for_a_norm(d: Draft) -> None:
    norm = d.module("norm", f"nn.BatchNorm1d({d.parameter(d.dims[2])})")
    d.forward(
        "x = x.transpose(1, 2).contiguous()", f"x = {norm}(x)", "x = x.transpose(1, 2).contiguous()"
    )


POSITIONS = {
    "sines of positions made in each call": sines_made_in_each_call,
    "rotated pairs": rotated_pairs,
    "a learned table of positions": learned_table,
    "averages of neighbors": neighbors_averaged,
    "a norm between two transpositions": transposed_for_a_norm,
}
