"""The version of this commit, said alike everywhere: `python .ci/version.py [v0.3.0]`.

Exit code 1 if pyproject.toml and CITATION.cff differ, or a tag is not that version, or the
changelog has no section for a tagged one.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(tag: str | None) -> list[str]:
    """What does not fit."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = re.search(r"^version: *(\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    found = list[str]()
    if cited is None or cited[1].strip("\"'") != version:
        found.append(f"pyproject.toml says {version}, CITATION.cff {cited and cited[1]}")
    if tag is None:
        return found
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, the version {version}")
    changes, heading = (ROOT / "CHANGELOG.md").read_text(), rf"^## {re.escape(version)} \(\d"
    if re.search(heading, changes, re.MULTILINE) is None:
        found.append(f"CHANGELOG.md has no line '## {version} (date)'")
    return found


if __name__ == "__main__":
    for problem in problems(sys.argv[1] if len(sys.argv) > 1 else None):
        sys.exit(problem)
