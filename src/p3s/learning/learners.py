"""One learner's update, stacked over the population: N learners, one compiled program.

The update counter stays on the host and unbatched: whether this update includes a policy step is
static, so no learner ever computes a branch that it does not take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from p3s import keys
from p3s.algorithms import Algorithm
from p3s.learning.metrics import VALUE_LOSS, policy_loss_name, recorded
from p3s.types import EnvSpec, Guide, Learner, Params, Recorded, Transition

Coupling = Callable[[jax.Array, Params], jax.Array]
"""A learner's place and its policy -> a further term of that policy's loss."""


def init_learners(
    algorithm: Algorithm, key: jax.Array, spec: EnvSpec, num_learners: int, identical: bool
) -> Learner:
    """N stacked learners: all the same (Appendix H, line 1), or each with its own random start."""
    if identical:
        one = algorithm.init(jax.random.fold_in(key, 0), spec)
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], num_learners, axis=0), one)
    learner_keys = keys.per_learner(key, jnp.arange(num_learners))
    return jax.vmap(partial(algorithm.init, spec=spec))(learner_keys)


def update_learners(
    algorithm: Algorithm,
    learners: Learner,
    batches: Transition,
    guide: Guide,
    key: jax.Array,
    indices: jax.Array,
    with_policy: bool,
    own_fields: dict[str, jax.Array] | None = None,
    coupling: Coupling | None = None,
) -> tuple[Learner, Recorded]:
    """One update of each learner on its own minibatch.

    batches: (learners, batch, ...); guide.policy is shared, guide.weight is (learners,).
    indices: which learners of the population these are, (learners,).
    own_fields: hyper-parameters of which each learner has its own value, (learners,).
    coupling: what a policy's loss has of the others.
    """

    def update(
        learner: Learner,
        batch: Transition,
        weight: jax.Array,
        learner_key: jax.Array,
        own: dict[str, jax.Array],
        place: jax.Array,
    ) -> tuple[Learner, Recorded]:
        one = replace(algorithm, **own)
        value_key, policy_key = jax.random.split(learner_key)
        learner, told = one.value_step(learner, batch, value_key)
        metrics = recorded(told, VALUE_LOSS)
        if with_policy:
            term = None if coupling is None else partial(coupling, place)
            pull = Guide(guide.policy, weight, term)
            learner, told = one.policy_step(learner, batch, pull, policy_key)
            metrics |= recorded(told, policy_loss_name(algorithm))
        else:
            learner = one.between_policy_steps(learner, batch)
        return learner, metrics

    learner_keys = keys.per_learner(key, indices)
    places = jnp.arange(len(learner_keys))
    return jax.vmap(update)(learners, batches, guide.weight, learner_keys, own_fields or {}, places)


def act(
    algorithm: Algorithm,
    policies: Params,
    observations: jax.Array,
    key: jax.Array,
    indices: jax.Array,
    step: jax.Array,
    explore: bool,
    own_fields: dict[str, jax.Array] | None = None,
    envs_per_learner: int = 1,
) -> jax.Array:
    """The action of each policy in its own environment copies: (copies, observation) -> actions.

    indices: which learners these are, (learners,); their copies follow one another.
    """
    if envs_per_learner > 1:
        each = jnp.arange(envs_per_learner)
        indices = indices[:, None] * envs_per_learner + each
        observations = observations.reshape(*indices.shape, *observations.shape[1:])

    def act_one(
        policy: Params,
        observation: jax.Array,
        learner_key: jax.Array,
        past: dict[str, jax.Array],
        own: dict[str, jax.Array],
    ) -> jax.Array:
        one = replace(algorithm, **own)
        return one.act(policy, observation, learner_key, explore=explore, **past)

    def keys_of(any_step: jax.Array) -> jax.Array:
        step_key = jax.random.fold_in(key, any_step)
        drawn = keys.per_learner(step_key, indices.reshape(-1))
        return drawn.reshape(indices.shape)

    past = {}
    if explore and algorithm.noise_memory:
        steps = step - 1 - jnp.arange(algorithm.noise_memory, dtype=jnp.int32)
        past["past_keys"] = jax.vmap(keys_of, out_axes=indices.ndim)(steps)
    drawn = algorithm.noise_step(key, step) if explore else step
    acting = act_one if envs_per_learner == 1 else jax.vmap(act_one, (None, 0, 0, 0, None))
    actions = jax.vmap(acting)(policies, observations, keys_of(drawn), past, own_fields or {})
    return actions if envs_per_learner == 1 else actions.reshape(-1, *actions.shape[2:])


def distances(
    algorithm: Algorithm, policies: Params, other: Params, observations: jax.Array
) -> jax.Array:
    """Mean distance over a batch of each policy to one common policy, (learners,)."""
    return jax.vmap(lambda policy: algorithm.distance_between(policy, other, observations).mean())(
        policies
    )


def pairwise_distances(
    algorithm: Algorithm, policies: Params, others: Params, observations: jax.Array
) -> jax.Array:
    """Mean distance over a batch of each policy to its own counterpart, (learners,)."""
    return jax.vmap(
        lambda policy, other: algorithm.distance_between(policy, other, observations).mean()
    )(policies, others)
