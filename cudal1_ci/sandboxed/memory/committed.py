"""Memory that a runner can write to and not map: an output that was written stays as it is.

A program may write to any memory that is mapped into its process, so an output that was copied to
shared memory can be made later. Here the runner gets a descriptor that can be written to alone.
Each write is a system call that copies, so no program computes right into the place of an output,
and none saves the copy, whose cost is measured and subtracted.
The memory belongs to the user who runs both. A program could change its mode and map it, so the
verifier checks for that after each round. Not covered: a program that maps and unmaps it within
one batch.
"""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

import torch

from ..wire.tensors import Slot
from .segment import Segment, dtype_of

COMMITTED = "committed"
"""Name of such memory."""
WRITE_ONLY = 0o200
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.pwrite.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_longlong)
LIBC.pwrite.restype = ctypes.c_ssize_t


class WrittenSegment(Segment):
    """The verifier's half: it reads what was written."""

    writer: int = -1

    @classmethod
    def create(cls, num_bytes: int) -> WrittenSegment:
        """Return memory whose pages exist, so that a write is a copy alone."""
        fd = os.memfd_create(COMMITTED, os.MFD_CLOEXEC)
        num_bytes = max(num_bytes, 1)
        os.posix_fallocate(fd, 0, num_bytes)
        made = cls(fd, num_bytes)
        made.flat().zero_()
        os.fchmod(fd, WRITE_ONLY)
        made.writer = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_CLOEXEC)
        return made

    def is_out_of_reach(self, pid: int) -> bool:
        """Return whether a process has mapped no such memory, and has not changed who may open
        it.

        Raises:
            OSError: The process has ended, or cannot be seen here.
        """
        if stat.S_IMODE(os.fstat(self.fd).st_mode) != WRITE_ONLY:
            return False
        return f"memfd:{COMMITTED}" not in Path(f"/proc/{pid}/maps").read_text(errors="replace")

    def address(self) -> tuple[str | None, list[int]]:
        return None, [self.writer]

    def close(self) -> None:
        super().close()
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1


class CommittedSegment:
    """A runner's half: it can only write."""

    def __init__(self, fd: int, num_bytes: int):
        self.fd = fd
        self.num_bytes = num_bytes
        self._write = LIBC.pwrite

    def tensor(self, slot: Slot) -> torch.Tensor:
        """Raise TypeError, as no view of it exists."""
        raise TypeError(f"the place of {slot} can only be written")

    def write(self, tensor: torch.Tensor, slot: Slot) -> None:
        """Write a tensor to its place, in the place's layout.

        Raises:
            OSError: The memory took less.
        """
        dtype = dtype_of(slot.dtype)
        if tensor.stride() != slot.stride or tensor.dtype != dtype or tensor.is_neg():
            copy = torch.empty_strided(slot.shape, slot.stride, dtype=dtype)
            tensor = copy.copy_(tensor.detach())
        size = tensor.numel() * dtype.itemsize
        if self._write(self.fd, tensor.data_ptr(), size, slot.offset) != size:
            raise OSError(ctypes.get_errno(), "an output could not be written")

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
