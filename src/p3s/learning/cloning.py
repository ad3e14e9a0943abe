"""Behavior cloning: a policy fitted to recorded actions before training (Pomerleau 1989).

    loss        mean over a minibatch of ½ ‖pi(s) - a‖², of noiseless actions in [-1, 1]
    optimizer   the algorithm's own for its policy, which training begins anew

Only what of the policy is trained and decides noiseless actions moves: of a Gaussian the mean.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s import keys
from p3s.algorithms.base import Algorithm
from p3s.algorithms.off_policy import ActorCritic, OffPolicy
from p3s.experience.data import Data
from p3s.experience.rows import unpack_transitions
from p3s.trees import trained
from p3s.types import EnvSpec, Params, Transition

CALL = 16
"""Updates that are compiled as one call."""


def cloning_loss(
    policy: Params, algorithm: Algorithm, batch: Transition
) -> tuple[jax.Array, tuple[Params, None]]:
    """mean ½ ‖pi(s) - a‖²."""
    action = algorithm.act(policy, batch.observation, jax.random.key(0), explore=False)
    squares = jnp.sum((action - batch.action) ** 2, axis=-1)
    return jnp.mean(squares) / 2, (policy, None)


def why_no_clone(spec: EnvSpec, policy: Params) -> str | None:
    """Why such a policy cannot be fitted to actions; None if it can."""
    if spec.discrete:
        return "the actions are discrete, and noiseless ones have no gradient"
    if len(jax.tree.leaves(trained(policy))) < len(jax.tree.leaves(policy)):
        return "its network has running statistics, which training moves"
    return None


def clone(
    algorithm: OffPolicy, policy: Params, data: Data, num_updates: int, seed: int
) -> tuple[Params, list[float]]:
    """The policy after so many updates on the data's actions; and the loss of each."""
    owner = algorithm.for_policy if isinstance(algorithm, ActorCritic) else algorithm

    @jax.jit
    def updates(policy: Params, state: Params, rows: jax.Array) -> tuple[Params, Params, jax.Array]:
        def update(carry: Any, rows: jax.Array) -> tuple[Any, jax.Array]:
            batch = unpack_transitions(data.spec, rows)
            loss_of = partial(cloning_loss, algorithm=algorithm, batch=batch)
            policy, state, loss, _ = owner.minimize(loss_of, *carry)
            return (policy, state), loss

        (policy, state), losses = jax.lax.scan(update, (policy, state), rows)
        return policy, state, losses

    state, losses = owner.start_optimizer(policy), list[float]()
    for first in range(0, num_updates, CALL):
        numbers = range(first, min(first + CALL, num_updates))
        rows = np.stack([_minibatch(data, algorithm.batch_size, seed, n) for n in numbers])
        policy, state, found = updates(policy, state, rows)
        losses += np.asarray(found).tolist()
    return policy, losses


def _minibatch(data: Data, size: int, seed: int, update: int) -> np.ndarray:
    return data.rows[keys.generator(seed, "clone", update).integers(0, len(data), size)]
