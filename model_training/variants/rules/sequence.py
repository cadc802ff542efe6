"""Rewrite the steps of `families/sequence.py`: attention and positions."""

from __future__ import annotations

from model_training.variants.rule import Form, Rule

SPLIT = "".join(
    f"{one} = {one}.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)\n"
    for one in "qkv"
)
ALL_SCORES = "The scores of all pairs are written out, scaled, normalized and read again."
ONE_HEAD = "q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)"
ATTENTION = (
    Rule(
        technique="operation fusion",
        why="Queries, keys and values are three products of the same input.",
        before="q = A(x)\nk = B(x)\nv = C(x)",
        forms=(
            Form(
                text="weight = torch.cat([A.weight, B.weight, C.weight])\n"
                "q, k, v = F.linear(x, weight).chunk(3, dim=-1)",
                design="One product for all three.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why=ALL_SCORES,
        before="scores = torch.matmul(q, k.transpose(1, 2)) / x.shape[2] ** 0.5\n"
        "x = torch.matmul(torch.softmax(scores, dim=-1), v)",
        forms=(
            Form(
                text=f"x = F.scaled_dot_product_attention({ONE_HEAD}).squeeze(1)",
                design="Fused attention, with one head.",
            ),
            Form(
                text="scores = torch.bmm(q * x.shape[2] ** -0.5, k.transpose(1, 2))\n"
                "x = torch.bmm(torch.softmax(scores, dim=-1), v)",
                design="Scale the queries, which are smaller than the scores.",
                technique="algebra",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why=ALL_SCORES + " The mask is built in every call.",
        before="scores = torch.bmm(q, k.transpose(1, 2)) / x.shape[2] ** 0.5\n"
        "mask = torch.triu(torch.ones(x.shape[1], x.shape[1], device=x.device), diagonal=1)\n"
        "scores = scores.masked_fill(mask.bool(), float('-inf'))\n"
        "x = torch.bmm(torch.softmax(scores, dim=-1), v)",
        forms=(
            Form(
                text=f"x = F.scaled_dot_product_attention({ONE_HEAD}, is_causal=True).squeeze(1)",
                design="Fused causal attention, with one head and no mask.",
            ),
            Form(
                text="hidden = torch.full((x.shape[1], x.shape[1]), float('-inf'), "
                "device=x.device, dtype=x.dtype)\n"
                "scores = torch.baddbmm(\n"
                "    hidden.triu_(1), q, k.transpose(1, 2), alpha=x.shape[2] ** -0.5\n"
                ")\n"
                "x = torch.bmm(torch.softmax(scores, dim=-1), v)",
                design="The product of queries and keys scales and adds the mask itself.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why=ALL_SCORES,
        before=SPLIT + "scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5)\n"
        "p = torch.exp(scores - scores.max(dim=-1, keepdim=True)[0])\n"
        "p = p / p.sum(dim=-1, keepdim=True)\n"
        "x = (p @ v).transpose(1, 2).contiguous().reshape(x.shape)",
        forms=(
            Form(
                text=SPLIT + "x = F.scaled_dot_product_attention(q, k, v)"
                ".transpose(1, 2).reshape(x.shape)",
                design="Fused attention of all heads.",
            ),
            Form(
                text=SPLIT + "scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)\n"
                "x = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(x.shape)",
                design="Scale the queries, and use the library's softmax.",
            ),
        ),
    ),
    Rule(
        technique="loops",
        why="Each head is attended by itself, in a loop, through its own scores.",
        before="outputs = []\n"
        "for a, b, c in zip(q.chunk(self.heads, -1), k.chunk(self.heads, -1), "
        "v.chunk(self.heads, -1)):\n"
        "    scores = a @ b.transpose(1, 2) / a.shape[-1] ** 0.5\n"
        "    outputs.append(torch.softmax(scores, dim=-1) @ c)\n"
        "x = torch.cat(outputs, dim=-1)",
        forms=(
            Form(
                text="q, k, v = (\n"
                "    one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (q, k, v)\n"
                ")\n"
                "x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)",
                design="Fused attention of all heads at once.",
            ),
            Form(
                text=SPLIT + "scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5\n"
                "x = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)",
                design="All heads in one batched product.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="Attention without softmax is linear, and still goes through all pairs.",
        before="scores = q @ k.transpose(1, 2)\n"
        "x = (scores @ v) / (scores.sum(dim=-1, keepdim=True) + 1e-6)",
        forms=(
            Form(
                text="total = q @ k.sum(dim=1).unsqueeze(-1)\n"
                "x = (q @ (k.transpose(1, 2) @ v)) / (total + 1e-6)",
                design="Keys and values first: the length counts once, not squared.",
            ),
            Form(
                text="context = torch.bmm(k.transpose(1, 2), v)\n"
                "total = torch.bmm(q, k.sum(dim=1, keepdim=True).transpose(1, 2))\n"
                "x = torch.bmm(q, context).div_(total + 1e-6)",
                design="Batched products in the other order, divided in place.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="Products with one vector are written out in full before they are summed.",
        before="scores = (x * Q.reshape(1, 1, -1)).sum(dim=-1) / x.shape[2] ** 0.5\n"
        "shares = torch.softmax(scores, dim=1)\n"
        "x = (x * shares.unsqueeze(-1)).sum(dim=1)",
        forms=(
            Form(
                text="shares = torch.softmax(x @ (Q / x.shape[2] ** 0.5), dim=1)\n"
                "x = torch.bmm(shares.unsqueeze(1), x).squeeze(1)",
                design="Scores and pooling as products, with a scaled query.",
            ),
            Form(
                text="shares = torch.softmax(torch.matmul(x, Q) / x.shape[2] ** 0.5, dim=1)\n"
                "x = torch.einsum('bl,blw->bw', shares, x)",
                design="Scores and pooling as sums that write nothing in between.",
            ),
        ),
    ),
)

PLACE = "place = torch.arange(length, device=x.device, dtype=x.dtype).unsqueeze(1)\n"
RATE = (
    "rate = torch.exp(torch.arange(0, width, 2, device=x.device, dtype=x.dtype) "
    "* (-math.log(10000.0) / width))\n"
)
ANGLE = (
    "place = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)\n"
    "rate = 1.0 / (10000.0 ** (torch.arange(0, x.shape[2], 2, device=x.device, "
    "dtype=x.dtype) / x.shape[2]))\n"
    "angle = torch.outer(place, rate)\n"
)
POSITIONS = (
    Rule(
        technique="operation fusion",
        why="A table of zeros is filled in two strided writes, in every call.",
        before="length, width = x.shape[1], x.shape[2]\n"
        + PLACE
        + RATE
        + "table = torch.zeros(length, width, device=x.device, dtype=x.dtype)\n"
        "table[:, 0::2] = torch.sin(place * rate)\n"
        "table[:, 1::2] = torch.cos(place * rate)\n"
        "x = x + table.unsqueeze(0).expand(x.shape[0], -1, -1)",
        forms=(
            Form(
                text="if self.positions is None or self.positions.shape != x.shape[1:]:\n"
                "    length, width = x.shape[1], x.shape[2]\n"
                + "".join(f"    {line}\n" for line in (PLACE + RATE).splitlines())
                + "    angle = place * rate\n"
                "    self.positions = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)\n"
                "x = x + self.positions",
                design="The table depends on the shape alone: it is made once, and added.",
                technique="hoisting",
                init="self.positions = None",
            ),
            Form(
                text="length, width = x.shape[1], x.shape[2]\n"
                + PLACE
                + RATE
                + "angle = place * rate\n"
                "x = x + torch.stack([torch.sin(angle), torch.cos(angle)], dim=-1).flatten(1)",
                design="Sines and cosines of one angle, interleaved without a table of zeros.",
            ),
        ),
    ),
    Rule(
        technique="hoisting",
        why="Sine and cosine of the same angles are computed twice.",
        before=ANGLE + "even, odd = x[..., 0::2], x[..., 1::2]\n"
        "first = even * torch.cos(angle) - odd * torch.sin(angle)\n"
        "second = even * torch.sin(angle) + odd * torch.cos(angle)\n"
        "x = torch.stack([first, second], dim=-1).flatten(-2)",
        forms=(
            Form(
                text=ANGLE + "turn = torch.polar(torch.ones_like(angle), angle)\n"
                "pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())\n"
                "x = torch.view_as_real(pairs * turn).flatten(-2)",
                design="A rotation is a product of complex numbers.",
                technique="algebra",
            ),
            Form(
                text=ANGLE + "cosine, sine = torch.cos(angle), torch.sin(angle)\n"
                "even, odd = x[..., 0::2], x[..., 1::2]\n"
                "first = even * cosine - odd * sine\n"
                "second = even * sine + odd * cosine\n"
                "x = torch.stack([first, second], dim=-1).flatten(-2)",
                design="Each is computed once.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="The same rows of the table are looked up for every member of the batch.",
        before="place = torch.arange(x.shape[1], device=x.device).repeat(x.shape[0], 1)\n"
        "x = x + T(place)",
        forms=(
            Form(text="x = x + T.weight[: x.shape[1]]", design="Add the table by broadcasting."),
            Form(
                text="x = x + T(torch.arange(x.shape[1], device=x.device))",
                design="Look up each row once.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="Two shifted copies are made, each joined with zeros.",
        before="before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)\n"
        "after = torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], dim=1)\n"
        "x = (before + x + after) / 3.0",
        forms=(
            Form(
                text="padded = F.pad(x, (0, 0, 1, 1))\n"
                "x = (padded[:, :-2] + x + padded[:, 2:]) / 3.0",
                design="Pad once, and add views.",
            ),
            Form(
                text="x = F.avg_pool1d(x.transpose(1, 2), 3, stride=1, padding=1).transpose(1, 2)",
                design="An average of windows along time, padded with zeros.",
            ),
            Form(
                text="total = x.clone()\n"
                "total[:, 1:] += x[:, :-1]\n"
                "total[:, :-1] += x[:, 1:]\n"
                "x = total.div_(3.0)",
                design="Add both neighbors to one copy.",
                technique="memory reuse",
            ),
        ),
    ),
    Rule(
        technique="memory layout",
        why="The tensor is transposed by a copy for the norm, and copied back.",
        before="x = x.transpose(1, 2).contiguous()\nx = N(x)\nx = x.transpose(1, 2).contiguous()",
        forms=(
            Form(
                text="scale = N.weight * torch.rsqrt(N.running_var + N.eps)\n"
                "shift = N.bias - N.running_mean * scale\n"
                "x = torch.addcmul(shift, x, scale)",
                design="In inference the norm is a scale and a shift of the last dimension.",
                technique="algebra",
            ),
            Form(
                text="x = N(x.flatten(0, 1)).unflatten(0, x.shape[:2])",
                design="The norm of rows, which needs no transposition.",
            ),
        ),
    ),
)

RULES = (*ATTENTION, *POSITIONS)
