"""How a trial is run. The defaults are for a CPU in CI: a few seconds a candidate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from cudal1_ci.records import Record, content_hash
from cudal1_ci.records.validation import at_least, positive
from cudal1_ci.stats.stopping import Settles

PROTOCOL = 19
"""Of the judge and the static rules. Raised when a verdict or a time may come out differently, so
that evaluations from before are not re-used."""

Precision = Literal["strict", "tf32", "kernelbench"]


class BuildsConfig(Record, frozen=True, kw_only=True):
    """What programs compile. It changes how long a trial takes and no verdict."""

    keep: bool = True
    """Keep it for the next trial of the same text, and build ahead of the judge."""
    folder: str | None = None
    """Where; None is `cudal1-ci/builds` in the user's cache folder."""
    max_bytes: int = 2 * 2**30
    """Beyond it what was not used for longest is removed."""
    num_processes: int | None = None
    """Programs built at once, ahead of the judge; None is one for each core, 0 is not at all."""

    def __post_init__(self) -> None:
        at_least(self, "builds", 0, "max_bytes", "num_processes")

    def place(self) -> Path:
        """The folder: XDG_CACHE_HOME, where it is set, else `~/.cache`."""
        if self.folder is not None:
            return Path(self.folder).expanduser().absolute()
        given = os.environ.get("XDG_CACHE_HOME", "")
        # The specification has it: a relative path is to be ignored.
        caches = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        return caches / "cudal1-ci" / "builds"


class TrialConfig(Record, frozen=True, kw_only=True):
    """Limits of a trial. All of it is part of what makes evaluations comparable."""

    threads: int = 1
    """CPU threads of torch. One, as in torch.utils.benchmark: comparable between machines."""
    seed: int = 0
    """Of the judge's inputs, noise and order; runners never see it."""
    load_s: float = 120.0
    """Seconds that importing and constructing may take."""
    call_s: float = 60.0
    """Seconds that the calls of one request may take together."""
    batch_us: float | None = None
    """A timed batch lasts at least this long; None is 2500 on a CPU and 10000 on a GPU, where the
    exchange of a batch costs some hundred, more or less, and its calls are more even."""
    max_calls: int | None = None
    """Calls in a batch at the most; None is 200 on a CPU and 400 on a GPU."""
    num_rounds: int | None = None
    """Pairs of batches in a launch; None is 12 on a CPU and 6 on a GPU."""
    launch_s: float = 2.0
    """Seconds after which a launch stops making rounds, once it has three."""
    measure_s: float = 60.0
    """Seconds for the launches of one workload of one candidate."""
    num_launches: int | None = None
    """Of one workload of one candidate; None is as many as it takes to settle, five at the least.
    Fewer say less of each, and are for training, which judges thousands. A single one starts no
    process: the one that was examined is timed beside references that are kept."""
    half_width: float = 0.01
    """Relative half width of the interval at which measuring stops."""
    settles: Settles = "gain"
    """What launches are made for: whether a candidate is faster, so that one that is not is soon
    done with, or whether it differs either way, as `compare` asks of a change."""
    weights: Literal["checkpoint", "seed"] = "checkpoint"
    """What a candidate is compared with that has another state_dict than the reference: nothing, as
    no checkpoint loads into it; or the weights that both constructors draw under one seed, as
    KernelBench does."""
    precision: Precision = "strict"
    """What a candidate may lose: nothing, beyond what the reference's own precision explains; what
    TF32 loses, or what KernelBench's old tolerance of 1e-2 does not see. What is right by that
    alone is told (sandboxed/verifier/precision.py)."""
    memory_bytes: int | None = None
    """Of the device for a trial's tensors; None is four fifths of what is free. Of a GPU that
    several judges share each has its share, and while it times, what the others leave."""

    def __post_init__(self) -> None:
        at_least(self, "trial", 1, "threads", "max_calls", "num_rounds", "memory_bytes")
        at_least(self, "trial", 1, "num_launches")
        durations = ("load_s", "call_s", "batch_us", "launch_s", "measure_s")
        positive(self, "trial", *durations, "half_width")

    @property
    def keeps(self) -> bool:
        """Whether candidates are timed by processes that are there."""
        return self.num_launches == 1

    @property
    def policy(self) -> str:
        """What must agree for an evaluation to stand in for a new trial."""
        return content_hash([PROTOCOL, self])
