"""Choose the device that a verb measures on."""

from __future__ import annotations

import os

import pynvml

from cudal1_ci.errors import UnsupportedError

ALL = "cuda:all"


def is_several(device: str) -> bool:
    """Return whether a device setting names several devices, or all of them."""
    return device == ALL or "," in device


def devices_of(device: str) -> tuple[str, ...]:
    """Return the devices one by one, as often as each is named. Raises: UnsupportedError, where all
    are requested and there is none.
    """
    if device == ALL:
        count = num_gpus(device)
        visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        return tuple(f"cuda:{index}" for index in range(len(visible) or count))
    return tuple(device.split(","))


def require(device: str) -> None:
    """Refuse early what cannot be measured here: finding targets may take minutes.

    Raises:
        UnsupportedError: A GPU is asked for that is not there.
    """
    for one in devices_of(device):
        kind, _, index = one.partition(":")
        if kind == "cuda" and int(index or 0) >= (count := num_gpus(one)):
            raise UnsupportedError(f"device {one}: this machine has {count} GPU(s), cuda:0 onwards")


def num_gpus(device: str) -> int:
    """Return the number of GPUs. Raises: UnsupportedError, where that `device` cannot be used."""
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        raise UnsupportedError(
            f"device {device}: no NVIDIA driver here ({error}); use --device cpu"
        ) from error


def measures_on_gpu(device: str) -> bool:
    """Return whether the verifier will find a GPU; guessed without torch."""
    if device != "auto":
        return device != "cpu"
    try:
        pynvml.nvmlInit()
        return bool(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return False
