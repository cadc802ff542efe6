"""Write losses as people do: one number, or one for each row."""

from __future__ import annotations

from model_training.tasks.draft import Draft


def target_of(d: Draft) -> None:
    d.input("target", f"torch.randn({', '.join(d.dims)})")


def labels_of(d: Draft) -> None:
    d.input("labels", f"torch.randint(0, {d.dims[1]}, ({d.dims[0]},))")


def end(d: Draft, value: str) -> None:
    """Write a mean over all rows, or the losses of rows."""
    if d.rng.random() < 0.5:
        d.forward(f"x = ({value}).mean().reshape(1)")
        d.dims = ("1",)
    else:
        d.forward(f"x = {value}")
        d.dims = (d.dims[0],)


def cross_entropy(d: Draft) -> None:
    labels_of(d)
    d.forward("p = torch.softmax(x, dim=1)", "hot = F.one_hot(labels, x.shape[1]).to(x.dtype)")
    end(d, "-(hot * torch.log(p + 1e-9)).sum(dim=1)")


def smoothed_cross_entropy(d: Draft) -> None:
    labels_of(d)
    d.forward(
        "logs = F.log_softmax(x, dim=1)",
        "hot = F.one_hot(labels, x.shape[1]).to(x.dtype)",
        "smooth = 0.9 * hot + 0.1 / x.shape[1]",
    )
    end(d, "-(smooth * logs).sum(dim=1)")


def huber(d: Draft) -> None:
    target_of(d)
    d.forward(
        "difference = torch.abs(x - target)",
        "small = (difference < 1.0).to(x.dtype)",
        "x = small * 0.5 * difference**2 + (1 - small) * (difference - 0.5)",
    )
    end(d, "x.mean(dim=1)")


def divergence(d: Draft) -> None:
    target_of(d)
    d.forward("p = torch.softmax(target, dim=1)", "q = torch.softmax(x, dim=1)")
    end(d, "(p * (torch.log(p + 1e-9) - torch.log(q + 1e-9))).sum(dim=1)")


def focal(d: Draft) -> None:
    target_of(d)
    d.forward(
        "p = 1.0 / (1.0 + torch.exp(-x))",
        "wanted = (target > 0).to(x.dtype)",
        "right = wanted * p + (1 - wanted) * (1 - p)",
    )
    end(d, "(-((1 - right) ** 2) * torch.log(right + 1e-6)).mean(dim=1)")


def cosine(d: Draft) -> None:
    target_of(d)
    d.forward(
        "x = x / (torch.norm(x, dim=1, keepdim=True) + 1e-6)",
        "target = target / (torch.norm(target, dim=1, keepdim=True) + 1e-6)",
    )
    end(d, "1 - (x * target).sum(dim=1)")


def hinge(d: Draft) -> None:
    labels_of(d)
    d.forward(
        "right = torch.gather(x, 1, labels.unsqueeze(1))",
        "margins = torch.clamp(1.0 + x - right, min=0.0)",
        "hot = F.one_hot(labels, x.shape[1]).to(x.dtype)",
    )
    end(d, "(margins * (1 - hot)).sum(dim=1) / x.shape[1]")


LOSS = {
    "a cross entropy of one-hot vectors": cross_entropy,
    "a smoothed cross entropy": smoothed_cross_entropy,
    "a Huber loss by masks": huber,
    "a divergence of two softmaxes": divergence,
    "a focal loss": focal,
    "a cosine loss": cosine,
    "a hinge over all classes": hinge,
}
