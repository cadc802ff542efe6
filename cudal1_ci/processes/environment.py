"""Select the variables of this process's environment that other processes may see. Pure.

listed(os.environ)             only names that a worker needs: for code that no person has read
without_secrets(os.environ)    all but what a job is given: for the project's own commands
"""

from __future__ import annotations

from collections.abc import Mapping

KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "TMPDIR",
    "CC",
    "CXX",
)
KEPT_PREFIXES = ("CUDA", "NVIDIA_", "TORCH", "PYTORCH_", "TRITON_", "OMP_", "MKL_", "KMP_")
OWN_PREFIX = "CUDAL1_CI_"
"""Of the command line's settings, which no worker reads."""
SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "AUTH")
JOB_PREFIXES = ("ACTIONS_", "GITHUB_", "GH_", "GIT_", "INPUT_", "RUNNER_")
"""GITHUB_ENV, GITHUB_PATH, GITHUB_OUTPUT and GITHUB_STATE are files that later steps read.
ACTIONS_* gives access to the service. INPUT_* may hold a token, GIT_* a header with one."""


def sounds_secret(name: str) -> bool:
    """Return whether a variable of this name may hold a secret."""
    return any(word in name.upper() for word in SECRET_WORDS)


def listed(
    environment: Mapping[str, str],
    names: tuple[str, ...] = (),
    prefixes: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return the variables that every worker needs and the named ones, without possible secrets."""
    return {
        name: value
        for name, value in environment.items()
        if (name in (*KEPT, *names) or name.startswith((*KEPT_PREFIXES, *prefixes)))
        and not name.startswith(OWN_PREFIX)
        and not sounds_secret(name)
    }


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return all variables but those of a job's steps and possible secrets."""
    return {
        name: value
        for name, value in environment.items()
        if not name.upper().startswith(JOB_PREFIXES) and not sounds_secret(name)
    }
