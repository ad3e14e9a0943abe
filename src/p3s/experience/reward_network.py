"""A reward for every step, learned from what is paid late: RRD (Ren et al. 2022).

    per update   draw bags (credit.py), with chances like their lengths; of each up to K = 64 steps
                 without replacement, 256 steps in all
                 one step of Adam on  mean over bags of (mean over steps of r(s, a, s - s') - R/T)²
    minibatches  are paid r of the network before that step

A bag of at most K steps counts as a whole, which is plain return decomposition. The network is one
for all learners, as the replay is: it belongs to no learner, is copied by none, and is in the run's
checkpoint. In a run of shards every replica of the replay learns the same one.

Differs from the authors' code in: bags that are shorter than an episode; episodes shorter than K
count as a whole, where they draw K of their steps with replacement; observations are normalized if
the algorithm's are; no variance term (their RRD-L(RD)).
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from p3s import keys
from p3s.envs.delay import Delay
from p3s.envs.masked_observations import split_mask
from p3s.experience.credit import Credit
from p3s.experience.normalization import Scaling, normalize_batches
from p3s.experience.rows import unpack_transitions, without_marks
from p3s.networks import MLP, Model, apply_network, init_model
from p3s.trees import flatten_names, unflatten_names
from p3s.types import EnvSpec, Params

MOST_STEPS = 64
"""Steps of a bag that an update looks at (K)."""
STEPS_IN_ALL = 256
"""Steps that an update looks at."""
LEARNING_RATE = 3e-4
NETWORK = MLP(
    hidden_sizes=(256, 256), activation="relu", layer_norm=False, initialization="xavier_joint"
)


class Fitted(NamedTuple):
    """The network and the state of its optimizer."""

    model: Model
    optimizer: Params


def start(key: jax.Array, spec: EnvSpec) -> Fitted:
    """A network with random parameters."""
    observation, action = spec.features.shape, (spec.action_size,)
    model: Any = init_model(NETWORK, key, [observation, action, observation], 1)
    return Fitted(model, optax.adam(LEARNING_RATE).init(model))


@partial(jax.jit, static_argnames="spec")
def predict(model: Model, spec: EnvSpec, rows: jax.Array, scaling: Scaling | None) -> jax.Array:
    """r(s, a, s - s') of rows, (..., columns) -> (...)."""
    steps = normalize_batches(unpack_transitions(spec, rows), scaling)
    shape = spec.features.shape
    seen, following = (
        split_mask(part, shape)[0] for part in (steps.observation, steps.next_observation)
    )
    action = steps.action
    if spec.discrete:
        action = jax.nn.one_hot(action, spec.action_size, dtype=jnp.float32)
    return apply_network(model, seen, action, seen - following)[..., 0]


def decomposition_loss(rewards: jax.Array, weights: jax.Array, credits: jax.Array) -> jax.Array:
    """Mean over bags of (Σ_k w_k r_k - R/T)², (bags, steps); RRD's eq. for L_Rand-RD over T².

    weights: 1/steps for the steps that were drawn of a bag, 0 for the places that are left over.
    """
    return jnp.mean((jnp.sum(weights * rewards, axis=-1) - credits) ** 2)


@partial(jax.jit, static_argnames="spec")
def fit(
    fitted: Fitted,
    spec: EnvSpec,
    rows: jax.Array,
    weights: jax.Array,
    credits: jax.Array,
    scaling: Scaling | None,
) -> Fitted:
    """One step of Adam; rows: (bags, steps, columns)."""

    def loss_of(model: Model) -> jax.Array:
        return decomposition_loss(predict(model, spec, rows, scaling), weights, credits)

    model: Any = fitted.model
    gradient = jax.grad(loss_of)(model)
    updates, optimizer = optax.adam(LEARNING_RATE).update(gradient, fitted.optimizer)
    model = optax.apply_updates(model, updates)
    return Fitted(model, optimizer)


class LearnedCredit(Credit):
    """Rewards of a network that is fitted to the credit of bags."""

    name = "rrd"
    needed_by: ClassVar[str] = "credit rrd"

    def __init__(
        self, capacity: int, delay: Delay | None, lag: int, spec: EnvSpec, seed: int
    ) -> None:
        super().__init__(capacity, delay, lag)
        self._spec, self._seed = spec, seed
        self._steps = min(MOST_STEPS, self._longest or MOST_STEPS)
        self._fitted = start(keys.key(seed, "reward_network"), spec)
        self._before = self._fitted.model

    def sample(self, update: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What an update is fitted to: places and weights, (bags, steps), and credits, (bags,)."""
        rng = keys.generator(self._seed, "credit", update)
        bags = self.draw_bags(rng, STEPS_IN_ALL // self._steps)
        places = np.zeros((len(bags), self._steps), np.int64)
        weights = np.zeros(places.shape, np.float32)
        for index, bag in enumerate(bags):
            some = rng.choice(bag, self._steps, replace=False) if len(bag) > self._steps else bag
            places[index, : len(some)], weights[index, : len(some)] = some, 1 / len(some)
        return places, weights, self.credits[places[:, 0]]

    def learn(self, update: int, rows: np.ndarray, scaling: Scaling | None) -> None:
        places, weights, credits = self.sample(update)
        drawn = without_marks(rows[places], self._spec)
        self._before = self._fitted.model
        self._fitted = fit(self._fitted, self._spec, drawn, weights, credits, scaling)

    def rewards(self, places: np.ndarray, rows: np.ndarray, scaling: Scaling | None) -> np.ndarray:
        drawn = without_marks(rows[places], self._spec)
        return np.asarray(predict(self._before, self._spec, drawn, scaling))

    def largest_reward(self, stored: float) -> float:
        return stored

    def snapshot(self) -> dict[str, Any]:
        leaves = jax.device_get(flatten_names(self._fitted))
        own = {f"reward_network/{name}": np.asarray(leaf) for name, leaf in leaves.items()}
        return {**super().snapshot(), **own}

    def resume(
        self, values: dict[str, Any], num_added: int, rows: np.ndarray, latest: dict[int, int]
    ) -> None:
        super().resume(values, num_added, rows, latest)
        prefix = "reward_network/"
        own = {name[len(prefix) :]: leaf for name, leaf in values.items() if prefix in name}
        arrays = unflatten_names(self._fitted, own, "the checkpoint")
        self._fitted = jax.tree.map(jnp.asarray, arrays)
