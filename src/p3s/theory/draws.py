"""Random processes, policies and values of beta on which the theorem is checked.

Random policies almost never satisfy A1 in all states at once, so a third of the draws satisfy it
by construction: weighting every action by exp(kappa Q^old) raises E[Q^old] in every state.
Discounts cover [0, 0.99]. Half of them are below the limit sqrt(2) - 1 above which A1 and A2
exclude each other (docs/theory.md), so that Theorem 1 is not vacuous here.
"""

from __future__ import annotations

import numpy as np

from p3s.theory.lemmas import DISCOUNT_LIMIT
from p3s.theory.mdp import FiniteMDP, action_values, start_value
from p3s.theory.policies import normalize, tilt
from p3s.theory.update import GuidedUpdate, guided_update


def random_mdps(
    num_mdps: int,
    num_states: int,
    num_actions: int,
    rng: np.random.Generator,
    discount: float | np.ndarray | None = None,
) -> FiniteMDP:
    """Processes with Dirichlet transitions, from nearly deterministic to nearly uniform.

    Rewards are uniform in [-1, 1].
    """
    shape = (num_mdps, num_states, num_actions)
    sharpness = 10.0 ** rng.uniform(-1.0, 1.0, size=(num_mdps, 1, 1, 1))
    weights = rng.standard_gamma(np.broadcast_to(sharpness, (*shape, num_states))) + 1e-12
    if discount is None:
        low = DISCOUNT_LIMIT * rng.random(num_mdps) ** 2
        discount = np.where(rng.random(num_mdps) < 0.5, low, rng.uniform(0.0, 0.99, size=num_mdps))
    return FiniteMDP(
        transition=weights / weights.sum(axis=-1, keepdims=True),
        reward=rng.uniform(-1.0, 1.0, size=shape),
        discount=np.broadcast_to(np.asarray(discount, dtype=np.float64), (num_mdps,)),
        initial=np.full((num_mdps, num_states), 1.0 / num_states),
    )


def random_policies(mdp: FiniteMDP, rng: np.random.Generator) -> np.ndarray:
    """Softmax policies from nearly uniform to nearly deterministic."""
    scale = 10.0 ** rng.uniform(-1.0, 0.7, size=(mdp.num_mdps, 1, 1))
    return normalize(scale * rng.standard_normal(mdp.reward.shape))


def random_population(
    mdp: FiniteMDP, num_learners: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """From `num_learners` random policies: one that is not the best by return, and the best."""
    population = np.stack([random_policies(mdp, rng) for _ in range(num_learners)])
    order = np.argsort([start_value(mdp, log_policy) for log_policy in population], axis=0)
    each = np.arange(mdp.num_mdps)
    other = order[rng.integers(num_learners - 1, size=mdp.num_mdps), each]
    return population[other, each], population[order[-1], each]


def random_updates(
    num_mdps: int,
    num_states: int,
    num_actions: int,
    rng: np.random.Generator,
    discount: float | np.ndarray | None = None,
    construct_every: int = 3,
) -> GuidedUpdate:
    """Guided updates: every third satisfies A1 by construction, the others follow the best of four.

    With `construct_every` 0 all follow the best of four by return, as a chief would choose it.
    """
    mdp = random_mdps(num_mdps, num_states, num_actions, rng, discount)
    log_old, by_return = random_population(mdp, 4, rng)
    kappa = 10.0 ** rng.uniform(-1.0, 1.0, size=(num_mdps, 1, 1))
    improved = tilt(log_old, kappa * action_values(mdp, log_old))
    places = np.arange(num_mdps) % construct_every == 0 if construct_every else False
    constructed = np.broadcast_to(places, (num_mdps,))[:, None, None]
    beta = 10.0 ** rng.uniform(-2.0, 1.0, size=num_mdps)
    return guided_update(mdp, log_old, np.where(constructed, improved, by_return), beta)
