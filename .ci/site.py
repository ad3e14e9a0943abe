"""What the site needs beside its pages: files of the repository's root as pages of their own.

A page with the line `--8<-- "CHANGELOG.md"` is that file. Its links begin at the root, where the
pages are in docs/; on the site they begin where the pages are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put files in the place of the lines that name them."""

    def text_of(line: re.Match[str]) -> str:
        return (ROOT / line[1]).read_text(encoding="utf-8").replace("](docs/", "](")

    return re.sub(r'^--8<-- "(.+)"$', text_of, markdown, flags=re.MULTILINE)
