"""Find the driver's name of the GPU that a device name means."""

from __future__ import annotations

from collections.abc import Mapping

from cudal1_ci.errors import UnsupportedError


def gpu_uuid(device: str, environ: Mapping[str, str]) -> str | None:
    """Return `GPU-...` (or `MIG-...`) of the GPU that a worker on this machine would use. Return
    None for the processor, which `auto` means where there is no GPU.

    Raises:
        UnsupportedError: The named GPU is not there.
    """
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return None
    visible = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    place = int(index or 0)
    entry = visible[place].strip() if place < len(visible) else ""
    if entry.startswith(("GPU-", "MIG-")):
        return entry
    import pynvml  # the job that publishes has no need of it

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(entry or place))
        return str(pynvml.nvmlDeviceGetUUID(handle))
    except (pynvml.NVMLError, ValueError) as error:
        if kind == "auto":
            return None
        raise UnsupportedError(
            f"device {device}: no such GPU here ({error}); use --device cpu"
        ) from error
