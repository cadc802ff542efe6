"""Load one program and call it. A runner does not know which program it runs."""
