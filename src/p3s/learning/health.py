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

Signs = dict[str, str]
"""What was seen: the name of a sign, and a line about it."""


class Health:
    """Says what was seen of a run."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._said: set[str] = set()

    def say(self, signs: Signs) -> None:
        """Tell the user of the signs that are new."""
        for sign, text in signs.items():
            if sign not in self._said:
                self._said.add(sign)
                note(text)

    def see_review(self, review: dict[str, Any]) -> None:
        """Look at a row of the lineage."""
        beta, limit = review.get("beta"), getattr(self._scheme, "beta_limit", None)
        if beta is None or limit is None or 1 / limit < beta < limit or beta == 0:
            return
        bound = "upper" if beta >= limit else "lower"
        text = f"β is {beta:.3g}, at its {bound} bound (--beta-limit {limit:g})"
        self.say({f"beta {bound}": text})


class Checkup:
    """Looks at learners, where they are: in the run itself or in a shard."""

    def __init__(self, scheme: Scheme, spec: EnvSpec, experience: Experience) -> None:
        self._scheme, self._spec, self._experience = scheme, spec, experience
        self._policies: list[np.ndarray] = []
        self._updates = 0
        """Updates before the policies were last looked at."""
        self._largest_return = 0.0

    def signs(self, state: Any, means: dict[str, list[float]], updates: int) -> Signs:
        """What is seen of these learners after this many updates; means: of their metrics."""
        if not isinstance(self._scheme, StepScheme):
            return {}
        learners = np.asarray(state.indices).tolist()
        signs = self._signs_of_targets(learners, means.get("target_mean", []))
        since = range(self._updates + 1, updates + 1)
        if sum(self._scheme.with_policy(update, 0, 0) for update in since) >= FEWEST_POLICY_STEPS:
            self._updates = updates
            signs |= self._signs_of_policies(learners, state)
        return signs

    def _signs_of_policies(self, learners: list[int], state: Any) -> Signs:
        # Copies, since the next update writes over these arrays.
        leaves = jax.tree.leaves(trained(self._scheme.algorithm.policy_of(state.learners)))
        before, self._policies = self._policies, [np.array(leaf) for leaf in leaves]
        signs: Signs = {}
        for place, learner in enumerate(learners if before else []):
            pairs = zip(self._policies, before, strict=True)
            if all(np.array_equal(now[place], old[place]) for now, old in pairs):
                signs[f"gradient {learner}"] = (
                    f"the policy of learner {learner} has not moved in "
                    f"{FEWEST_POLICY_STEPS} policy steps or more: its gradient is zero "
                    "(saturated?)"
                )
        return signs

    def _signs_of_targets(self, learners: list[int], targets: list[float]) -> Signs:
        signs: Signs = {}
        for learner, target in zip(learners, targets, strict=False):
            if abs(target) > BEYOND * self._largest_return:
                self._largest_return = self._measure_largest_return()
            if abs(target) > BEYOND * self._largest_return:
                signs[f"values {learner}"] = (
                    f"the values of learner {learner} explode: their targets are {target:.3g} in "
                    f"the mean, and rewards so far add up to {self._largest_return:.3g} at most"
                )
        return signs

    def _measure_largest_return(self) -> float:
        """The most that the rewards in the replay, with the entropy, can add up to."""
        largest = self._experience.largest_reward()
        factor = getattr(self._scheme.algorithm, "discount_factor", 1.0)
        if largest is None or factor == 1:
            return np.inf
        return (largest + self._spec.action_size) / (1 - factor)
