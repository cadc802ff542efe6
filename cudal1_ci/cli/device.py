"""Which device a verb measures on."""

from __future__ import annotations

from cudal1_ci.config import Settings
from cudal1_ci.errors import UnsupportedError


def require_cpu(settings: Settings) -> None:
    """Refuse what cannot be measured here.

    Raises:
        UnsupportedError: Another device than the CPU is asked for.
    """
    if settings.device not in ("auto", "cpu"):
        raise UnsupportedError(
            f"device {settings.device}: this version measures on the CPU only; use --device cpu"
        )
