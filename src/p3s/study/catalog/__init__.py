"""The studies that come with p3s: the paper's figures and tables, one TOML file each."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from p3s.errors import UserError, unknown
from p3s.study.definition import Study
from p3s.study.reading import parse

KEPT = Path("studies")
"""The folder in which studies are kept, each under its name."""


def catalog() -> dict[str, Traversable]:
    """The files of the studies that come with p3s, by name."""
    files = resources.files("p3s.study.catalog")
    return {
        entry.name.removesuffix(".toml"): entry
        for entry in sorted(files.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def find_study(source: str) -> Study:
    """A study, given its name in the catalog, its TOML file, or its folder."""
    path = Path(source)
    known = catalog()
    if source in known:
        return parse(known[source].read_text(encoding="utf-8"), f"{source}.toml", source)
    for folder in (path, KEPT / source):
        if folder.is_dir():
            return kept_study(folder)
    if path.suffix == ".toml":
        return _read(path)
    raise unknown("study", source, known)


def kept_study(folder: Path) -> Study:
    """The study kept in a folder."""
    if not (folder / "study.toml").is_file():
        raise UserError(f"{folder} is not a study: it has no study.toml")
    return _read(folder / "study.toml")


def _read(path: Path) -> Study:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
