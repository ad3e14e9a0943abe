"""Resetting, Re (Section 4.2): the best policy is copied to all others every M' own steps.

    every step:   as in experience sharing
    every M' own steps, the chief
        b     <- the learner with the highest mean of its last E_r returns
        phi_i <- phi_b for all i

The text copies "the best learner's policy parameter": the value functions stay. It does not say
whether target policies and optimizer moments follow; `copied` names the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.fields.layers import Layer, Setting
from p3s.fields.types import Count
from p3s.schemes.base import Decision, PopulationState, StepScheme
from p3s.trees import pick
from p3s.types import EnvSpec, Learner, Params

REVIEW_PERIOD = {
    ("Ant", False): 2000,
    ("HalfCheetah", True): 10_000,
    ("Ant", True): 10_000,
    ("Hopper", True): 20_000,
    ("Walker2d", True): 20_000,
}


def review_period(setting: Setting) -> int:
    """M' of Re-TD3 in Appendix I, by environment and whether it is delayed."""
    return REVIEW_PERIOD.get(setting.task, Resetting.review_period)


@dataclass(frozen=True, kw_only=True)
class Resetting(StepScheme):
    """The best policy is copied to all other learners now and then."""

    name: ClassVar[str] = "resetting"
    fewest_learners: ClassVar[int] = 2
    presets: ClassVar[tuple[Layer, ...]] = (Layer("Appendix I", {"review_period": review_period}),)

    review_period: Count = 5000
    """Own steps of a learner between two copies (M')."""
    copied: Literal["policy", "policy_and_target", "policy_target_and_moments"] = "policy"
    """What the others take over from the best: its policy, its target policy too, or these and
    the moments of its policy's optimizer."""

    def init(self, key: jax.Array, spec: EnvSpec) -> PopulationState:
        state = super().init(key, spec)
        if self.copied != "policy" and "policy" not in state.learners.targets:
            raise UserError(f"{self.algorithm.name} has no target policy: choose --copied policy")
        return state

    def decide(
        self, report: dict[str, Any], recent_returns: np.ndarray, rng: np.random.Generator
    ) -> Decision:
        best = self.best(recent_returns)
        if best is None:
            return Decision({"best": None, "copied_to": []})
        others = [index for index in range(self.num_learners) if index != best]
        return Decision({"best": best, "copied_to": others}, (best,))

    def _copied(self, learners: Learner) -> dict[str, Params]:
        """What is copied, by name."""
        parts = {"policy": self.algorithm.policy_of(learners)}
        if self.copied != "policy":
            parts["target"] = learners.targets["policy"]
        if self.copied == "policy_target_and_moments":
            parts["moments"] = learners.optimizers["policy"]
        return parts

    def offer(self, state: PopulationState, index: int) -> Params:
        return pick(self._copied(state.learners), index)

    def apply(
        self, state: PopulationState, decision: Decision, offers: dict[int, Params]
    ) -> PopulationState:
        if not decision.sources:
            return state
        learners = state.learners
        parts = jax.tree.map(
            lambda leaf, all_of_them: jnp.broadcast_to(leaf, all_of_them.shape).copy(),
            offers[decision.sources[0]],
            self._copied(learners),
        )
        learners = self.algorithm.with_policy(learners, parts["policy"])
        if "target" in parts:
            targets = {**learners.targets, "policy": parts["target"]}
            learners = learners._replace(targets=targets)
        if "moments" in parts:
            optimizers = {**learners.optimizers, "policy": parts["moments"]}
            learners = learners._replace(optimizers=optimizers)
        return state._replace(learners=learners)
