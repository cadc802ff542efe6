"""Configure how a trial is run. The defaults are for a CPU in CI: a few seconds a candidate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from cudal1_ci.records import Record, content_hash
from cudal1_ci.records.validation import at_least, positive
from cudal1_ci.stats.stopping import Settles

PROTOCOL = 29
"""Version of the verifier and the static rules. It is raised when a verdict or a time may
change, so that earlier evaluations are not reused."""

Precision = Literal["strict", "tf32", "kernelbench"]


class BuildsConfig(Record, frozen=True, kw_only=True):
    """Configure the builds of programs. They change how long a trial takes, but no verdict."""

    keep: bool = True
    """Keep builds for the next trial of the same text, and build ahead of the verifier."""
    folder: str | None = None
    """Folder of builds; None is `cudal1-ci/builds` in the user's cache folder."""
    max_bytes: int = 2 * 2**30
    """Size limit. Beyond it the least recently used builds are removed."""
    num_processes: int | None = None
    """Programs built at the same time, ahead of the verifier. None is one for each core; 0
    builds none ahead."""

    def __post_init__(self) -> None:
        at_least(self, "builds", 0, "max_bytes", "num_processes")

    def place(self) -> Path:
        """Return the folder: in XDG_CACHE_HOME where that is set, else in `~/.cache`."""
        if self.folder is not None:
            return Path(self.folder).expanduser().absolute()
        given = os.environ.get("XDG_CACHE_HOME", "")
        # The specification says that a relative path is ignored.
        caches = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        return caches / "cudal1-ci" / "builds"


class TrialConfig(Record, frozen=True, kw_only=True):
    """Limits of a trial. Evaluations are comparable only when all of them agree."""

    threads: int = 1
    """CPU threads of torch. One, as in torch.utils.benchmark: comparable between machines."""
    seed: int = 0
    """Seed of the verifier's inputs, noise and order. Runners never see it."""
    load_s: float = 120.0
    """Seconds that importing and constructing may take."""
    call_s: float = 60.0
    """Seconds that the calls of one request may take together."""
    batch_us: float | None = None
    """Least duration of a timed batch. None is 1000 on a CPU and 10000 on a GPU. The exchange of
    a batch costs several hundred microseconds there, with some variation."""
    max_calls: int | None = None
    """Most calls in a batch; None is 500 on a CPU and 400 on a GPU."""
    num_rounds: int | None = None
    """Pairs of batches in a repetition; None is 30 on a CPU and 6 on a GPU."""
    launch_s: float = 2.0
    """Seconds after which a repetition starts no further round, once it has three."""
    measure_s: float = 60.0
    """Seconds for the repetitions of one workload of one candidate."""
    num_launches: int | None = None
    """Repetitions of one workload of one candidate. None is as many as it takes to settle, two
    to twelve. Fewer give less certainty and are for training, which verifies thousands of
    candidates. With one repetition no process is started: the examined process is timed next to
    kept references."""
    half_width: float = 0.01
    """Relative half width of the interval at which measuring stops."""
    settles: Settles = "gain"
    """Question that repetitions answer. `gain`: is a candidate faster? Measuring a slower one
    ends soon. The other: does it differ either way? `compare` needs that for a change."""
    same_within: float | None = None
    """Relative difference that is none. Where repetitions answer for a difference, they also end
    once the whole interval lies within it."""
    weights: Literal["checkpoint", "seed", "shared"] = "checkpoint"
    """Comparison for a candidate whose state_dict differs from the reference's. `checkpoint`:
    there is none, as no checkpoint loads into it. `seed`: both constructors draw weights under
    one seed, as in KernelBench. `shared`: both load what they share, by key and shape, and draw
    the rest under one seed; what only one of them has is not compared. `compare` does that."""
    precision: Precision = "strict"
    """Precision that a candidate may lose. `strict`: only what the reference's own precision
    explains. `tf32`: what TF32 loses. `kernelbench`: what KernelBench's old tolerance of 1e-2
    does not see. A report names what is right only by such an allowance
    (sandboxed/verifier/precision.py)."""
    contract_s: float = 10.0
    """Seconds in which a candidate is used in ways that its workload does not show, after as many
    for the reference, once; 0 leaves that out. Lines that there is no time for are not tried."""
    memory_bytes: int | None = None
    """Device memory for a trial's tensors; None is four fifths of the free memory. On a GPU that
    several verifiers share, each has its share. While a verifier times, it may use what the
    others leave."""

    def __post_init__(self) -> None:
        at_least(self, "trial", 1, "threads", "max_calls", "num_rounds", "memory_bytes")
        at_least(self, "trial", 1, "num_launches")
        durations = ("load_s", "call_s", "batch_us", "launch_s", "measure_s")
        positive(self, "trial", *durations, "half_width", "same_within")
        at_least(self, "trial", 0, "contract_s")

    @property
    def keeps(self) -> bool:
        """Return whether candidates are timed by processes that already exist."""
        return self.num_launches == 1

    @property
    def policy(self) -> str:
        """Return a hash. An evaluation replaces a new trial only if their hashes agree."""
        return content_hash([PROTOCOL, self])
