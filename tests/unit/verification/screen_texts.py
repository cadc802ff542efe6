"""Texts that a rule must see, each with one that looks like it and is in order.

`screen_pairs.txt` has them in Python and, for rules named `cuda_`, in CUDA. A Python text with
`>>>` goes on with `forward`'s body behind it, and one with `===` with a constructor's.
`screen_streams.txt` has bodies of `forward` that do and do not wait for `self.s`.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
STREAM = "===\nself.s = torch.cuda.Stream()\n>>>\n"

_TOP = """import torch
from torch import nn
import torch.nn.functional as F
"""
_MODULE = """
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
"""


def candidate(text: str) -> str:
    """A module of a text's parts; a text without marks is one by itself."""
    if not re.search(r"^(>>>|===)", text, re.MULTILINE):
        return _TOP + text
    top, _, body = text.partition(">>>")
    top, _, init = top.partition("===")
    return (
        f"{_TOP}{top}{_MODULE}{indented(init)}"
        f"\n    def forward(self, x):\n{indented(body) or '        return self.fc(x)'}\n"
    )


def indented(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.strip().splitlines())


def sections(name: str) -> list[tuple[str, str]]:
    """Headings of a file and what stands below them."""
    found = re.split(r"^#### (.*)\n", (HERE / name).read_text(), flags=re.MULTILINE)[1:]
    return list(zip(found[::2], found[1::2], strict=True))


def pairs() -> list[tuple[str, str, str]]:
    """A rule, a text that it sees, and one that it does not."""
    found = []
    for rule, texts in sections("screen_pairs.txt"):
        seen, unseen = texts.split("---- not seen\n")
        found.append((rule, seen, unseen))
    return found


CUDA = [pair for pair in pairs() if pair[0].startswith("cuda_")]
PYTHON = [pair for pair in pairs() if not pair[0].startswith("cuda_")]
UNJOINED = [body for heading, body in sections("screen_streams.txt") if heading == "not waited for"]
JOINED = [body for heading, body in sections("screen_streams.txt") if heading == "waited for"]
PYTHON.append(("side_stream", STREAM + UNJOINED[0], STREAM + JOINED[0]))
