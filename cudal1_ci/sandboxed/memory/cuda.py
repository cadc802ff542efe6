"""Share device memory between two processes through the driver's own interface.

torch's sharing of storages is not used. It counts references in files that a sandboxed process
would have to write, and hands out parts of its cache. Each segment is an allocation of its own,
exported as an IPC handle of 64 bytes. The exporter must outlive the importer's use.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from ..wire.tensors import Slot
from .segment import check_slot, dtype_of, span

GRANULE_BYTES = 2 * 2**20
"""Smaller allocations share a block, and a handle exports the whole block."""
HANDLE_BYTES = 64
LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """The C structure CUipcMemHandle."""

    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE_BYTES),)


class DriverError(RuntimeError):
    """A call of the driver failed."""


class Driver:
    """The calls of libcuda that torch does not wrap, on the primary context of a device."""

    def __init__(self, index: int):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.library.cuIpcOpenMemHandle_v2.argtypes = (
            ctypes.c_void_p,
            Handle,
            ctypes.c_uint,
        )
        self.context = ctypes.c_void_p()
        device = ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver. Raises DriverError with the driver's own words."""
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            words = text.value.decode() if text.value else f"error {code}"
            out_of_memory = "out of memory: " if code == 2 else ""
            raise DriverError(f"{out_of_memory}{name}: {words}")

    def enter(self) -> None:
        """Make the context current. Each thread has its own current context."""
        self.call("cuCtxSetCurrent", self.context)

    def allocate(self, num_bytes: int) -> int:
        """Return zeroed device memory."""
        self.enter()
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(num_bytes))
        self.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0), ctypes.c_size_t(num_bytes))
        # It returns before the memory is zero: on a busy GPU, after another process has written
        # there.
        self.call("cuCtxSynchronize")
        return pointer.value

    def free(self, pointer: int) -> None:
        self.enter()
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def export(self, pointer: int) -> bytes:
        """Return the handle with which another process opens an allocation."""
        self.enter()
        handle = Handle()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
        return bytes(handle.reserved)

    def open(self, handle: bytes) -> int:
        """Return the address, in this process, of another process's allocation."""
        self.enter()
        pointer = ctypes.c_uint64()
        record = Handle((ctypes.c_ubyte * HANDLE_BYTES)(*handle))
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), record, LAZY_PEER_ACCESS)
        return pointer.value

    def let_go(self, pointer: int) -> None:
        """Release another process's allocation in this process."""
        self.enter()
        self.call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))


@functools.cache
def driver(index: int) -> Driver:
    """Return the driver on one device, made once a process."""
    return Driver(index)


class DeviceSegment:
    """Shared memory of a fixed size on a GPU, with the methods of `segment.Segment`."""

    def __init__(self, pointer: int, num_bytes: int, index: int, owned: bool):
        self.pointer = pointer
        self.num_bytes = num_bytes
        self.index = index
        self.owned = owned
        self.whole: torch.Tensor | None = None

    @classmethod
    def create(cls, num_bytes: int, index: int) -> DeviceSegment:
        """Return new zeroed memory.

        Raises:
            DriverError: There is not enough of it.
        """
        granules = max(1, -(-num_bytes // GRANULE_BYTES))
        size_bytes = granules * GRANULE_BYTES
        return cls(driver(index).allocate(size_bytes), size_bytes, index, owned=True)

    @classmethod
    def open(cls, handle: bytes, num_bytes: int, index: int) -> DeviceSegment:
        """Open another process's segment."""
        return cls(driver(index).open(handle), num_bytes, index, owned=False)

    def address(self) -> tuple[str | None, list[int]]:
        """Return what another process opens it with: a handle, and no descriptor."""
        return driver(self.index).export(self.pointer).hex(), []

    def flat(self) -> torch.Tensor:
        """Return all of it as bytes."""
        if self.whole is None:
            self.whole = self.view(0, self.num_bytes)
        return self.whole

    def view(self, offset: int, num_bytes: int) -> torch.Tensor:
        """Return bytes of it as a tensor with a storage of its own."""
        return torch.as_tensor(
            Window(self.pointer + offset, num_bytes), device=f"cuda:{self.index}"
        )

    def tensor(self, slot: Slot) -> torch.Tensor:
        """Return a view of the slot's memory.

        Raises:
            ValueError: The slot is not inside the segment.
        """
        dtype, shape, stride = dtype_of(slot.dtype), slot.shape, slot.stride
        count = span(shape, stride)
        if count == 0:
            return torch.empty(shape, dtype=dtype, device=f"cuda:{self.index}")
        check_slot(slot, self.num_bytes)
        flat = self.view(slot.offset, count * dtype.itemsize).view(dtype)
        return flat.as_strided(shape, stride)

    def close(self) -> None:
        """Free it, only when the importers have closed it or ended. An importer releases it."""
        if self.pointer:
            one = driver(self.index)
            (one.free if self.owned else one.let_go)(self.pointer)
        self.pointer = 0


class Window:
    """A range of device memory, as the CUDA array interface describes it."""

    def __init__(self, pointer: int, num_bytes: int):
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }
