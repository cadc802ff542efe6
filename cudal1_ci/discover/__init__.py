"""Find targets in a source tree, and how each can be called, by reading text alone.

`files` lists the repository's own files. `reading` turns each file into `facts`. `imports` resolves
names across files. `python_targets` and `cuda_targets` choose the definitions that are worth making
faster. `changed` selects the targets that a change touches. `programs` says how a target is
imported. The package imports nothing of the tree, runs nothing, and needs no torch.

    discovery = discover(Path("."), DiscoveryConfig())
    discovery.targets[0].qualname
"""

from __future__ import annotations

from cudal1_ci.discover.discovery import Discovery, discover
from cudal1_ci.discover.files import DiscoveryConfig
from cudal1_ci.discover.programs import reference_program

__all__ = ["Discovery", "DiscoveryConfig", "discover", "reference_program"]
