"""Find what a repository itself runs its code with: the scripts of its pages, examples and tests.

Reads files and runs nothing.

    script       a program: cells that run in order in one namespace, or a whole file
    pages        blocks of Markdown and reStructuredText, examples of docstrings, notebooks
    continued    which cells of a page continue each other
    listing      all scripts of a tree, and its configuration files

    for script in scripts_of(Path(".")):
        print(script.kind, script.place, len(script.cells))
"""

from cudal1_ci.discover.scripts.listing import configurations_of, scripts_of
from cudal1_ci.discover.scripts.script import KINDS, Cell, Kind, Script

__all__ = ["KINDS", "Cell", "Kind", "Script", "configurations_of", "scripts_of"]
