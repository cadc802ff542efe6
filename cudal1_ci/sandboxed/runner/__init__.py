"""Load one program and call it. A runner is not told which program it runs."""
