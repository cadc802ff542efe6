"""Where the parts of a run run: README.md has the commands, placement.py who has which GPU."""
