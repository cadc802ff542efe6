"""Decide which paths git would ignore, from nested `.gitignore` files, without git.

Reads the rules of the tree and, where the root is a folder of a larger repository, the rules of the
folders above it. Does not read `core.excludesFile` (a user's own setting) nor the index. So a
tracked file that matches a rule counts as ignored.

    rules = IgnoreRules.of(root)
    rules.ignores("build/x.py", is_folder=False)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec, RegexPattern

GITIGNORE = ".gitignore"


class Rules:
    """Hold the patterns of one `.gitignore`, matched relative to its folder."""

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        self._spec = GitIgnoreSpec.from_lines(lines, backend="simple")
        # Nearly every path matches no pattern. One alternation finds that in one step, where the
        # spec tries a hundred patterns in turn. Named groups would clash between patterns.
        sources = [
            re.sub(r"\(\?P<\w+>", "(?:", pattern.regex.pattern)
            for pattern in self._spec.patterns
            if isinstance(pattern, RegexPattern) and pattern.regex is not None
        ]
        self._any = re.compile("|".join(f"(?:{source})" for source in sources)) if sources else None

    def verdict(self, path: str) -> bool | None:
        """Return True for ignored, False for kept by a negation, None for no matching rule.

        A folder's path ends in a slash.
        """
        if self._any is None or self._any.match(path) is None:
            return None
        return self._spec.check_file(path).include


@dataclass(frozen=True)
class IgnoreRules:
    """Hold the rules of a folder and of those above it, innermost last."""

    levels: tuple[tuple[str, Rules], ...] = ()
    """Each with what to put before a path relative to the root, or how much of it to take off:
    `+src/` is a `.gitignore` above the root, `-docs/` one inside it."""

    @classmethod
    def of(cls, root: Path) -> IgnoreRules:
        """Return the rules at `root`: its own, and its repository's unless they ignore the root.

        A user who names an ignored folder (a package installed in `.venv`) means that folder.
        """
        above: list[tuple[str, Rules]] = []
        top = repository_top(root)
        if top is not None and top != root:
            chain = [folder for folder in root.parents if folder.is_relative_to(top)]
            for folder in reversed(chain):
                rules = read_rules(folder)
                if rules is not None:
                    above.append((f"+{root.relative_to(folder).as_posix()}/", rules))
            if cls(tuple(above)).ignores_root():
                above = []
        return cls(tuple(above)).inside(root, "")

    def inside(self, folder: Path, relative: str) -> IgnoreRules:
        """Return these rules with those of `folder`; `relative` is its path below the root."""
        rules = read_rules(folder)
        if rules is None:
            return self
        prefix = f"-{relative}/" if relative else "-"
        return IgnoreRules((*self.levels, (prefix, rules)))

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path relative to the root is ignored; its parents must not be."""
        path = f"{path}/" if is_folder else path
        for prefix, rules in reversed(self.levels):
            seen = prefix[1:] + path if prefix[0] == "+" else path[len(prefix) - 1 :]
            verdict = rules.verdict(seen)
            if verdict is not None:
                return verdict
        return False

    def ignores_root(self) -> bool:
        """Return whether the rules above the root ignore the root or a folder that holds it."""
        for prefix, rules in reversed(self.levels):
            parts = prefix[1:-1].split("/")
            for depth in range(len(parts), 0, -1):
                if rules.verdict("/".join(parts[:depth]) + "/"):
                    return True
        return False


def repository_top(folder: Path) -> Path | None:
    """Return the nearest folder at or above `folder` that holds `.git`."""
    return next((at for at in (folder, *folder.parents) if (at / ".git").exists()), None)


def read_rules(folder: Path) -> Rules | None:
    """Return the rules of a folder's `.gitignore`; None if it is absent or unreadable."""
    try:
        text = (folder / GITIGNORE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return Rules(text)
