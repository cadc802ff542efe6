"""Which device a verb measures on."""

from __future__ import annotations

import pynvml

from cudal1_ci.errors import UnsupportedError


def require(device: str) -> None:
    """Refuse early what cannot be measured here: finding targets may take minutes.

    Raises:
        UnsupportedError: A GPU is asked for that is not there.
    """
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise UnsupportedError(
            f"device {device}: no NVIDIA driver here ({error}); use --device cpu"
        ) from error
    if int(index or 0) >= count:
        raise UnsupportedError(f"device {device}: this machine has {count} GPU(s), cuda:0 onwards")


def measures_on_gpu(device: str) -> bool:
    """Whether the judge will find a GPU, as far as can be told without torch."""
    if device != "auto":
        return device != "cpu"
    try:
        pynvml.nvmlInit()
        return bool(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return False
