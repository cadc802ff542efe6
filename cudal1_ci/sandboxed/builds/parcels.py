"""What a program has built on one machine, for the same program on another one.

A parcel is a tar file of regular files and folders; links, and whatever else a program may have
left, stay behind. Files keep their times to the nanosecond, by which ninja knows what is built, so
that there is nothing left to do where the folder has the same path. What is in one is the
program's word, as in the folder that it comes from, and goes into that program's own folder alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import tarfile
from pathlib import Path, PurePosixPath

from .build_keys import files_of
from .folders import remove

MAX_BYTES = 128 * 2**20
"""Of the files."""
MAX_PACKED_BYTES = 32 * 2**20
"""Half as much again as text still fits into a message (channel.py)."""
MAX_FILES = 20_000
LEVEL = 1
"""Of compression, which is to take less time than the network."""
NS = 10**9


def pack(products: Path) -> bytes | None:
    """What is in a folder; None where that is nothing, or too much, or cannot be read."""
    target = io.BytesIO()
    num_bytes = num_files = 0
    try:
        with tarfile.open(fileobj=target, mode="w:gz", compresslevel=LEVEL) as parcel:
            for path in files_of(products):
                with os.fdopen(
                    os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb"
                ) as file:
                    found = os.fstat(file.fileno())
                    num_bytes, num_files = num_bytes + found.st_size, num_files + 1
                    is_too_much = num_bytes > MAX_BYTES or num_files > MAX_FILES
                    if is_too_much or target.tell() > MAX_PACKED_BYTES:
                        return None
                    if not stat.S_ISREG(found.st_mode):
                        continue
                    entry = tarfile.TarInfo(str(path.relative_to(products)))
                    entry.size, entry.mode = found.st_size, found.st_mode & 0o700
                    # As text it goes into the file as it is; as a number it would be a float.
                    entry.pax_headers = {"mtime": as_seconds(found.st_mtime_ns)}
                    parcel.addfile(entry, file)
    except (OSError, RecursionError, tarfile.TarError, UnicodeError):
        return None
    packed = target.getvalue()
    return packed if num_files and len(packed) <= MAX_PACKED_BYTES else None


def unpack(packed: bytes, products: Path) -> bool:
    """Put it into a folder that holds no file, wholly or not at all. Whether that was done."""
    arriving = products.with_name(f"{products.name}.arriving")
    remove(arriving)
    try:
        arriving.mkdir(mode=0o700)
        extract(packed, arriving)
        remove(products)  # folders with nothing in them
        arriving.rename(products)
    except (OSError, EOFError, ValueError, tarfile.TarError):
        remove(arriving)
        with contextlib.suppress(OSError):
            products.mkdir(mode=0o700, exist_ok=True)
        return False
    return True


def extract(packed: bytes, folder: Path) -> None:
    """Raises OSError, ValueError or TarError for what `pack` does not make."""
    num_bytes = num_files = 0
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as parcel:
        for entry in parcel:
            num_bytes, num_files = num_bytes + entry.size, num_files + 1
            name = PurePosixPath(entry.name)
            is_inside = not name.is_absolute() and ".." not in name.parts
            is_too_much = num_bytes > MAX_BYTES or num_files > MAX_FILES
            file = parcel.extractfile(entry) if entry.isreg() else None
            if file is None or not is_inside or is_too_much:
                raise ValueError(f"{entry.name}: not what is in a parcel")
            path = folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("xb") as target:
                shutil.copyfileobj(file, target)
            path.chmod(0o600 | (entry.mode & 0o100))
            written_ns = as_ns(entry.pax_headers.get("mtime", "0"))
            os.utime(path, ns=(written_ns, written_ns))


def as_seconds(time_ns: int) -> str:
    """All digits of it."""
    return f"{time_ns // NS}.{time_ns % NS:09d}"


def as_ns(seconds: str) -> int:
    """Raises ValueError."""
    whole, _, part = seconds.partition(".")
    return int(whole) * NS + int(part[:9].ljust(9, "0"))
