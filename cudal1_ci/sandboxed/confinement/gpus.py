"""Find the device files of each GPU, on a machine of several GPUs.

A runner may open only the files of its own GPU. With another one it could compute unseen, and
disturb measurements there. A process that may open all of them also waits at its start until the
driver has made each GPU ready.
"""

from __future__ import annotations

import ctypes
import re
import uuid as uuids
from pathlib import Path
from typing import Any

FOLDER = Path("/proc/driver/nvidia")
"""Folder of NVIDIA's driver."""
PARTS = "capabilities/gpu*/mig/gi*"
"""Files of divided GPUs (MIG). A number does not say which part is meant."""
UUID = re.compile(r"^GPU UUID:\s*GPU-([0-9a-f-]+)\s*$", re.MULTILINE)
MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
FIRST = {"CUDA_VISIBLE_DEVICES": "0"}
"""Number of the only GPU that a process may open."""


def others_than(uuid: str, folder: Path = FOLDER) -> tuple[str, ...]:
    """Return the files of all other GPUs. Return none where the driver does not report this one,
    or where one is divided."""
    files = {}
    for file in sorted(folder.glob("gpus/*/information")):
        text = file.read_text(encoding="utf-8", errors="replace")
        found, minor = UUID.search(text), MINOR.search(text)
        if found and minor:
            files[found[1]] = f"/dev/nvidia{minor[1]}"
    if uuid not in files or any(folder.glob(PARTS)):
        return ()
    return tuple(file for one, file in files.items() if one != uuid)


def see_only(uuid: str, cuda: Any = None) -> None:
    """Check that CUDA works in a process that may open the files of one GPU, and that it is that
    one.

    Raises:
        OSError: CUDA does not work, or has another GPU.
    """
    cuda = cuda or ctypes.CDLL("libcuda.so.1")
    number, device, found = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDeviceGetCount", (ctypes.byref(number),)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDeviceGetUuid", (ctypes.byref(found), device)),
    ):
        error = getattr(cuda, name)(*arguments)
        if error:
            raise OSError(f"{name} fails with error {error} where the other GPUs are not seen")
    seen = str(uuids.UUID(bytes=bytes(found)))
    if number.value != 1 or seen != uuid:
        raise OSError(f"{number.value} GPUs are seen, the first is {seen}, not {uuid} alone")
