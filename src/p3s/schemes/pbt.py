"""Population-based training (Jaderberg et al. 2017), the paper's point of reference.

    every step:   as in experience sharing, each learner with hyper-parameters of its own
    every M own steps, the chief ranks the learners by the mean of their last E_r returns
        each of the worst `quantile` takes over everything of a random one of the best `quantile`
        multiplies each of its hyper-parameters by `perturbation` or by its inverse
        and is judged again by the episodes that it finishes from then on

Hyper-parameters are traced values of the one compiled program: no change recompiles. A discount
is perturbed as the horizon 1/(1 - gamma), so that it stays below 1. Learners share one replay,
as all schemes here do; the original's workers do not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief, keys
from p3s.learning.learners import act, update_learners
from p3s.schemes.base import StepScheme
from p3s.types import EnvSpec, Learner, Metrics, Transition


class PBTState(NamedTuple):
    """The learners, and each one's own hyper-parameters."""

    learners: Learner
    own_fields: dict[str, jax.Array]


def perturb(name: str, value: Any, factor: Any) -> Any:
    """A hyper-parameter times a factor; of a discount, its horizon times the factor."""
    return 1 - (1 - value) / factor if name == "discount" else value * factor


def exploit(means: np.ndarray, quantile: float, draw: np.random.Generator) -> list[int]:
    """For each learner, whom it continues from: itself, or for the worst a random one of the best.

    A learner without a finished episode is left alone, and the others to themselves.
    """
    order = np.argsort(-means, kind="stable")[: np.count_nonzero(~np.isnan(means))]
    sources = list(range(len(means)))
    count = min(max(1, int(len(means) * quantile)), len(order) // 2)
    for loser in order[len(order) - count :]:
        sources[loser] = int(draw.choice(order[:count]))
    return sources


@dataclass(frozen=True, kw_only=True)
class PBT(StepScheme):
    """The worst learners take over the best ones' weights and perturbed hyper-parameters."""

    name: ClassVar[str] = "pbt"
    paper_name: ClassVar[str] = "PBT, population-based training (Section 2)"
    stacked: ClassVar[tuple[str, ...]] = ("learners", "own_fields")

    review_period: int = 2500
    """Own steps of a learner between two selections."""
    quantile: float = 0.25
    """Share of the population that is replaced, and that it is replaced from."""
    perturbation: float = 1.2
    """Factor by which a taken-over hyper-parameter is multiplied or divided."""
    perturbed: tuple[str, ...] = ("learning_rate", "exploration_noise", "discount")
    """Fields of the algorithm that each learner has a value of its own for."""

    def problem(self) -> str | None:
        if self.num_learners < 2:
            return f"scheme pbt needs two learners at least, not {self.num_learners}"
        if not 0 < self.quantile <= 0.5:
            return f"quantile must be above 0 and at most 0.5, not {self.quantile}"
        if self.perturbation <= 1:
            return f"perturbation must be above 1, not {self.perturbation}"
        known = {field.name for field in fields(self.algorithm) if field.type in ("float", float)}
        for name in self.perturbed:
            if name not in known:
                return f"{name} is no number of {self.algorithm.name}: {', '.join(sorted(known))}"
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> PBTState:
        """Every learner starts with values of its own, within one perturbation of the given."""
        own_fields = {}
        for index, name in enumerate(self.perturbed):
            draws = keys.per_learner(jax.random.fold_in(key, 1000 + index), self.num_learners)
            exponent = jax.vmap(lambda k: jax.random.uniform(k, (), jnp.float32, -1, 1))(draws)
            value = getattr(self.algorithm, name)
            own_fields[name] = perturb(name, value, self.perturbation**exponent)
        return PBTState(self.init_learners(key, spec), own_fields)

    def acting(self, state: PBTState) -> Any:
        return self.policies(state), state.own_fields

    def act(self, acting: Any, observations: jax.Array, key: jax.Array, step: jax.Array) -> Any:
        policies, own_fields = acting
        return act(self.algorithm, policies, observations, key, step, True, own_fields)

    def learn(
        self, state: PBTState, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[PBTState, Metrics]:
        learners, metrics = update_learners(
            self.algorithm,
            state.learners,
            batches,
            self.unguided(state),
            key,
            with_policy,
            state.own_fields,
        )
        return state._replace(learners=learners), metrics

    def review(
        self,
        state: PBTState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        draw: np.random.Generator,
    ) -> tuple[PBTState, dict[str, Any]]:
        best = self.best(recent_returns)
        copies: list[list[int]] = []
        if best is not None:
            sources = exploit(chief.mean_returns(recent_returns), self.quantile, draw)
            copies = [[s, i] for i, s in enumerate(sources) if s != i]
            taken = np.array(sources)
            learners = jax.tree.map(lambda leaf: leaf[taken], state.learners)
            own_fields = {
                name: self._explored(name, np.asarray(values)[taken], taken, draw)
                for name, values in state.own_fields.items()
            }
            state = PBTState(learners, own_fields)
        values = {name: np.asarray(own).tolist() for name, own in state.own_fields.items()}
        return state, {"best": best, "copies": copies, "own_fields": values}

    def outdated(self, review: dict[str, Any]) -> list[int]:
        """Returns of before say nothing of what a learner has taken over."""
        return [learner for _, learner in review["copies"]]

    def _explored(
        self, name: str, values: np.ndarray, sources: np.ndarray, draw: np.random.Generator
    ) -> jax.Array:
        """The values after the copy, perturbed for those who took over another's."""
        factors = self.perturbation ** draw.choice([-1.0, 1.0], size=len(values))
        moved = sources != np.arange(len(values))
        explored = np.where(moved, perturb(name, values, factors), values)
        return jnp.asarray(explored, jnp.float32)
