"""The best policy of a run so far: the one whose fresh episodes returned most.

It is kept as the bytes of its file, in checkpoints too: a resumed run continues with the policy
that was best at the checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.runs.files import remove, write_bytes

if TYPE_CHECKING:
    from p3s.policy import Policy

LAST, BEST = "policy.safetensors", "policy-best.safetensors"
"""Files of a run: the policy that the chief would pick at the last checkpoint, and the best one."""


class BestPolicy:
    """The policy with the highest return of the champion; the earlier one wins a tie."""

    def __init__(self) -> None:
        self.champion_return = -np.inf
        self.file = b""

    def see(self, champion: Policy | None, evaluation: dict[str, Any]) -> None:
        """Take the champion of an evaluation if it did better than any before.

        On-policy algorithms are evaluated with their noise, but policies are used without it: there
        the champion's noiseless episodes count.
        """
        if champion is None:
            return
        champion_return = evaluation["champion_return"]
        if "deterministic_returns" in evaluation:
            noiseless = evaluation["deterministic_returns"][evaluation["champion"]]
            champion_return = float(np.mean(noiseless))
        if champion_return <= self.champion_return:
            return
        champion.about["run"]["champion_return"] = champion_return
        self.champion_return, self.file = champion_return, champion.to_bytes()

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
        return {"file": file, "champion_return": self.champion_return}

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot; without one, as before the first evaluation."""
        if values:
            self.file = values["file"].tobytes()
            self.champion_return = values["champion_return"]
