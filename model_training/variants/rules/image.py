"""Rewrite the steps of `families/image.py`: convolutions and pooling."""

from __future__ import annotations

from model_training.variants.rule import Form, Rule

CONVOLUTION = (
    Rule(
        technique="algebra",
        why="In inference the batch norm is a scale and a shift, and takes a pass of its own.",
        before="x = torch.relu(N(C(x)))",
        forms=(
            Form(
                text="scale = N.weight * torch.rsqrt(N.running_var + N.eps)\n"
                "shift = N.bias + (C.bias - N.running_mean) * scale\n"
                "weight = C.weight * scale[:, None, None, None]\n"
                "x = F.conv2d(x, weight, shift, padding=1).relu_()",
                design="Fold the norm into weights and bias, and activate in place.",
            ),
            Form(
                text="x = N(C(x)).relu_()",
                design="The activation in place on the norm's result.",
                technique="memory reuse",
            ),
            Form(
                text="x = x.contiguous(memory_format=torch.channels_last)\n"
                "weight = C.weight.contiguous(memory_format=torch.channels_last)\n"
                "x = N(F.conv2d(x, weight, C.bias, padding=1)).relu_()",
                design="Channels last, the layout that the convolution works in.",
                technique="memory layout",
            ),
        ),
    ),
    Rule(
        technique="memory layout",
        why="The image is copied to put its channels last for a product, and copied back.",
        before="batch, _, height, width = x.shape\n"
        "x = x.permute(0, 2, 3, 1).contiguous().reshape(-1, x.shape[1])\n"
        "x = x @ W.t()\n"
        "x = x.reshape(batch, height, width, -1).permute(0, 3, 1, 2).contiguous()",
        forms=(
            Form(
                text="x = torch.matmul(W, x.flatten(2)).unflatten(2, x.shape[2:])",
                design="The weight times each image as it lies: no copy.",
            ),
            Form(
                text="x = F.conv2d(x, W[:, :, None, None])",
                design="It is a convolution of one by one.",
            ),
        ),
    ),
    Rule(
        technique="memory reuse",
        why="The activation between the convolutions writes a tensor.",
        before="x = P(torch.relu(D(x)))",
        forms=(
            Form(text="x = P(D(x).relu_())", design="The activation in place."),
            Form(
                text="x = D(x).relu_()\n"
                "pixels = torch.matmul(P.weight.flatten(1), x.flatten(2))\n"
                "x = pixels.add_(P.bias.unsqueeze(1)).unflatten(2, x.shape[2:])",
                design="The second one is a product over channels; activate in place.",
                technique="algebra",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="Scale, shift and clamp take a pass each over the convolution's result.",
        before="x = C(x)\nx = x * S\nx = x + B\nx = torch.clamp(x, min=0)",
        forms=(
            Form(
                text="weight = C.weight * S.unsqueeze(-1)\n"
                "x = F.conv2d(x, weight, B.flatten(), padding=1).relu_()",
                design="Fold the scale into the weights, and the shift into the bias.",
            ),
            Form(
                text="x = torch.addcmul(B, C(x), S).clamp_(min=0)",
                design="Scale and shift in one pass, and clamp in place.",
                technique="operation fusion",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The mean is taken in two steps, and the gate is expanded.",
        before="squeezed = x.mean(dim=3).mean(dim=2)\n"
        "gate = torch.sigmoid(U(torch.relu(D(squeezed))))\n"
        "x = x * gate.unsqueeze(-1).unsqueeze(-1).expand_as(x)",
        forms=(
            Form(
                text="gate = U(D(x.mean(dim=(2, 3))).relu_()).sigmoid_()\n"
                "x = x * gate[:, :, None, None]",
                design="One mean, activations in place, and a product by broadcasting.",
            ),
            Form(
                text="squeezed = F.adaptive_avg_pool2d(x, 1).flatten(1)\n"
                "gate = torch.sigmoid(U(F.relu(D(squeezed))))\n"
                "x = x * gate.unflatten(1, (-1, 1, 1))",
                design="One pooling over the image, and a product by broadcasting.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="Two convolutions read the same input, and their results are added.",
        before="x = A(x) + B(x)",
        forms=(
            Form(
                text="weight = B.weight + F.pad(A.weight, (1, 1, 1, 1))\n"
                "x = F.conv2d(x, weight, A.bias + B.bias, padding=1)",
                design="The small kernel is the middle of a larger one: add the weights.",
            ),
            Form(text="x = B(x).add_(A(x))", design="Add in place.", technique="memory reuse"),
        ),
    ),
)

POOLING = (
    Rule(
        technique="operation fusion",
        why="Windows are copied out before their mean is taken.",
        before="batch, channels, height, width = x.shape\n"
        "windows = F.unfold(x, kernel_size=2, stride=2)\n"
        "x = windows.reshape(batch, channels, 4, -1).mean(dim=2)\n"
        "x = x.reshape(batch, channels, height // 2, width // 2)",
        forms=(
            Form(text="x = F.avg_pool2d(x, 2)", design="An average pooling, one kernel."),
            Form(
                text="x = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).mean(dim=(3, 5))",
                design="Windows as a view, and one mean.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="Four strided slices are compared in three passes.",
        before="upper = torch.maximum(x[:, :, ::2, ::2], x[:, :, ::2, 1::2])\n"
        "lower = torch.maximum(x[:, :, 1::2, ::2], x[:, :, 1::2, 1::2])\n"
        "x = torch.maximum(upper, lower)",
        forms=(
            Form(text="x = F.max_pool2d(x, 2)", design="A maximum pooling, one kernel."),
            Form(
                text="x = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax(dim=(3, 5))",
                design="Windows as a view, and one maximum.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The maximum finds indices that nobody needs.",
        before="flat = x.reshape(x.shape[0], x.shape[1], -1)\n"
        "x = torch.cat([flat.mean(dim=2), flat.max(dim=2)[0]], dim=1)",
        forms=(
            Form(
                text="x = torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1)",
                design="Reduce the image directly, without indices.",
            ),
            Form(
                text="flat = x.flatten(2)\n"
                "x = torch.cat([flat.mean(dim=2), flat.amax(dim=2)], dim=1)",
                design="The maximum alone.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="An activation that grows with its input is taken of four values where one is kept.",
        before="x = torch.sigmoid(x) * 2.0\nx = P(x)",
        forms=(
            Form(
                text="x = P(x).sigmoid_().mul_(2.0)",
                design="Pool first, then activate a quarter of the values in place.",
            ),
            Form(text="x = torch.sigmoid(P(x)) * 2.0", design="Pool first, then activate."),
        ),
    ),
    Rule(
        technique="memory reuse",
        why="Clamp, power and mean write tensors of the whole image.",
        before="x = torch.clamp(x, min=1e-3)\n"
        "x = torch.pow(x, P).mean(dim=(2, 3))\n"
        "x = torch.pow(x, 1.0 / P)",
        forms=(
            Form(
                text="x = x.clamp(min=1e-3).pow_(P).mean(dim=(2, 3)).pow_(1.0 / P)",
                design="The powers in place.",
            ),
            Form(
                text="x = x.clamp(min=1e-3).log_().mul_(P).exp_().mean(dim=(2, 3))\n"
                "x = torch.exp(torch.log(x) / P)",
                design="A power through a logarithm, in place.",
                technique="algebra",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="The image is enlarged and averaged again, which gives the image.",
        before="x = F.interpolate(x, scale_factor=2, mode='nearest')\n"
        "x = F.avg_pool2d(x, kernel_size=2) + x.mean(dim=(2, 3), keepdim=True)",
        forms=(
            Form(
                text="x = x + x.mean(dim=(2, 3), keepdim=True)",
                design="Only the mean is left to add; enlarging does not change it.",
            ),
            Form(
                text="x = torch.add(x, F.adaptive_avg_pool2d(x, 1))", design="Add the pooled mean."
            ),
        ),
    ),
)

RULES = (*CONVOLUTION, *POOLING)
