"""What policies that learn nothing earn: an idle one and a random one.

A study keeps their returns in references.json (study/references.py measures them). Scores mean
little without them: Ant pays for staying alive, so an idle one earns more than many that learn.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from p3s.report.formatting import score_text
from p3s.runs.checksums import parse_json
from p3s.runs.files import read_bytes

FILE = "references.json"


@dataclass(frozen=True)
class Reference:
    """The returns of policies that learn nothing on one environment."""

    environment: dict[str, Any]
    """Id, delay and arguments of the environment that they played."""
    returns: dict[str, list[float]]
    """Returns of the policies `idle` (Box actions only) and `random`, one per episode."""

    @property
    def means(self) -> dict[str, float]:
        """Mean return by policy."""
        return {policy: float(np.mean(returns)) for policy, returns in self.returns.items()}

    @property
    def best(self) -> str:
        """The policy with the highest mean."""
        return max(self.means, key=self.means.__getitem__)


def read_references(folder: Path) -> dict[str, Reference]:
    """The references of a study by environment; none if there is no file. ValueError if damaged."""
    file = folder / FILE
    if not file.is_file():
        return {}
    try:
        content = parse_json(read_bytes(file))
        found = {env: Reference(**entry) for env, entry in content.items()}
        for reference in found.values():
            played = list(reference.returns.values())
            if not played or not all(played) or not np.isfinite(np.concatenate(played)).all():
                raise ValueError("a return is missing")
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    return found


def references_text(references: dict[str, Reference]) -> str:
    """The text of the file."""
    entries = {env: asdict(reference) for env, reference in references.items()}
    return json.dumps(entries, indent=1, allow_nan=False) + "\n"


def earnings(reference: Reference) -> str:
    """What the policies earn: 'an idle policy earns 994, a random one -61.2'."""
    means = {policy: score_text(mean) for policy, mean in reference.means.items()}
    if "idle" in means:
        return f"an idle policy earns {means['idle']}, a random one {means['random']}"
    return f"a random policy earns {means['random']}"
