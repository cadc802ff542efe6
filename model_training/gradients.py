"""Gradients to step along: from an attention whose gradient is right, and numbers all of them.

    with sound_attention():
        loss.backward()
    watch = Watch()
    if watch.is_sound(norm_of(parameters)):
        optimizer.step()

A step along what is no number leaves weights that say nothing, and no later step mends them: of
such a gradient no step is made. One may be a backend's mistake; three in a row are an error.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator

import torch
from torch.distributed.tensor import DTensor

from cudal1_ci.errors import UnsupportedError

MAX_IN_A_ROW = 3


@contextlib.contextmanager
def sound_attention() -> Iterator[None]:
    """Without cuDNN's attention, whose gradient of the queries holds NaN on an H100 and H200 where
    there is a mask, a row has 64 more than a multiple of 128 tokens, and scores are small, as those
    of a Qwen2.5 are (since torch 2.11; https://github.com/pytorch/pytorch/issues/196678)."""
    was_enabled = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)


def norm_of(parameters: Iterable[torch.nn.Parameter]) -> float:
    """Of their gradients, of all processes' parts where those are sharded; 0 where there are
    none."""
    found = [one.grad for one in parameters if one.grad is not None]
    if not found:
        return 0.0
    norm = torch.nn.utils.get_total_norm(found)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


class Watch:
    """Of one training."""

    def __init__(self) -> None:
        self.num_skipped = 0
        self._in_a_row = 0

    def is_sound(self, norm: float) -> bool:
        """Whether to step along a gradient of this norm.

        Raises:
            UnsupportedError: It is the third in a row that is no number.
        """
        if math.isfinite(norm):
            self._in_a_row = 0
            return True
        self.num_skipped += 1
        self._in_a_row += 1
        if self._in_a_row == MAX_IN_A_ROW:
            raise UnsupportedError(
                f"the gradient of {MAX_IN_A_ROW} steps in a row is no number (nan or infinite); no "
                "step was made along them. Go on from the last checkpoint with a lower "
                "learning-rate or max-grad-norm, or another version of torch"
            )
        return False
