"""Rewrite the norms and softmaxes of `families/pointwise.py`."""

from __future__ import annotations

from model_training.variants.rule import Form, Rule
from model_training.variants.rules.pointwise import known

NORMALIZATION = (
    Rule(
        technique="operation fusion",
        why="A layer norm by hand reads the rows in every one of its passes.",
        before="mean = x.mean(dim=-1, keepdim=True)\n"
        "variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)\n"
        "x = G * (x - mean) / torch.sqrt(variance + 1e-5) + B",
        forms=(
            Form(
                text="x = F.layer_norm(x, G.shape, G, B, eps=1e-5)",
                design="The layer norm of the library, one kernel.",
            ),
            Form(
                text="variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)\n"
                "x = torch.addcmul(B, (x - mean) * torch.rsqrt(variance + 1e-5), G)",
                design="Both moments in one pass, gain and bias in another.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The root mean square takes a pass for each of its operators.",
        before="rms = torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-6)\nx = G * (x / rms)",
        forms=(
            Form(text="x = F.rms_norm(x, G.shape, G, eps=1e-6)", design="The library's own norm."),
            Form(
                text="scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6)\n"
                "x = x * scale * G",
                design="One reciprocal root for each row, and products instead of a quotient.",
                technique="algebra",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="Mean and deviation are taken in passes of their own over the same groups.",
        before="shape = x.shape\n"
        "x = x.reshape(*shape[:-1], self.groups, -1)\n"
        "x = (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + 1e-5)\n"
        "x = x.reshape(shape)",
        forms=(
            Form(
                text="x = x.unflatten(-1, (self.groups, -1))\n"
                "spread, center = torch.std_mean(x, dim=-1, keepdim=True)\n"
                "x = (x - center).div_(spread + 1e-5).flatten(-2)",
                design="Both in one pass, and the quotient in place.",
            ),
            Form(
                text="x = x.unflatten(-1, (self.groups, -1))\n"
                "spread, center = torch.std_mean(x, dim=-1, keepdim=True)\n"
                "scale = (spread + 1e-5).reciprocal_()\n"
                "x = torch.addcmul(-center * scale, x, scale).flatten(-2)",
                design="Both in one pass, then one multiplication and addition.",
            ),
        ),
    ),
    known(
        "x = x / torch.clamp(torch.sqrt(torch.sum(x * x, dim=-1, keepdim=True)), min=1e-6)",
        ("x = F.normalize(x, dim=-1, eps=1e-6)", "The library's own normalization."),
        (
            "x = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_(min=1e-6)",
            "The norm in one kernel, which writes no squares.",
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The columns are read once for the mean and three times for the deviation.",
        before="center = x.mean(dim=0, keepdim=True)\n"
        "spread = torch.sqrt(((x - center) ** 2).mean(dim=0, keepdim=True) + 1e-5)\n"
        "x = (x - center) / spread",
        forms=(
            Form(
                text="x = F.batch_norm(x, None, None, training=True, eps=1e-5)",
                design="It is a batch norm without parameters.",
                needs_rows=True,
            ),
            Form(
                text="centered = x - x.mean(dim=0, keepdim=True)\n"
                "variance = centered.square().mean(dim=0, keepdim=True)\n"
                "x = centered * torch.rsqrt(variance + 1e-5)",
                design="Center once, and multiply by one reciprocal root for each column.",
            ),
            Form(
                text="variance, center = torch.var_mean(x, dim=0, correction=0, keepdim=True)\n"
                "x = (x - center) * torch.rsqrt(variance + 1e-5)",
                design="Both moments in one pass, and a product with the reciprocal root.",
            ),
        ),
    ),
    known(
        "low = x.min(dim=-1, keepdim=True)[0]\n"
        "high = x.max(dim=-1, keepdim=True)[0]\n"
        "x = (x - low) / (high - low + 1e-6)",
        (
            "low, high = torch.aminmax(x, dim=-1, keepdim=True)\n"
            "x = (x - low) / (high - low + 1e-6)",
            "Both ends in one pass, without their indices.",
        ),
        (
            "low = x.amin(dim=-1, keepdim=True)\n"
            "high = x.amax(dim=-1, keepdim=True)\n"
            "x = (x - low).div_(high - low + 1e-6)",
            "No indices, and the quotient in place.",
        ),
    ),
    Rule(
        technique="memory reuse",
        why="Activation and residual between the norms write a tensor each.",
        before="x = S(torch.relu(N(x)) + x)",
        forms=(
            Form(
                text="x = S(N(x).relu_().add_(x))",
                design="Both in place on the first norm's result.",
            ),
        ),
    ),
)

SHIFTED = "shifted = torch.exp(x - x.max(dim=-1, keepdim=True)[0])\n"
QUOTIENT = "x = shifted / shifted.sum(dim=-1, keepdim=True)"
MANY_PASSES = "A softmax by hand takes a pass for each of its operators."
SOFTMAX = (
    Rule(
        technique="operation fusion",
        why=MANY_PASSES,
        before=f"x = x / torch.exp(T)\n{SHIFTED}{QUOTIENT}",
        forms=(
            Form(
                text="x = torch.softmax(x * torch.exp(-T), dim=-1)",
                design="The library's softmax, and a product instead of a quotient.",
            ),
            Form(text="x = F.softmax(x / torch.exp(T), dim=-1)", design="The library's softmax."),
        ),
    ),
    Rule(
        technique="operation fusion",
        why=MANY_PASSES,
        before="x = x * mask + (1 - mask) * -1e4\n"
        "shifted = torch.exp(x - torch.max(x, dim=-1, keepdim=True).values)\n"
        "x = shifted / torch.sum(shifted, dim=-1, keepdim=True)",
        forms=(
            Form(
                text="x = torch.softmax(x.masked_fill(mask == 0, -1e4), dim=-1)",
                design="Fill what is masked, then the library's softmax.",
            ),
            Form(
                text="x = F.softmax(torch.where(mask.bool(), x, -1e4), dim=-1)",
                design="Choose by the mask, then the library's softmax.",
            ),
        ),
    ),
    known(
        SHIFTED + QUOTIENT,
        ("x = torch.softmax(x, dim=-1)", "The library's softmax, one kernel."),
        ("x = F.softmax(x, dim=-1)", "The library's softmax, which reads each row once."),
    ),
    Rule(
        technique="memory reuse",
        why="The sum and the logarithm write a tensor each.",
        before="x = torch.log(torch.softmax(x, dim=-1) + 1e-9)",
        forms=(
            Form(
                text="x = torch.softmax(x, dim=-1).add_(1e-9).log_()",
                design="Both in place on the softmax, which is our own.",
            ),
        ),
    ),
    known(
        "high = x.max(dim=-1, keepdim=True)[0]\n"
        "total = high + torch.log(torch.exp(x - high).sum(dim=-1, keepdim=True))\n"
        "x = x - total",
        ("x = F.log_softmax(x, dim=-1)", "It is the logarithm of softmax, one kernel."),
        (
            "x = x - torch.logsumexp(x, dim=-1, keepdim=True)",
            "The library's log-sum-exp, subtracted.",
        ),
    ),
    Rule(
        technique="memory reuse",
        why="The entropy writes a tensor for each of its operators.",
        before="p = torch.softmax(x, dim=-1)\n"
        "entropy = -(p * torch.log(p + 1e-9)).sum(dim=-1, keepdim=True)\n"
        "x = p * entropy",
        forms=(
            Form(
                text="p = torch.softmax(x, dim=-1)\n"
                "entropy = (p + 1e-9).log_().mul_(p).sum(dim=-1, keepdim=True).neg_()\n"
                "x = p.mul_(entropy)",
                design="The logarithm, the product and the gate in place.",
            ),
            Form(
                text="p = F.softmax(x, dim=-1)\n"
                "entropy = torch.linalg.vecdot(p, torch.log(p + 1e-9)).unsqueeze(-1)\n"
                "x = -p * entropy",
                design="The entropy as a dot product of rows.",
                technique="algebra",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="The product of both softmaxes is the same along a row: the exponentials cancel.",
        before="x = torch.softmax(x, dim=-1) * torch.softmax(-x, dim=-1) * x.shape[-1]",
        forms=(
            Form(
                text="total = torch.logsumexp(x, dim=-1, keepdim=True) "
                "+ torch.logsumexp(-x, dim=-1, keepdim=True)\n"
                "x = (torch.exp(-total) * x.shape[-1]).expand_as(x).contiguous()",
                design="One number for each row, of both log-sum-exps.",
            ),
            Form(
                text="x = torch.softmax(x, dim=-1).mul_(torch.softmax(-x, dim=-1))"
                ".mul_(x.shape[-1])",
                design="Multiply in place, on the first softmax.",
                technique="memory reuse",
            ),
        ),
    ),
)

RULES = (*NORMALIZATION, *SOFTMAX)
