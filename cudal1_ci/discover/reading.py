"""Read files into facts, on all cores; parse a file only when its bytes may matter.

A large tree is divided among processes of this interpreter. Each process imports only this package,
takes a list of paths on stdin and returns facts on stdout. Files are read, and nothing of them is
run.

    facts, notices = read_tree(listing, config)
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cudal1_ci.discover import cuda_source
from cudal1_ci.discover.facts import FileFacts
from cudal1_ci.discover.files import DiscoveryConfig, Listing, SourceFile, unreadable
from cudal1_ci.discover.python_facts import is_generated, may_matter, possible_bases, python_facts
from cudal1_ci.errors import DiscoveryError
from cudal1_ci.records import Notice

# Starting a process costs as much as reading about one megabyte of source.
SHARE_BYTES = 1_500_000
MAX_PROCESSES = 8
# Trees up to this size (some 250,000 lines) are parsed in full, in about a second. Then every
# file that does not parse gets a notice. In larger trees, files that do not mention torch and
# the bodies of methods are skipped.
THOROUGH_BYTES = 8_000_000
CHILD_TIMEOUT_S = 600.0

_CHILD = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from cudal1_ci.discover.reading import answer; answer()"
)


class Share(msgspec.Struct, frozen=True, array_like=True):
    """List the files that one process reads."""

    root: str
    paths: tuple[str, ...]
    thorough: bool
    """Parse every Python file, and all of it."""
    launches: bool


def read_tree(listing: Listing, config: DiscoveryConfig) -> dict[str, FileFacts]:
    """Return the facts of every listed file by path; an unreadable file's facts hold a message."""
    total_bytes = sum(file.size_bytes for file in listing.files)
    return read_files(listing.root, listing.files, config, thorough=total_bytes <= THOROUGH_BYTES)


def read_files(
    root: Path,
    files: Iterable[SourceFile],
    config: DiscoveryConfig,
    *,
    thorough: bool,
    launches: bool = False,
) -> dict[str, FileFacts]:
    """Return the facts of files by path; `launches`: look for Triton launches in all of them."""
    shares = shared_out(list(files), config)
    requests = [
        Share(str(root), tuple(file.path for file in share), thorough, launches) for share in shares
    ]
    children = [(start(request), request) for request in requests[1:]]
    try:
        facts = read_share(requests[0]) if requests else []
        for child, request in children:
            facts.extend(collect(child, request))
    finally:
        for child, _ in children:
            if child.poll() is None:
                child.kill()
                child.wait()
    return {each.path: each for each in sorted(facts, key=lambda each: each.path)}


def shared_out(files: list[SourceFile], config: DiscoveryConfig) -> list[list[SourceFile]]:
    """Split files into shares of about the same size, one for each process."""
    total_bytes = sum(file.size_bytes for file in files)
    limit = config.num_processes or min(len(os.sched_getaffinity(0)), MAX_PROCESSES)
    num_shares = max(1, min(limit, total_bytes // SHARE_BYTES))
    shares: list[list[SourceFile]] = [[] for _ in range(num_shares)]
    sizes = [0] * num_shares
    for file in sorted(files, key=lambda file: -file.size_bytes):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(file)
        sizes[smallest] += file.size_bytes
    return [share for share in shares if share]


def start(request: Share) -> subprocess.Popen[bytes]:
    """Start a process on its share, isolated (-I -S) so that only our path is searched."""
    # From a file, not a pipe: a long list would wait there until the process has started.
    with tempfile.TemporaryFile() as written:
        written.write(msgspec.msgpack.encode(request))
        written.seek(0)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD, json.dumps(search_path())],
            stdin=written,
            stdout=subprocess.PIPE,
        )


def search_path() -> list[str]:
    """Return where a child finds this package and its needs; never the folder it starts in."""
    here = str(Path(__file__).resolve().parents[2])
    return [*(path for path in sys.path if path), here]


def collect(child: subprocess.Popen[bytes], request: Share) -> list[FileFacts]:
    """Return the facts that a process found. Raises: DiscoveryError when the process died."""
    try:
        output, _ = child.communicate(timeout=CHILD_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise DiscoveryError(
            f"{request.root}: reading {len(request.paths)} files took more than "
            f"{CHILD_TIMEOUT_S:.0f} s; narrow discover.include"
        ) from error
    if child.returncode != 0:
        raise DiscoveryError(
            f"{request.root}: a process that read {len(request.paths)} files ended with code "
            f"{child.returncode}; set discover.num-processes = 1 to see why"
        )
    return msgspec.msgpack.decode(output, type=list[FileFacts])


def answer() -> None:
    """Read a Share from stdin and write FileFacts to stdout; a child runs this."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Share)
    sys.stdout.buffer.write(msgspec.msgpack.encode(read_share(request)))


def read_share(request: Share) -> list[FileFacts]:
    """Read files one after the other."""
    with no_garbage_collection():
        return [
            read_file(request.root, path, thorough=request.thorough, launches=request.launches)
            for path in request.paths
        ]


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Turn off garbage collection, a fifth of the time: syntax trees have no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_file(root: str, path: str, *, thorough: bool, launches: bool) -> FileFacts:
    """Return the facts of one file, with a message when the file cannot be read."""
    try:
        source = Path(root, path).read_bytes()
    except OSError as error:
        return FileFacts(path, "", message=unreadable(error))
    return facts_of(path, source, thorough=thorough, launches=launches)


def facts_of(
    path: str, source: bytes, *, thorough: bool = True, launches: bool = False
) -> FileFacts:
    """Return the facts of a text that is, or would be, at `path`."""
    digest = hashlib.blake2b(source, digest_size=16).hexdigest()
    if is_generated(source):
        return FileFacts(path, digest)
    if path.endswith(".py"):
        if thorough or launches or may_matter(source):
            launches = launches or thorough
            return python_facts(path, source, digest, skim=not thorough, launches=launches)
        return FileFacts(path, digest, possible_bases=possible_bases(source))
    if not cuda_source.may_matter(source):
        return FileFacts(path, digest)
    found = cuda_source.cuda_source(source)
    return FileFacts(
        path,
        digest,
        is_parsed=True,
        cuda_kernels=tuple(found.kernels),
        host_functions=tuple(found.host_functions),
        cuda_bindings=tuple(found.bindings),
    )


def notices_of(facts: Iterable[FileFacts]) -> list[Notice]:
    """Return notices of files that could not be read."""
    return [Notice(path=each.path, message=each.message) for each in facts if each.message]
