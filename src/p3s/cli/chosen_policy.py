"""Which policy a command uses: a file, or the best or last one of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from p3s.cli.arguments import Flag
from p3s.errors import UserError
from p3s.policy import Policy
from p3s.population import load
from p3s.runs.best_policy import BEST


@dataclass(frozen=True, kw_only=True)
class ChosenPolicy:
    """A policy, from its file or from a run."""

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN|POLICY")]
    """Policy file, or run folder."""
    best: Flag = False
    """Of a run: the policy that did best at an evaluation. This is what is used unless you say
    --last; a run without evaluations has only the last one."""
    last: Flag = False
    """Of a run: the policy of the learner that the chief picked last."""
    trust: Flag = False
    """Import the modules that someone else's file or run names."""

    def load(self) -> Policy:
        """The policy; prints which one of a run it is."""
        if self.best and self.last:
            raise UserError("--best and --last exclude each other")
        path = self.policy
        if self.best and path.is_dir() and not (path / BEST).exists():
            raise UserError(f"{path} has no {BEST}: it was not evaluated, or p3s 0.1 wrote it")
        policy = load(path, last=self.last, trust=self.trust)
        if path.is_dir():
            print(_description(policy))
        return policy


def _description(policy: Policy) -> str:
    run = policy.about.get("run")
    if run is None:
        return "policy: it does not say which run it is from"
    where = f"learner {run['learner']} at step {run['step']:,}"
    if "champion_return" not in run:
        return f"last policy: {where}"
    return f"best policy: {where}, where its fresh episodes returned {run['champion_return']:,.1f}"
