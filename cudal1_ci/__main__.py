"""`python -m cudal1_ci` is `cudal1-ci`."""

from cudal1_ci.cli import main

main(prog_name="cudal1-ci")
