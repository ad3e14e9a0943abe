"""Signs that learning goes wrong although every number is finite; each is said once.

    beta            the pull towards the best has reached a bound of its range
    no gradient     a policy has not moved by a bit in many policy steps: it is saturated
    values explode  targets of a value function are far beyond what the rewards can add up to

Nothing here changes a run.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from p3s.errors import note
from p3s.experience import Experience
from p3s.schemes import Scheme
from p3s.schemes.base import StepScheme
from p3s.trees import trained
from p3s.types import EnvSpec

FEWEST_POLICY_STEPS = 100
"""Policy steps in which the optimizer's momentum dies out, if there is no gradient."""
BEYOND = 10.0
"""How many times the largest possible return a target may be."""


class Health:
    """What was seen of a run's learners, and what was said about them."""

    def __init__(self, scheme: Scheme, spec: EnvSpec, experience: Experience) -> None:
        self._scheme, self._spec, self._experience = scheme, spec, experience
        self._said: set[str] = set()
        self._policies: list[np.ndarray] = []
        self._updates = 0
        """Updates before the policies were last looked at."""
        self._largest_return = 0.0

    def _say(self, sign: str, text: str) -> None:
        if sign not in self._said:
            self._said.add(sign)
            note(text)

    def see_review(self, review: dict[str, Any]) -> None:
        """Look at a row of the lineage."""
        beta, limit = review.get("beta"), getattr(self._scheme, "beta_limit", None)
        if beta is None or limit is None or 1 / limit < beta < limit or beta == 0:
            return
        bound = "upper" if beta >= limit else "lower"
        self._say(
            f"beta {bound}", f"β is {beta:.3g}, at its {bound} bound (--beta-limit {limit:g})"
        )

    def see_learners(self, state: Any, means: dict[str, list[float]], updates: int) -> None:
        """Look at the learners after so many updates, and at their mean metrics."""
        if not isinstance(self._scheme, StepScheme):
            return
        self._see_targets(means.get("target_mean", []))
        since = range(self._updates + 1, updates + 1)
        if sum(self._scheme.with_policy(update, 0, 0) for update in since) >= FEWEST_POLICY_STEPS:
            self._updates = updates
            self._see_policies(state)

    def _see_policies(self, state: Any) -> None:
        # Copies, since the next update writes over these arrays.
        leaves = jax.tree.leaves(trained(self._scheme.algorithm.policy_of(state.learners)))
        before, self._policies = self._policies, [np.array(leaf) for leaf in leaves]
        if not before:
            return
        for learner in range(self._scheme.num_trained):
            pairs = zip(self._policies, before, strict=True)
            if all(np.array_equal(now[learner], old[learner]) for now, old in pairs):
                self._say(
                    f"gradient {learner}",
                    f"the policy of learner {learner} has not moved in "
                    f"{FEWEST_POLICY_STEPS} policy steps or more: its gradient is zero "
                    "(saturated?)",
                )

    def _see_targets(self, targets: list[float]) -> None:
        for learner, target in enumerate(targets):
            if abs(target) > BEYOND * self._largest_return:
                self._largest_return = self._measure_largest_return()
            if abs(target) > BEYOND * self._largest_return:
                self._say(
                    f"values {learner}",
                    f"the values of learner {learner} explode: their targets are {target:.3g} in "
                    f"the mean, and rewards so far add up to {self._largest_return:.3g} at most",
                )

    def _measure_largest_return(self) -> float:
        """The most that the rewards in the replay, and entropy beside them, can add up to."""
        largest = self._experience.largest_reward()
        factor = getattr(self._scheme.algorithm, "discount_factor", 1.0)
        if largest is None or factor == 1:
            return np.inf
        return (largest + self._spec.action_size) / (1 - factor)
