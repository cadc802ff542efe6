"""Link a place of a report to its lines on GitHub.

The address of the repository comes from the event or the checkout. The path comes from a report,
which may be hostile: it is quoted, and one that leaves the repository has no link.
"""

from __future__ import annotations

import re
from urllib.parse import quote

SHA = re.compile(r"[0-9a-f]{7,64}")


def source_link(
    address: str | None, sha: str | None, folder: str, path: str, first: int, last: int
) -> str | None:
    """Return the address of lines of a file at a commit; None where it is not known."""
    if address is None or sha is None or not SHA.fullmatch(sha):
        return None
    parts = [part for part in f"{folder}/{path}".split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        return None
    lines = f"L{first}" if first == last else f"L{first}-L{last}"
    return f"{address}/blob/{sha}/{quote('/'.join(parts))}#{lines}"
