"""Find the templates: inside the wheel, or at the top of a checkout."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from cudal1_ci.errors import UnsupportedError


def templates_folder() -> Path:
    """Return the folder of templates; the installed package's comes first.

    Raises:
        UnsupportedError: There is none; the installation is broken.
    """
    spec = find_spec("cudal1_ci")
    if spec is None or spec.origin is None:
        raise UnsupportedError("cudal1_ci is not installed as files; install its wheel")
    package = Path(spec.origin).parent
    places = (package / "templates", package.parent / "templates")
    for place in places:
        if (place / "report.html.j2").is_file():
            return place
    raise UnsupportedError(
        f"expected templates in {places[0]} or {places[1]}, found none; install the wheel again"
    )
