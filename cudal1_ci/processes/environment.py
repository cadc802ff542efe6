"""Select the variables of this process's environment that other processes may see. Pure.

listed(os.environ)             only names that a worker needs: for code that no person has read
without_secrets(os.environ)    all but what a job is given: for the project's own commands
"""

from __future__ import annotations

import re
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
SECRET_WORDS = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "KEY",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "WEBHOOK",
)
SECRET_PARTS = {"PASS", "PWD", "PAT", "DSN", "JWT", "CREDS"}
"""Words that count only between underscores: `DB_PASS`, and not `BYPASS` or `PATH`."""
NO_SECRETS = {"PWD", "OLDPWD"}
SECRET_VALUE = re.compile(
    r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|npm_|pypi-|xox[a-z]-)[\w-]{20,}"
    r"|\bsk-[\w-]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[\w-]{10,}\.[\w-]{10,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?i:password|passwd|pwd|secret|token|access_?key|account_?key|api_?key)\s*=\s*[^\s;&]"
)
"""What a secret looks like under whatever name: tokens of services, keys, connection strings."""
USER_OF_URL = re.compile(r"(?<=://)[^/?#\s@]*(?:@[^/?#\s@]*)*@")
JOB_PREFIXES = ("ACTIONS_", "GITHUB_", "GH_", "GIT_", "INPUT_", "RUNNER_")
"""GITHUB_ENV, GITHUB_PATH, GITHUB_OUTPUT and GITHUB_STATE are files that later steps read.
ACTIONS_* gives access to the service. INPUT_* may hold a token, GIT_* a header with one."""


def may_be_secret(name: str, value: str) -> bool:
    """Return whether a variable may hold a secret, by its name or by its value."""
    upper = name.upper()
    if upper not in NO_SECRETS and not SECRET_PARTS.isdisjoint(upper.split("_")):
        return True
    return any(word in upper for word in SECRET_WORDS) or bool(SECRET_VALUE.search(value))


def without_users(value: str) -> str:
    """Return a value whose URLs name no user and no password: of an index, a proxy, a database."""
    return USER_OF_URL.sub("", value)


def listed(
    environment: Mapping[str, str],
    names: tuple[str, ...] = (),
    prefixes: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return the variables that every worker needs and the named ones, without possible secrets."""
    return {
        name: without_users(value)
        for name, value in environment.items()
        if (name in (*KEPT, *names) or name.startswith((*KEPT_PREFIXES, *prefixes)))
        and not name.startswith(OWN_PREFIX)
        and not may_be_secret(name, without_users(value))
    }


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return all variables but those of a job's steps and possible secrets. URLs lose their user
    and password, so that an index or a proxy keeps its address."""
    return {
        name: without_users(value)
        for name, value in environment.items()
        if not name.upper().startswith(JOB_PREFIXES)
        and not may_be_secret(name, without_users(value))
    }
