"""Name what a script lacks in a sandbox."""

from __future__ import annotations

NOT_DOWNLOADED = "/not-downloaded/"
"""Where the files of a hub would be."""
MISSING = {
    "needs a download": (
        *("Temporary failure in name resolution", "Name or service not known", "ConnectionError"),
        *("OfflineModeIsEnabled", "LocalEntryNotFoundError", "Network is unreachable"),
        *("Max retries exceeded", "URLError", "couldn't connect to", "outgoing traffic has been"),
        *("Can't load", "offline mode"),
    ),
    "needs a GPU": (
        *("not compiled with CUDA", "No CUDA GPUs", "NVIDIA driver", "CUDA is not available"),
        *("requires CUDA", "CUDA must be available", "0 active drivers", "must be a CUDA tensor"),
    ),
    "needs a package": ("No module named", "requires the", "is not installed", "pip install"),
    "needs several processes": ("init_process_group", "environment variable RANK"),
    "needs arguments": ("the following arguments are required",),
}
"""What a message says when something is missing."""


class NeedsError(Exception):
    """A script needs what the sandbox does not have."""


def missing(text: str) -> str:
    """Return what a message says is missing; empty where it says something else."""
    for what, words in MISSING.items():
        if any(word in text for word in words):
            return what
    return ""
