"""`python -m cudal1_ci` is `cudal1-ci`."""

from cudal1_ci.unreadable import make_unreadable


def run() -> None:
    """Run the command line. Its environment, which may hold a key, is read by no other process."""
    make_unreadable()
    from cudal1_ci.cli import main

    main(prog_name="cudal1-ci")


if __name__ == "__main__":
    run()
