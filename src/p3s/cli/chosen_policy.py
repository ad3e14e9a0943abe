"""Which policy a command uses: a file, or the best or last one of a run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from p3s.cli.arguments import Flag, Wrappers, literal
from p3s.envs import EnvName, parse_name
from p3s.errors import UserError
from p3s.policies.hub import is_hub_name
from p3s.policies.policy import Policy
from p3s.policies.trained import load
from p3s.runs.best_policy import BEST


@dataclass(frozen=True, kw_only=True)
class ChosenPolicy:
    """A policy, from its file or from a run."""

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN|POLICY")]
    """Policy file, run folder, or a policy on the Hugging Face Hub: hub:USER/NAME."""
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
        if path.is_dir() or is_hub_name(path):
            print(_description(policy))
        return policy


@dataclass(frozen=True, kw_only=True)
class PlayedOn:
    """The environment that a policy plays on, if it is not the one it was trained on."""

    env: str | None = None
    """Another environment than the one it was trained on."""
    env_kwargs: dict[str, str] = field(default_factory=dict)
    """Arguments of the environment, as pairs: max_episode_steps 500."""
    wrappers: Wrappers = ()
    """Wrappers of the environment, the innermost first: module:Name, called with it, or with
    arguments 'module:Name(stack_size=4)'."""

    def environment(self, policy: Policy) -> EnvName | None:
        """The other environment, or None for the policy's own."""
        own, kwargs = policy.about.get("environment"), self.env_kwargs
        if self.env is None and not kwargs and not self.wrappers:
            return None
        if self.env is None and own is None:
            raise UserError("the policy does not name its environment: give one (--env)")
        if self.env is None:
            policy.check_modules()
        name = EnvName.from_json(own) if self.env is None else parse_name(self.env)
        given = {key: literal(value) for key, value in kwargs.items()}
        wrappers = self.wrappers or name.wrappers
        return replace(name, kwargs={**name.kwargs, **given}, wrappers=wrappers)


def _description(policy: Policy) -> str:
    run = policy.about.get("run")
    if run is None:
        return "policy: it does not say which run it is from"
    where = f"learner {run['learner']} at step {run['step']:,}"
    if "champion_return" not in run:
        return f"last policy: {where}"
    return f"best policy: {where}, where its fresh episodes returned {run['champion_return']:,.1f}"
