"""Find targets in a source tree, and how each can be called, by reading text alone.

Knows which files are the repository's own (`files`), what each says (`facts`, read by `reading`),
what names mean across files (`imports`), and which definitions are worth making faster
(`python_targets`, `cuda_targets`); which of them a change touches (`changed`) and how they are
imported (`programs`). Imports nothing of the tree, runs nothing, and needs no torch.

    discovery = discover(Path("."), DiscoveryConfig())
    discovery.targets[0].qualname
"""

from __future__ import annotations

from cudal1_ci.discover.discovery import Discovery, discover
from cudal1_ci.discover.files import DiscoveryConfig
from cudal1_ci.discover.programs import reference_program

__all__ = ["Discovery", "DiscoveryConfig", "discover", "reference_program"]
