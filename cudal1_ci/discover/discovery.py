"""Run discovery in order: list, read, resolve.

Reading takes rounds. The first round reads the files that mention torch. The second reads the files
that import a Triton kernel, for its launches. Further rounds read files that derive a class from a
Module that was found, until none is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cudal1_ci.discover.cuda_targets import cuda_targets
from cudal1_ci.discover.facts import FileFacts
from cudal1_ci.discover.files import DiscoveryConfig, Listing, source_files
from cudal1_ci.discover.import_graph import ImportGraph
from cudal1_ci.discover.imports import ModuleIndex
from cudal1_ci.discover.python_targets import (
    ClassTable,
    function_targets,
    module_targets,
    triton_targets,
)
from cudal1_ci.discover.reading import (
    no_garbage_collection,
    notices_of,
    read_files,
    read_tree,
)
from cudal1_ci.discover.torch_names import WELL_KNOWN_BASES
from cudal1_ci.records import Notice, Target


@dataclass(frozen=True)
class Discovery:
    """Hold the targets and notices of a tree, and the facts that later steps need."""

    root: Path
    config: DiscoveryConfig
    targets: tuple[Target, ...]
    """In order of path and line."""
    notices: tuple[Notice, ...]
    """Files and folders that could not be read, and why."""
    facts: Mapping[str, FileFacts]
    modules: ModuleIndex
    imports: ImportGraph


def discover(root: Path, config: DiscoveryConfig | None = None) -> Discovery:
    """Find the targets below `root`. Raises: DiscoveryError when it is not a readable folder."""
    config = config or DiscoveryConfig()
    listing = source_files(root, config)
    with no_garbage_collection():
        facts = read_tree(listing, config)
        facts = read_launchers(listing, facts, config)
        facts, table = read_derived(listing, facts, config)
        targets = targets_of(facts, table)
    notices = [*listing.notices, *notices_of(facts.values())]
    return Discovery(
        root=listing.root,
        config=config,
        targets=targets,
        notices=tuple(sorted(notices, key=lambda notice: notice.path)),
        facts=facts,
        modules=table.modules,
        imports=ImportGraph(listing.root, table.modules),
    )


def targets_of(facts: Mapping[str, FileFacts], table: ClassTable) -> tuple[Target, ...]:
    """Return each target in a tree's facts once, in order of path and line."""
    found = [
        *module_targets(table),
        *function_targets(facts),
        *triton_targets(facts, table.modules),
        *cuda_targets(facts),
    ]
    # `if HAS_TRITON: def f ... else: def f ...`: one name, one target, the first.
    unique: dict[tuple[str, str, str], Target] = {}
    for target in sorted(found, key=lambda target: (target.path, target.first_line)):
        unique.setdefault((target.path, target.qualname, target.kind), target)
    return tuple(unique.values())


def read_launchers(
    listing: Listing, facts: dict[str, FileFacts], config: DiscoveryConfig
) -> dict[str, FileFacts]:
    """Read again, for launches, the files that import a Triton kernel without naming Triton."""
    kernels = {each.qualname for file in facts.values() for each in file.triton_kernels}
    if not kernels:
        return facts
    # `from pkg import ops` and then `ops.kernel[grid](...)`; `import kernel as exported`.
    kernels |= {PurePosixPath(path).stem for path, file in facts.items() if file.triton_kernels}
    kernels |= {
        name
        for file in facts.values()
        for name, found in file.bindings.items()
        if any(binding.module and binding.name in kernels for binding in found)
    }
    importers = {
        path
        for path, file in facts.items()
        if not file.launches
        and not file.triton_kernels
        and any(
            binding.module and binding.name in kernels
            for found in file.bindings.values()
            for binding in found
        )
    }
    return {**facts, **read_again(listing, importers, config)}


def read_derived(
    listing: Listing, facts: dict[str, FileFacts], config: DiscoveryConfig
) -> tuple[dict[str, FileFacts], ClassTable]:
    """Read skipped files that derive from a Module, until there are none left."""
    while True:
        table = ClassTable.of(facts, ModuleIndex.of(listing.root, facts))
        # A file that does not parse is no longer possible: it is not read again.
        waiting = [each for each in facts.values() if each.possible_bases and not each.is_parsed]
        names = WELL_KNOWN_BASES | {
            key[1].rpartition(".")[2] for key in table.classes if waiting and table.is_module(key)
        }
        found = {each.path for each in waiting if not names.isdisjoint(each.possible_bases)}
        if not found:
            return facts, table
        facts = {**facts, **read_again(listing, found, config)}


def read_again(listing: Listing, paths: set[str], config: DiscoveryConfig) -> dict[str, FileFacts]:
    """Read all facts of some files."""
    files = [file for file in listing.files if file.path in paths]
    return read_files(listing.root, files, config, thorough=True, launches=True)
