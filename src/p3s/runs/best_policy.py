"""The best policy of a run so far: the one with the highest mean return at an evaluation.

A maximum over learners and evaluations is biased upwards. The number that is kept with the policy
is not: it is that of the fresh episodes, by which nothing was chosen.

It is kept as the bytes of its file, in checkpoints too: a resumed run continues with the policy
that was best at the checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.errors import UserError
from p3s.runs.files import remove, write_bytes

if TYPE_CHECKING:
    from p3s.policies.policy import Policy

LAST, BEST = "policy.safetensors", "policy-best.safetensors"
"""Files of a run: the champion at the last checkpoint, and the best policy so far."""


def policy_file(path: Path, last: bool = False) -> Path:
    """The file of a policy, or that of a run folder: the best one if there is one, or the last."""
    if not path.is_dir():
        return path
    if not (path / LAST).exists():
        raise UserError(f"{path} holds no policy yet: is it a run?")
    return path / (LAST if last or not (path / BEST).exists() else BEST)


class BestPolicy:
    """The policy with the highest score; the earlier one wins a tie."""

    def __init__(self) -> None:
        self.score = -np.inf
        self.file = b""

    def see(self, champion: Policy, evaluation: dict[str, Any]) -> None:
        """Take the champion of an evaluation if it did better than any before.

        On-policy algorithms are evaluated with their noise, but policies are used without it: there
        the noiseless episodes count.
        """
        kind = "deterministic_" if "deterministic_score" in evaluation else ""
        if evaluation[f"{kind}score"] <= self.score:
            return
        self.score = evaluation[f"{kind}score"]
        champion.about["run"]["champion_return"] = evaluation[f"{kind}champion_return"]
        self.file = champion.to_bytes()

    def save(self, folder: Path) -> None:
        """Write it into a run folder; before the first evaluation of a champion there is none."""
        if self.file:
            write_bytes(folder / BEST, self.file)
        else:
            remove(folder / BEST)

    def snapshot(self) -> dict[str, Any]:
        """Values from which `resume` continues."""
        if not self.file:
            return {}
        file = np.frombuffer(self.file, np.uint8)
        return {"file": file, "score": self.score}

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot; without one, as before the first evaluation."""
        if values:
            self.file = values["file"].tobytes()
            self.score = values["score"]
