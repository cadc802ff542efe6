"""Lead links of the site that leave docs/ to the repository: mkdocs.yml names this file.

In the repository a page links to code by a relative path (`../cudal1_ci/errors.py`), which works on
GitHub and in a checkout. The site has no such files, so the hook replaces these links.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\]\(((?:\.\./)+[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the page with links to files outside of docs/ made absolute."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def absolute(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found.group(1)))
        if path.startswith("docs/"):
            return found.group(0)
        return f"]({config['repo_url']}/blob/main/{path})"

    return LINK.sub(absolute, markdown)
