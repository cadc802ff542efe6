"""Decide which settings of its process a candidate may change (runner/process_settings.py).

A change that the reference makes too is none. One by which a time could gain, or which lets code of
the program run outside of any call, is refused. Others are shown with both of their values, because
users who merge the candidate get them.
"""

from __future__ import annotations

from collections.abc import Sequence

REFUSED = (
    "gc.",
    "malloc.",
    "signal.",
    "sys.audithooks",
    "sys.switchinterval",
    "os.priority",
    "os.scheduler",
    "threading.profile",
    "threading.trace",
    "torch.autocast",
    "torch.dispatch",
    "torch.nn.",
    "torch.num_threads",
    "torch.operators",
    "torch.optim.",
    "torch.saved_tensor_hooks",
)
"""Beginnings of the names of settings that no candidate may change."""


def process_changes(
    ours: Sequence[tuple[str, str, str]], theirs: Sequence[tuple[str, str, str]]
) -> dict[str, tuple[str, str]]:
    """Return the settings that a candidate leaves otherwise than the reference does, with their
    values before it was imported and now."""
    same = {(name, now) for name, _, now in ours}
    return {name: (was, now) for name, was, now in theirs if (name, now) not in same}


def is_refused(name: str, *, is_patch: bool) -> bool:
    """Return whether no candidate may change a setting of the process: its time may gain by it,
    or code of the program runs outside of any call. A patch is also held to torch's own."""
    return name.startswith(REFUSED) or (is_patch and name.startswith("torch."))
