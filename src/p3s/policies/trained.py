"""A trained policy: opened from its file, a run folder or the Hub; and what it earns."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from p3s.envs import Delay, EnvName, EnvSource
from p3s.errors import UserError
from p3s.evaluation import Evaluator
from p3s.policies.hub import fetch_policy, is_hub_name, parse_hub_name
from p3s.policies.policy import Policy
from p3s.runs import opening
from p3s.runs.best_policy import policy_file
from p3s.runs.records import read_config
from p3s.runs.trust import is_own_record, trusting

if TYPE_CHECKING:
    from p3s.population import Population


def load(path: str | Path, last: bool = False, trust: bool = False) -> Policy:
    """A policy from its file, or from a run folder: the best at an evaluation, or the last one.

    A run that has not been evaluated has only the last one.
    path: a name on the Hugging Face Hub, too: hub:USER/NAME, or hub:USER/NAME@REVISION.
    trust: import the modules that someone else's file or folder names.
    """
    if is_hub_name(path):
        return _load_from_hub(path, last, trust)
    path = Path(path)
    file = policy_file(path, last)
    with trusting(trust):
        own = False
        if path.is_dir() and (path / "config.json").exists():
            opening.load_config(path)  # imports the modules that the run needs
            own = is_own_record(read_config(path))
        policy = Policy.load(file)
    policy.trusted = own or trust
    return policy


def _load_from_hub(path: str | Path, last: bool, trust: bool) -> Policy:
    """The policy of a repository on the Hub."""
    name = parse_hub_name(path)
    if last:
        raise UserError(f"{name} holds one policy: leave last out")
    file = fetch_policy(name)
    try:
        policy = Policy.load(file)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    policy.trusted = trust
    return policy


def evaluate(
    policy: Policy | Population,
    env: EnvSource | EnvName | None = None,
    episodes: int = 10,
    seed: int = 0,
    delay: Delay | None = None,
    deterministic: bool = True,
) -> np.ndarray:
    """Returns of noiseless episodes, (episodes,); on the policy's own environment by default.

    deterministic: False plays with the policy's own noise.
    """
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, not {episodes}")
    own = None
    if not isinstance(policy, Policy):
        own, policy = policy.training.make, policy.policy
    own = own or policy.make_env
    make = own if env is None else partial(policy.make_env, env=env, delay=delay)
    example = make()
    if example.env_spec != policy.spec:
        raise UserError(f"the policy is for {policy.spec}, the environment has {example.env_spec}")
    example.close()
    evaluator = Evaluator(make, policy.algorithm, seed)
    stacked = jax.tree.map(lambda leaf: leaf[None], policy.params)
    returns = evaluator.play(stacked, episodes, 0, policy.scaling, not deterministic)[0]
    evaluator.close()
    return returns
