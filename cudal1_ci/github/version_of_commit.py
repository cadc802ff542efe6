"""Give build programs the version of a commit, which they would ask git for.

A tree has no `.git`. setuptools_scm, hatch-vcs, pdm, Poetry's and uv's dynamic versions, pbr and
flit-scm read the version from a variable instead.

    version_variables(top, sha)["SETUPTOOLS_SCM_PRETEND_VERSION"]    # 1.2.1.dev4+g0123abcd
"""

from __future__ import annotations

import re
from pathlib import Path

from cudal1_ci.errors import DiscoveryError
from cudal1_ci.git import run_git

VARIABLES = (
    "SETUPTOOLS_SCM_PRETEND_VERSION",
    "VCS_VERSIONING_PRETEND_VERSION",
    "PDM_BUILD_SCM_VERSION",
    "POETRY_DYNAMIC_VERSIONING_BYPASS",
    "UV_DYNAMIC_VERSIONING_BYPASS",
    "PBR_VERSION",
)
DESCRIBED = re.compile(
    r"(?:.*?[-_/])?v?(?P<release>\d+(?:\.\d+)*)(?P<pre>(?:a|b|rc)\d+|\.?post\d+|\.?dev\d+)?"
    r"-(?P<distance>\d+)-g(?P<sha>[0-9a-f]+)"
)


def version_variables(top: Path, sha: str) -> dict[str, str]:
    """Return the variables that give a commit's version."""
    return dict.fromkeys(VARIABLES, version_of(top, sha))


def version_of(top: Path, sha: str) -> str:
    """Return the version as setuptools_scm guesses it: the tag, or the next one's development."""
    try:
        said = run_git(top, "describe", "--tags", "--long", "--match", "*[0-9]*", sha).strip()
    except DiscoveryError:
        said = ""  # no tag, or not in a clone of this depth
    match = DESCRIBED.fullmatch(said)
    if match is None:
        return f"0.1.dev0+g{sha[:8]}"
    if match["distance"] == "0":
        return match["release"] + (match["pre"] or "")
    first, _, last = match["release"].rpartition(".")
    following = (
        match["release"] if match["pre"] else f"{first}{'.' if first else ''}{int(last) + 1}"
    )
    return f"{following}.dev{match['distance']}+g{match['sha']}"
