"""Memory that a runner can write to and not map: an output that was written stays as it is.

A program may write to any memory that is mapped into its process, so an output that was copied to
shared memory can be made later. Here the runner gets a descriptor that can be written to alone.
Each write is a system call that copies, so no program computes right into the place of an output,
and none saves the copy, whose cost is measured and subtracted.
The memory belongs to the user who runs both, so a program could change its mode, open it again and
map it. The kernel notes each of these for the verifier, which asks after each round: a program that
also undoes them within a batch is seen.
"""

from __future__ import annotations

import ctypes
import os

import torch

from ..wire.tensors import Slot
from .segment import Segment, dtype_of

COMMITTED = "committed"
"""Name of such memory."""
WRITE_ONLY = 0o200
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.pwrite.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_longlong)
LIBC.pwrite.restype = ctypes.c_ssize_t
WRITE = LIBC.pwrite
CHANGED, OPENED = 0x4, 0x20
"""IN_ATTRIB and IN_OPEN in inotify(7)."""


class WrittenSegment(Segment):
    """The verifier's half: it reads what was written."""

    writer: int = -1
    watch: int = -1
    """What the kernel notes on who opens the memory, and on each change of its mode."""

    @classmethod
    def create(cls, num_bytes: int) -> WrittenSegment:
        """Return memory whose pages exist, so that a write is a copy alone.

        Raises:
            OSError: The kernel does not note who opens it.
        """
        fd = os.memfd_create(COMMITTED, os.MFD_CLOEXEC)
        num_bytes = max(num_bytes, 1)
        os.posix_fallocate(fd, 0, num_bytes)
        made = cls(fd, num_bytes)
        made.flat().zero_()
        path = f"/proc/self/fd/{fd}"
        made.watch = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        LIBC.inotify_add_watch(made.watch, os.fsencode(path), CHANGED | OPENED)
        made.writer = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        notes = [made.was_opened()]
        os.fchmod(fd, WRITE_ONLY)
        if not all([*notes, made.was_opened()]):
            made.close()
            raise OSError("inotify notes nothing (fs.inotify.max_user_instances?)")
        return made

    def was_opened(self) -> bool:
        """Return whether a process opened it, or changed who may, since the last time."""
        try:
            return bool(os.read(self.watch, 2**16))
        except OSError:  # there is nothing to read
            return False

    def address(self) -> tuple[str | None, list[int]]:
        return None, [self.writer]

    def close(self) -> None:
        super().close()
        for one in (self.writer, self.watch):
            if one >= 0:
                os.close(one)
        self.writer = self.watch = -1


class CommittedSegment:
    """A runner's half: it can only write."""

    def __init__(self, fd: int, num_bytes: int):
        self.fd = fd
        self.num_bytes = num_bytes

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
        if WRITE(self.fd, tensor.data_ptr(), size, slot.offset) != size:
            raise OSError(ctypes.get_errno(), "an output could not be written")

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
