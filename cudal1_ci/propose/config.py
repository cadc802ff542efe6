"""Configure what is proposed without a model."""

from __future__ import annotations

import difflib

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record


class PlaybookConfig(Record, frozen=True, kw_only=True):
    """Configure what is proposed without a model. None means: where the device suits."""

    skip: tuple[str, ...] = ()
    """Names of rewrites, wrappers or families to leave out."""
    compile: bool | None = None
    """Propose `torch.compile`, which costs seconds at the first call of every process. The
    default is yes on a GPU, and on a CPU if a C++ compiler is installed."""
    max_autotune: bool = False
    """Propose `torch.compile(mode="max-autotune-no-cudagraphs")`, which compiles for minutes."""
    cuda_graph: bool | None = None
    """Propose CUDA graphs for modules: of inference calls, and of training calls with their
    backward pass. Each combination of shapes needs its own memory. The default is yes on a GPU."""
    triton: bool | None = None
    """Propose kernels in Triton, which the file must keep. The default is yes on a GPU."""

    def __post_init__(self) -> None:
        if not self.skip:
            return
        # Half a second, which no verb that proposes nothing has to wait.
        from cudal1_ci.propose import launch_config
        from cudal1_ci.propose.recorded.table import RULES
        from cudal1_ci.propose.wrappers.table import COMPILED_REGION, WRAPPERS

        known = {name for one in RULES for name in (one.name, one.family)}
        known |= {name for one in WRAPPERS for name in (one.name, one.family)}
        known |= {launch_config.NAME, launch_config.FAMILY, COMPILED_REGION}
        for name in self.skip:
            if name not in known:
                near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
                fix = f"did you mean `{near[0]}`?" if near else "docs/playbook.md lists them"
                raise ConfigError(
                    f"playbook.skip: expected names of rewrites or families, got {name!r}; {fix}"
                )
