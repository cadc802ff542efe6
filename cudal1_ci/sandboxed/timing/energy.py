"""Read the energy counter of a GPU, from NVML's library; the interpreter may lack its bindings."""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
JOULES = 1e-3


class EnergyCounter:
    """The counter of one GPU: joules since the driver was loaded."""

    def __init__(self, library: Any, handle: ctypes.c_void_p):
        self.library, self.handle = library, handle

    @classmethod
    def of(cls, uuid: str | None) -> EnergyCounter | None:
        """Return the counter of a GPU; None where there is none, as on a CPU, on a slice of a GPU
        and before Volta."""
        if uuid is None:
            return None
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return None
        handle = ctypes.c_void_p()
        name = f"GPU-{uuid.removeprefix('GPU-')}".encode()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)):
            return None
        counter = cls(library, handle)
        return None if counter.read_j() is None else counter

    def read_j(self) -> float | None:
        """Return the joules so far; None where the GPU does not count them."""
        found = ctypes.c_ulonglong()
        failed = self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(found))
        return None if failed else JOULES * found.value

    def per_call_j(self, before_j: float | None, num_calls: int) -> float | None:
        """Return the joules of each call since an earlier reading; None where they are not
        known."""
        after_j = self.read_j()
        if before_j is None or after_j is None or not num_calls:
            return None
        return max(0.0, after_j - before_j) / num_calls
