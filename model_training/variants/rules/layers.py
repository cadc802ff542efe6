"""Rewrite the layers and the indexing of `families/rows.py`."""

from __future__ import annotations

from model_training.variants.rule import Form, Rule


def gated(before: str, act: str, in_place: str) -> Rule:
    return Rule(
        technique="operation fusion",
        why="Two products read the same input, and the gate is multiplied into a new tensor.",
        before=f"x = D({before} * U(x))",
        forms=(
            Form(
                text="gate, up = F.linear(x, torch.cat([G.weight, U.weight])).chunk(2, dim=1)\n"
                f"x = D({act} * up)",
                design="One product for gate and value.",
            ),
            Form(
                text=f"x = D({in_place}.mul_(U(x)))",
                design="Activate and multiply in place.",
                technique="memory reuse",
            ),
        ),
    )


MLP = (
    Rule(
        technique="operation fusion",
        why="Three products read the same input, and their outputs are copied together.",
        before="x = torch.cat([A(x), B(x), C(x)], dim=1)",
        forms=(
            Form(
                text="weight = torch.cat([A.weight, B.weight, C.weight])\n"
                "bias = torch.cat([A.bias, B.bias, C.bias])\n"
                "x = F.linear(x, weight, bias)",
                design="Join the weights instead, which are smaller, and take one product.",
            ),
            Form(
                text="layers = (A, B, C)\n"
                "weight = torch.cat([layer.weight for layer in layers])\n"
                "bias = torch.cat([layer.bias for layer in layers])\n"
                "x = torch.addmm(bias, x, weight.t())",
                design="One product with the bias added, of the joined weights.",
            ),
        ),
    ),
    gated("F.silu(G(x))", "F.silu(gate)", "F.silu(G(x), inplace=True)"),
    gated("torch.sigmoid(G(x))", "torch.sigmoid(gate)", "G(x).sigmoid_()"),
    gated("F.gelu(G(x))", "F.gelu(gate)", "F.gelu(G(x))"),
    Rule(
        technique="algebra",
        why="Two linear layers with nothing between are one, through a wide intermediate.",
        before="x = S(I(x))",
        forms=(
            Form(
                text="x = F.linear(x, S.weight @ I.weight)",
                design="Multiply the weights, which are smaller than the input, first.",
            ),
            Form(
                text="x = x @ (S.weight @ I.weight).t()",
                design="One product with the product of both weights.",
            ),
        ),
    ),
    Rule(
        technique="memory reuse",
        why="The residual is copied though nothing writes into it, and each step makes a tensor.",
        before="residual = x.clone()\nx = B(torch.relu(A(N(x))))\nx = x + residual",
        forms=(
            Form(
                text="x = B(A(N(x)).relu_()).add_(x)",
                design="No copy; activate and add in place on tensors of our own.",
            ),
            Form(
                text="hidden = F.relu(A(N(x)), inplace=True)\n"
                "x = torch.addmm(x, hidden, B.weight.t()) + B.bias",
                design="The residual is added by the second product itself.",
                technique="operation fusion",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The transposed weight and the expanded bias are copied in full.",
        before="x = torch.matmul(x, W.t().contiguous())\n"
        "x = x + B.unsqueeze(0).expand(x.shape[0], -1).contiguous()",
        forms=(
            Form(text="x = F.linear(x, W, B)", design="A linear layer reads both as they are."),
            Form(
                text="x = torch.addmm(B, x, W.t())",
                design="A product that adds the bias, without copies.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The mask is made into numbers, and both results are multiplied and added.",
        before="chosen = (x.mean(dim=1, keepdim=True) > 0).to(x.dtype)\n"
        "x = chosen * A(x) + (1 - chosen) * B(x)",
        forms=(
            Form(
                text="x = torch.where(x.mean(dim=1, keepdim=True) > 0, A(x), B(x))",
                design="Choose between the results instead of mixing them.",
            ),
            Form(
                text="weight = torch.cat([A.weight, B.weight])\n"
                "bias = torch.cat([A.bias, B.bias])\n"
                "first, second = F.linear(x, weight, bias).chunk(2, dim=1)\n"
                "x = torch.where(x.mean(dim=1, keepdim=True) > 0, first, second)",
                design="One product for both, then a choice.",
            ),
        ),
    ),
)

TURNED = (
    Form(text="x = torch.cat([x, x.flip(1)], dim=1)", design="Flip the columns at once."),
    Form(
        text="turned = torch.flip(x, dims=(1,))\nx = torch.cat((x, turned), dim=1)",
        design="One flip instead of an index of columns.",
    ),
)
INDEXING = (
    Rule(
        technique="algebra",
        why="Rows of a table are looked up by a product with one-hot vectors.",
        before="hot = F.one_hot(I, T.shape[0]).to(x.dtype)\nx = x + hot @ T",
        forms=(
            Form(text="x = x + T[I]", design="Read the rows by their index."),
            Form(text="x = x + F.embedding(I, T)", design="An embedding reads only its rows."),
            Form(
                text="x = torch.index_select(T, 0, I).add_(x)",
                design="Select the rows and add in place.",
                technique="memory reuse",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The mask is made into numbers and compared again, and a tensor of zeros is filled.",
        before="mask = mask.to(x.dtype)\n"
        "total = torch.where(mask > 0, x, torch.zeros_like(x)).sum(dim=1)\n"
        "x = total / mask.sum(dim=1).clamp(min=1)",
        forms=(
            Form(
                text="total = x.masked_fill(mask <= 0, 0.0).sum(dim=1)\n"
                "x = total / mask.sum(dim=1).clamp_(min=1)",
                design="Fill what is masked, and count the mask as integers.",
            ),
            Form(
                text="total = torch.where(mask > 0, x, 0.0).sum(dim=1)\n"
                "x = total / mask.sum(dim=1, dtype=x.dtype).clamp_(min=1)",
                design="Choose against a number, and sum the mask as it is.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="The larger of two is made by a mask of numbers and two products.",
        before="is_larger = (x > Y).to(x.dtype)\nx = is_larger * x + (1 - is_larger) * Y",
        forms=(
            Form(text="x = torch.maximum(x, Y)", design="It is the maximum, in one pass."),
            Form(text="x = torch.where(x > Y, x, Y)", design="Choose instead of mixing."),
        ),
    ),
    Rule(
        technique="loops",
        why="Each column is taken by itself, in a loop.",
        before="turned = torch.stack([x[:, i] for i in range(x.shape[1] - 1, -1, -1)], dim=1)\n"
        "x = torch.cat([x, turned], dim=1)",
        forms=TURNED,
    ),
    Rule(
        technique="operation fusion",
        why="An index of all columns is made to turn them around.",
        before="turned = x[:, torch.arange(x.shape[1] - 1, -1, -1, device=x.device)]\n"
        "x = torch.cat([x, turned], dim=1)",
        forms=TURNED,
    ),
    Rule(
        technique="algebra",
        why="One-hot vectors are made as 64-bit integers, converted, and multiplied transposed.",
        before="hot = F.one_hot(S, self.groups).to(x.dtype)\nx = hot.t() @ x",
        forms=(
            Form(
                text="x = x.new_zeros(self.groups, x.shape[1]).index_add_(0, S, x)",
                design="Add each row to its group, without a product.",
            ),
            Form(
                text="group = torch.arange(self.groups, device=x.device).unsqueeze(1)\n"
                "x = (S == group).to(x.dtype) @ x",
                design="Compare into the matrix that the product needs, without integers.",
            ),
        ),
    ),
    Rule(
        technique="memory layout",
        why="Strided halves are copied before they are subtracted.",
        before="even = x[:, ::2].contiguous()\nodd = x[:, 1::2].contiguous()\nx = even - odd",
        forms=(
            Form(text="x = x[:, ::2] - x[:, 1::2]", design="Subtract the views, without copies."),
            Form(
                text="even, odd = x.unflatten(1, (-1, 2)).unbind(2)\nx = even - odd",
                design="Look at the columns in pairs, without copies.",
            ),
        ),
    ),
)

RULES = (*MLP, *INDEXING)
