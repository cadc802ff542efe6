"""Write log lines that GitHub's runner reads as commands.

workflow_command("error", "pyproject.toml: expected a table")    # ::error::pyproject.toml: ...
"""

from __future__ import annotations


def workflow_command(name: str, text: str) -> str:
    """Format one command with any text; none of the text's lines can be a command by itself."""
    data = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{name}::{data}"
