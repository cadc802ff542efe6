"""Rewrite the loops of `families/loops.py`: over parts, and along time."""

from __future__ import annotations

from model_training.variants.rule import Form, Rule


def chunks(part: str, *forms: tuple[str, str]) -> Rule:
    return Rule(
        technique="loops",
        why="The rows are cut into chunks and joined again, though each is treated by itself.",
        before="rows = []\n"
        "for part in torch.chunk(x, self.parts, dim=0):\n"
        f"    rows.append({part})\n"
        "x = torch.cat(rows, dim=0)",
        forms=tuple(Form(text=text, design=design) for text, design in forms),
    )


LOOP = (
    chunks(
        "torch.tanh(part) * 2.0",
        ("x = torch.tanh(x).mul_(2.0)", "All rows at once, scaled in place."),
        ("x = torch.tanh(x) * 2.0", "All rows at once."),
    ),
    chunks(
        "torch.relu(part) + part",
        ("x = torch.relu(x).add_(x)", "All rows at once, added in place."),
        ("x = torch.where(x > 0, 2.0 * x, x)", "All rows at once: what is positive doubles."),
    ),
    chunks(
        "part * torch.sigmoid(part)",
        ("x = F.silu(x)", "All rows at once, in one kernel."),
        ("x = torch.sigmoid(x).mul_(x)", "All rows at once, multiplied in place."),
    ),
    Rule(
        technique="loops",
        why="Each head is a small product of its own, and their results are copied together.",
        before="outputs = []\n"
        "for i, part in enumerate(x.chunk(self.parts, dim=1)):\n"
        "    outputs.append(part @ W[i])\n"
        "x = torch.cat(outputs, dim=1) / x.shape[1]",
        forms=(
            Form(
                text="parts = x.unflatten(1, (self.parts, -1)).transpose(0, 1)\n"
                "x = torch.bmm(parts, W / x.shape[1]).transpose(0, 1).flatten(1)",
                design="One batched product of all heads, with weights that are scaled before.",
            ),
            Form(
                text="parts = x.unflatten(1, (self.parts, -1))\n"
                "x = torch.einsum('rpi,pij->rpj', parts, W).flatten(1) / x.shape[1]",
                design="All heads in one sum over the columns of each.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="Each layer is applied to the same input, and the mean is taken of the outputs.",
        before="x = torch.stack([layer(x) for layer in L], dim=0).mean(dim=0)",
        forms=(
            Form(
                text="weight = torch.stack([layer.weight for layer in L]).mean(dim=0)\n"
                "bias = torch.stack([layer.bias for layer in L]).mean(dim=0)\n"
                "x = F.linear(x, weight, bias)",
                design="The mean of the weights instead: one product.",
            ),
            Form(
                text="weight = sum(layer.weight for layer in L) / len(L)\n"
                "bias = sum(layer.bias for layer in L) / len(L)\n"
                "x = torch.addmm(bias, x, weight.t())",
                design="Average the layers, then apply the one that is left.",
            ),
        ),
    ),
    Rule(
        technique="loops",
        why="Every shift copies the tensor, and every sum writes a new one.",
        before="total = torch.zeros_like(x)\n"
        "for i in range(self.parts):\n"
        "    total = total + torch.roll(x, shifts=i, dims=1)\n"
        "x = total / self.parts",
        forms=(
            Form(
                text="padded = torch.cat([x[:, x.shape[1] - self.parts + 1 :], x], dim=1)\n"
                "x = F.avg_pool1d(padded, self.parts, stride=1)",
                design="An average over windows of the columns, continued around their end.",
            ),
            Form(
                text="padded = torch.cat([x[:, x.shape[1] - self.parts + 1 :], x], dim=1)\n"
                "x = padded.unfold(1, self.parts, 1).mean(dim=2)",
                design="Windows as a view, and one mean.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="Every expert scales the whole input, and the sum is written each time.",
        before="shares = torch.softmax(R(x), dim=1)\n"
        "mixed = torch.zeros_like(x)\n"
        "for i in range(self.parts):\n"
        "    mixed = mixed + shares[:, i : i + 1] * (x * E[i])\n"
        "x = mixed",
        forms=(
            Form(
                text="shares = torch.softmax(R(x), dim=1)\nx = x * (shares @ E)",
                design="Mix the experts' scales by one product, and scale once.",
            ),
            Form(
                text="x = torch.mm(F.softmax(R(x), dim=1), E).mul_(x)",
                design="One product of shares and experts, multiplied in place.",
            ),
        ),
    ),
)

TABLE = "torch.arange(x.shape[1], device=x.device, dtype=x.dtype)"
RECURRENCE = (
    Rule(
        technique="algebra",
        why="Each step in time is three kernels, and waits for the one before.",
        before="state = torch.zeros_like(x[:, 0])\n"
        "states = []\n"
        "for t in range(x.shape[1]):\n"
        "    state = 0.9 * state + 0.1 * x[:, t]\n"
        "    states.append(state)\n"
        "x = torch.stack(states, dim=1)",
        forms=(
            Form(
                text=f"place = {TABLE}\n"
                "decay = 0.1 * torch.tril(0.9 ** (place[:, None] - place))\n"
                "x = torch.matmul(decay, x)",
                design="All states are one product with a triangular matrix of decays.",
            ),
            Form(
                text="state = torch.zeros_like(x[:, 0])\n"
                "states = []\n"
                "for step in x.unbind(1):\n"
                "    state = torch.lerp(state, step, 0.1)\n"
                "    states.append(state)\n"
                "x = torch.stack(states, dim=1)",
                design="A step is one interpolation.",
                technique="operation fusion",
            ),
            Form(
                text="states = list((0.1 * x).unbind(1))\n"
                "for t in range(1, len(states)):\n"
                "    states[t] = torch.add(states[t], states[t - 1], alpha=0.9)\n"
                "x = torch.stack(states, dim=1)",
                design="Scale all inputs before the loop; a step is one scaled sum.",
                technique="hoisting",
            ),
        ),
    ),
    Rule(
        technique="loops",
        why="A loop along time sums what one scan does.",
        before="total = torch.zeros_like(x[:, 0])\n"
        "sums = []\n"
        "for t in range(x.shape[1]):\n"
        "    total = total + x[:, t]\n"
        "    sums.append(total / (t + 1))\n"
        "x = torch.stack(sums, dim=1)",
        forms=(
            Form(
                text="count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)\n"
                "x = x.cumsum(dim=1) / count.unsqueeze(1)",
                design="A cumulative sum, divided by the number of terms.",
            ),
            Form(
                text="count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)\n"
                "weights = torch.tril((1.0 / count).unsqueeze(1).expand(-1, x.shape[1]))\n"
                "x = torch.matmul(weights, x)",
                design="All means are one product with a triangular matrix.",
                technique="algebra",
            ),
        ),
    ),
    Rule(
        technique="loops",
        why="A loop along time compares what a scan does in fewer kernels.",
        before="best = x[:, 0]\n"
        "maxima = [best]\n"
        "for t in range(1, x.shape[1]):\n"
        "    best = torch.maximum(best, x[:, t])\n"
        "    maxima.append(best)\n"
        "x = torch.stack(maxima, dim=1)",
        forms=(
            Form(text="x = x.cummax(dim=1).values", design="A cumulative maximum."),
            Form(
                text="step = 1\n"
                "while step < x.shape[1]:\n"
                "    best = torch.maximum(x[:, step:], x[:, :-step])\n"
                "    x = torch.cat([x[:, :step], best], dim=1)\n"
                "    step *= 2",
                design="Doubling: windows of one, two, four, as few steps as the logarithm.",
            ),
        ),
    ),
    Rule(
        technique="hoisting",
        why="The projection of each time step is a small product inside the loop.",
        before="state = torch.zeros_like(x[:, 0])\n"
        "for t in range(x.shape[1]):\n"
        "    state = torch.tanh(P(x[:, t]) + state)\n"
        "x = state",
        forms=(
            Form(
                text="first, *steps = P(x).unbind(1)\n"
                "x = torch.tanh(first)\n"
                "for step in steps:\n"
                "    x = torch.tanh(step + x)",
                design="Project all steps by one product before the loop.",
            ),
            Form(
                text="steps = P(x)\n"
                "state = torch.tanh(steps[:, 0])\n"
                "for t in range(1, x.shape[1]):\n"
                "    state = state.add_(steps[:, t]).tanh_()\n"
                "x = state",
                design="One projection before the loop; the state is updated in place.",
            ),
        ),
    ),
    Rule(
        technique="hoisting",
        why="Two projections and their activations are taken anew in every step.",
        before="state = torch.zeros_like(x[:, 0])\n"
        "states = []\n"
        "for t in range(x.shape[1]):\n"
        "    gate = torch.sigmoid(A(x[:, t]))\n"
        "    state = gate * state + (1 - gate) * torch.tanh(B(x[:, t]))\n"
        "    states.append(state)\n"
        "x = torch.stack(states, dim=1)",
        forms=(
            Form(
                text="gates = torch.sigmoid(A(x)).unbind(1)\n"
                "updates = torch.tanh(B(x)).unbind(1)\n"
                "state = torch.zeros_like(x[:, 0])\n"
                "states = []\n"
                "for gate, update in zip(gates, updates):\n"
                "    state = torch.lerp(update, state, gate)\n"
                "    states.append(state)\n"
                "x = torch.stack(states, dim=1)",
                design="Gates and updates of all steps before the loop; a step interpolates.",
            ),
            Form(
                text="gates = torch.sigmoid(A(x))\n"
                "inputs = (1 - gates) * torch.tanh(B(x))\n"
                "states = [inputs[:, 0]]\n"
                "for t in range(1, x.shape[1]):\n"
                "    states.append(torch.addcmul(inputs[:, t], gates[:, t], states[-1]))\n"
                "x = torch.stack(states, dim=1)",
                design="All that needs no state comes before the loop; a step is one kernel.",
            ),
        ),
    ),
    Rule(
        technique="loops",
        why="Neighbors in time are subtracted one by one.",
        before="steps = [x[:, 0]]\n"
        "for t in range(1, x.shape[1]):\n"
        "    steps.append(x[:, t] - x[:, t - 1])\n"
        "x = torch.stack(steps, dim=1)",
        forms=(
            Form(
                text="x = torch.cat([x[:, :1], x[:, 1:] - x[:, :-1]], dim=1)",
                design="All differences at once, after the first step.",
            ),
            Form(
                text="x = torch.diff(x, dim=1, prepend=torch.zeros_like(x[:, :1]))",
                design="Differences along time, with a zero before the first.",
            ),
        ),
    ),
)

RULES = (*LOOP, *RECURRENCE)
