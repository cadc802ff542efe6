"""Describe a target as a program that a runner can import: path, name and identity."""

from __future__ import annotations

from pathlib import Path

from cudal1_ci.discover.discovery import Discovery
from cudal1_ci.errors import DiscoveryError
from cudal1_ci.records import Target, TreeProgram


def reference_program(root: Path, target: Target, discovery: Discovery) -> TreeProgram:
    """Return the target's program in the checkout at `root`.

    Raises: DiscoveryError for what Python cannot import: a CUDA kernel, a kernel made inside of a
    function, a file that discovery did not read.
    """
    where = target.address
    if target.kind == "cuda_kernel":
        raise DiscoveryError(f"{where}: a CUDA kernel is not imported; verify one of its launchers")
    if "<locals>" in target.qualname:
        raise DiscoveryError(f"{where}: is made inside a function; move it to module level")
    place = discovery.modules.places.get(target.path)
    if place is None:
        raise DiscoveryError(f"{where}: the file is not among those found below {discovery.root}")
    return TreeProgram(
        root=str(root.resolve()),
        import_root=place.import_root,
        import_path=f"{place.module}:{target.qualname}",
        digest=discovery.imports.digest(target.path),
    )
