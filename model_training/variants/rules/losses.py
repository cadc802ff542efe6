"""Rewrite the losses of `families/losses.py`, of each row or their mean."""

from __future__ import annotations

from collections.abc import Iterator

from model_training.variants.rule import Form, Rule

LABEL = "labels.unsqueeze(1)"
HOT = "hot = F.one_hot(labels, x.shape[1]).to(x.dtype)\n"


def loss(
    technique: str, why: str, before: str, value: str, *forms: tuple[str, str, str, str | None]
) -> Iterator[Rule]:
    """Make a rule for the losses of rows and one for their mean. A form is its statements, the
    value of rows, the design, and the value of the mean where that is another."""
    rows = tuple(Form(text=f"{text}x = {of_rows}", design=how) for text, of_rows, how, _ in forms)
    means = tuple(
        Form(text=f"{text}x = {of_all or f'({of_rows}).mean()'}.reshape(1)", design=how)
        for text, of_rows, how, of_all in forms
    )
    yield Rule(technique=technique, why=why, before=f"{before}x = {value}", forms=rows)
    yield Rule(
        technique=technique, why=why, before=f"{before}x = ({value}).mean().reshape(1)", forms=means
    )


RULES = (
    *loss(
        "algebra",
        "The logarithm is taken of all classes, and one-hot vectors keep one of them.",
        "p = torch.softmax(x, dim=1)\n" + HOT,
        "-(hot * torch.log(p + 1e-9)).sum(dim=1)",
        (
            f"p = torch.softmax(x, dim=1).gather(1, {LABEL}).squeeze(1)\n",
            "-torch.log(p + 1e-9)",
            "Gather the probability of the label, and take its logarithm alone.",
            None,
        ),
        (
            f"logit = torch.gather(x, 1, {LABEL}).squeeze(1)\n"
            "p = torch.exp(logit - torch.logsumexp(x, dim=1))\n",
            "-torch.log(p + 1e-9)",
            "The label's probability from its logit and a log-sum-exp.",
            None,
        ),
    ),
    *loss(
        "operation fusion",
        "Smoothed one-hot vectors are written out, multiplied and summed.",
        "logs = F.log_softmax(x, dim=1)\n" + HOT + "smooth = 0.9 * hot + 0.1 / x.shape[1]\n",
        "-(smooth * logs).sum(dim=1)",
        (
            "",
            "F.cross_entropy(x, labels, reduction='none', label_smoothing=0.1)",
            "The library's cross entropy with label smoothing.",
            "F.cross_entropy(x, labels, label_smoothing=0.1)",
        ),
        (
            f"logs = F.log_softmax(x, dim=1)\nlabel = logs.gather(1, {LABEL}).squeeze(1)\n",
            "-0.9 * label - 0.1 * logs.mean(dim=1)",
            "The label's logarithm and the mean of all, without one-hot vectors.",
            None,
        ),
    ),
    *loss(
        "operation fusion",
        "Masks of numbers mix both branches of the loss.",
        "difference = torch.abs(x - target)\n"
        "small = (difference < 1.0).to(x.dtype)\n"
        "x = small * 0.5 * difference**2 + (1 - small) * (difference - 0.5)\n",
        "x.mean(dim=1)",
        (
            "",
            "F.smooth_l1_loss(x, target, reduction='none').mean(dim=1)",
            "The library's loss, one kernel for both branches.",
            "F.smooth_l1_loss(x, target)",
        ),
        (
            "difference = torch.abs(x - target)\nsmall = difference.clamp(max=1.0)\n",
            "(small * (difference - 0.5 * small)).mean(dim=1)",
            "Both branches are one formula of the clamped difference.",
            None,
        ),
    ),
    *loss(
        "algebra",
        "Two logarithms are taken of tensors of all classes.",
        "p = torch.softmax(target, dim=1)\nq = torch.softmax(x, dim=1)\n",
        "(p * (torch.log(p + 1e-9) - torch.log(q + 1e-9))).sum(dim=1)",
        (
            "p = torch.softmax(target, dim=1)\nq = torch.softmax(x, dim=1)\n",
            "(p * ((p + 1e-9) / (q + 1e-9)).log_()).sum(dim=1)",
            "One logarithm, of the quotient.",
            None,
        ),
        (
            "p = torch.softmax(target, dim=1)\n"
            "q = torch.softmax(x, dim=1)\n"
            "logs = (p + 1e-9).log_().sub_((q + 1e-9).log_())\n",
            "torch.linalg.vecdot(p, logs)",
            "Logarithms in place, and a dot product of rows.",
            None,
        ),
    ),
    *loss(
        "operation fusion",
        "A sigmoid by hand, and masks of numbers to choose between it and its complement.",
        "p = 1.0 / (1.0 + torch.exp(-x))\n"
        "wanted = (target > 0).to(x.dtype)\n"
        "right = wanted * p + (1 - wanted) * (1 - p)\n",
        "(-((1 - right) ** 2) * torch.log(right + 1e-6)).mean(dim=1)",
        (
            "right = torch.sigmoid(torch.where(target > 0, x, -x))\n",
            "(-(1 - right).square() * torch.log(right + 1e-6)).mean(dim=1)",
            "Choose the sign before one sigmoid.",
            None,
        ),
        (
            "p = torch.sigmoid(x)\nright = torch.where(target > 0, p, 1 - p)\n",
            "-((1 - right).square_() * (right + 1e-6).log_()).mean(dim=1)",
            "The library's sigmoid and a choice; the rest in place.",
            None,
        ),
    ),
    *loss(
        "algebra",
        "Both inputs are divided by their norms in full before they are multiplied.",
        "x = x / (torch.norm(x, dim=1, keepdim=True) + 1e-6)\n"
        "target = target / (torch.norm(target, dim=1, keepdim=True) + 1e-6)\n",
        "1 - (x * target).sum(dim=1)",
        (
            "norms = (torch.norm(x, dim=1) + 1e-6) * (torch.norm(target, dim=1) + 1e-6)\n",
            "1 - (x * target).sum(dim=1) / norms",
            "Divide one number of each row instead of all of its elements.",
            None,
        ),
        (
            "norms = (torch.linalg.vector_norm(x, dim=1) + 1e-6) "
            "* (torch.linalg.vector_norm(target, dim=1) + 1e-6)\n",
            "1 - torch.linalg.vecdot(x, target) / norms",
            "A dot product of rows, divided by the product of their norms.",
            None,
        ),
    ),
    *loss(
        "operation fusion",
        "One-hot vectors are made to leave out one class of each row.",
        f"right = torch.gather(x, 1, {LABEL})\n"
        "margins = torch.clamp(1.0 + x - right, min=0.0)\n" + HOT,
        "(margins * (1 - hot)).sum(dim=1) / x.shape[1]",
        (
            "",
            "F.multi_margin_loss(x, labels, reduction='none')",
            "It is the library's loss of margins, one kernel.",
            "F.multi_margin_loss(x, labels)",
        ),
        (
            f"index = {LABEL}\nmargins = (x - x.gather(1, index)).add_(1.0).clamp_(min=0.0)\n",
            "margins.scatter_(1, index, 0.0).mean(dim=1)",
            "Set the label's margin to zero in place, and take the mean.",
            None,
        ),
    ),
)
