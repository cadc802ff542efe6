"""Use a program in the ways that its users may, at the verifier's request.

The verifier derives the ways from the reference (verifier/contract/) and sends each to both
programs. This side only carries them out: it does not know what is expected.
"""

from .survey import surveyed
from .trial import tried

__all__ = ["surveyed", "tried"]
