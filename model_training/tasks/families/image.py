"""Write work on images: convolutions with what stands around them, and pooling."""

from __future__ import annotations

from model_training.tasks.draft import Draft


def out_of(d: Draft) -> tuple[str, str]:
    """Add the numbers of channels before and after."""
    channels = d.parameter(d.dims[1])
    return channels, d.parameter(d.size("out", d.value(channels) * d.rng.choice((1, 2))))


# --- convolution ---------------------------------------------------------------------------------


def with_batch_norm(d: Draft) -> None:
    channels, out = out_of(d)
    conv = d.module("conv", f"nn.Conv2d({channels}, {out}, kernel_size=3, padding=1)")
    norm = d.module("norm", f"nn.BatchNorm2d({out})")
    d.forward(f"x = torch.relu({norm}({conv}(x)))")
    d.dims = (d.dims[0], out, *d.dims[2:])


def pointwise_as_a_product(d: Draft) -> None:
    channels, out = out_of(d)
    weight = d.module("weight", f"nn.Parameter(torch.randn({out}, {channels}) / {channels})")
    d.forward(
        "batch, _, height, width = x.shape",
        "x = x.permute(0, 2, 3, 1).contiguous().reshape(-1, x.shape[1])",
        f"x = x @ {weight}.t()",
        "x = x.reshape(batch, height, width, -1).permute(0, 3, 1, 2).contiguous()",
    )
    d.dims = (d.dims[0], out, *d.dims[2:])


def separable(d: Draft) -> None:
    channels, out = out_of(d)
    depth = d.module("depth", f"nn.Conv2d({channels}, {channels}, 3, padding=1, groups={channels})")
    point = d.module("point", f"nn.Conv2d({channels}, {out}, 1)")
    d.forward(f"x = {point}(torch.relu({depth}(x)))")
    d.dims = (d.dims[0], out, *d.dims[2:])


def scaled_and_shifted(d: Draft) -> None:
    channels, out = out_of(d)
    conv = d.module("conv", f"nn.Conv2d({channels}, {out}, 3, padding=1, bias=False)")
    scale = d.module("scale", f"nn.Parameter(torch.rand({out}, 1, 1))")
    shift = d.module("shift", f"nn.Parameter(torch.randn({out}, 1, 1))")
    d.forward(f"x = {conv}(x)", f"x = x * {scale}", f"x = x + {shift}", "x = torch.clamp(x, min=0)")
    d.dims = (d.dims[0], out, *d.dims[2:])


def squeezed_and_excited(d: Draft) -> None:
    channels = d.parameter(d.dims[1])
    down = d.module("down", f"nn.Linear({channels}, {channels} // 2)")
    up = d.module("up", f"nn.Linear({channels} // 2, {channels})")
    d.forward(
        "squeezed = x.mean(dim=3).mean(dim=2)",
        f"gate = torch.sigmoid({up}(torch.relu({down}(squeezed))))",
        "x = x * gate.unsqueeze(-1).unsqueeze(-1).expand_as(x)",
    )


def branches_joined(d: Draft) -> None:
    channels, out = out_of(d)
    one = d.module("one", f"nn.Conv2d({channels}, {out}, 1)")
    three = d.module("three", f"nn.Conv2d({channels}, {out}, 3, padding=1)")
    d.forward(f"x = {one}(x) + {three}(x)")
    d.dims = (d.dims[0], out, *d.dims[2:])


CONVOLUTION = {
    "a convolution with batch norm": with_batch_norm,
    "a pointwise convolution as a product": pointwise_as_a_product,
    "a separable convolution": separable,
    "a convolution scaled and shifted": scaled_and_shifted,
    "squeeze and excitation": squeezed_and_excited,
    "two convolutions of one input": branches_joined,
}

# --- pooling -------------------------------------------------------------------------------------


def averages_by_unfolding(d: Draft) -> None:
    d.forward(
        "batch, channels, height, width = x.shape",
        "windows = F.unfold(x, kernel_size=2, stride=2)",
        "x = windows.reshape(batch, channels, 4, -1).mean(dim=2)",
        "x = x.reshape(batch, channels, height // 2, width // 2)",
    )
    d.dims = halved(d)


def halved(d: Draft) -> tuple[str, ...]:
    sides = [d.size(f"half_{name}", d.value(name) // 2) for name in d.dims[2:]]
    return (*d.dims[:2], *sides)


def maxima_of_four_slices(d: Draft) -> None:
    d.forward(
        "upper = torch.maximum(x[:, :, ::2, ::2], x[:, :, ::2, 1::2])",
        "lower = torch.maximum(x[:, :, 1::2, ::2], x[:, :, 1::2, 1::2])",
        "x = torch.maximum(upper, lower)",
    )
    d.dims = halved(d)


def global_mean_and_maximum(d: Draft) -> None:
    d.forward(
        "flat = x.reshape(x.shape[0], x.shape[1], -1)",
        "x = torch.cat([flat.mean(dim=2), flat.max(dim=2)[0]], dim=1)",
    )
    d.dims = (d.dims[0], d.size("pooled", 2 * d.value(d.dims[1])))


def pool_then_activation(d: Draft) -> None:
    pool = d.module("pool", "nn.MaxPool2d(2)")
    d.forward("x = torch.sigmoid(x) * 2.0", f"x = {pool}(x)")
    d.dims = halved(d)


def generalized_mean(d: Draft) -> None:
    power = d.module("power", "nn.Parameter(torch.ones(1) * 3.0)")
    d.forward(
        "x = torch.clamp(x, min=1e-3)",
        f"x = torch.pow(x, {power}).mean(dim=(2, 3))",
        f"x = torch.pow(x, 1.0 / {power})",
    )
    d.dims = d.dims[:2]


def enlarged_and_averaged(d: Draft) -> None:
    d.forward(
        "x = F.interpolate(x, scale_factor=2, mode='nearest')",
        "x = F.avg_pool2d(x, kernel_size=2) + x.mean(dim=(2, 3), keepdim=True)",
    )


POOLING = {
    "averages of windows by unfolding": averages_by_unfolding,
    "maxima of four slices": maxima_of_four_slices,
    "the mean and the maximum of each channel": global_mean_and_maximum,
    "an activation before a maximum": pool_then_activation,
    "a generalized mean": generalized_mean,
    "enlarged and averaged again": enlarged_and_averaged,
}
