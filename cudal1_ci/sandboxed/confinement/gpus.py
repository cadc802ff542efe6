"""Which device files are whose, on a machine of several GPUs.

A runner may open those of its own GPU and of no other. With another one it could compute where
nobody looks, and disturb who measures there; and a process that may open all waits at its start
until the driver has made each ready.
"""

from __future__ import annotations

import ctypes
import re
import uuid as uuids
from pathlib import Path
from typing import Any

FOLDER = Path("/proc/driver/nvidia")
"""Of NVIDIA's driver."""
PARTS = "capabilities/gpu*/mig/gi*"
"""GPUs that are divided (MIG): which part is meant is not said by a number."""
UUID = re.compile(r"^GPU UUID:\s*GPU-([0-9a-f-]+)\s*$", re.MULTILINE)
MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
FIRST = {"CUDA_VISIBLE_DEVICES": "0"}
"""Of all that a process may open, which is one."""


def others_than(uuid: str, folder: Path = FOLDER) -> tuple[str, ...]:
    """The files of all other GPUs; none where the driver does not tell of this one, or where one is
    divided."""
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
    """In a process that may open the files of one GPU: that CUDA works, and that it is that one.

    Raises:
        OSError: It does not, or it is not.
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
