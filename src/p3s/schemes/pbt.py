"""Population-based training (Jaderberg et al. 2017), the paper's point of reference.

    every step:   as in experience sharing, each learner with its own hyper-parameters
    every M own steps, the chief ranks the learners by the mean of their last E_r returns
        each of the worst `quantile` copies everything of a random one of the best `quantile`,
        multiplies each of its hyper-parameters by `perturbation` or by its inverse,
        and is judged by the episodes that it finishes from then on

Hyper-parameters are traced values of the one compiled program: no change recompiles. A discount
factor is perturbed as the horizon 1/(1 - gamma), so that it stays below 1, and Adam's momentum
likewise. Learners share one replay, as in all schemes here; the original's workers do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief, keys
from p3s.errors import UserError
from p3s.fields.layers import Layer, Setting
from p3s.fields.types import Bounds, Count
from p3s.schemes.base import Decision, StepScheme
from p3s.trees import pick, put
from p3s.types import EnvSpec, Learner, Params, Recorded, Transition

WITH_HORIZON = ("discount_factor", "adam_momentum")


class PBTState(NamedTuple):
    """The learners and their own hyper-parameters."""

    learners: Learner
    indices: jax.Array
    own_fields: dict[str, jax.Array]


def perturb(name: str, value: Any, factor: Any) -> Any:
    """A hyper-parameter times a factor; for those of a horizon, the horizon times the factor."""
    return 1 - (1 - value) / factor if name in WITH_HORIZON else value * factor


def exploit(means: np.ndarray, quantile: float, rng: np.random.Generator) -> list[int]:
    """For each learner, whom it continues from: itself, or for the worst a random one of the best.

    A learner without a finished episode is left alone, and the others to themselves.
    """
    order = np.argsort(-means, kind="stable")[: np.count_nonzero(~np.isnan(means))]
    sources = list(range(len(means)))
    count = min(max(1, int(len(means) * quantile)), len(order) // 2)
    for loser in order[len(order) - count :]:
        sources[loser] = int(rng.choice(order[:count]))
    return sources


def perturbed_of(setting: Setting) -> tuple[str, ...]:
    """The fields that learners differ in by default, as far as the algorithm has them."""
    return tuple(name for name in WithOwnFields.perturbed if hasattr(setting.algorithm, name))


@dataclass(frozen=True, kw_only=True)
class WithOwnFields(StepScheme):
    """Base of `pbt`, `pb2` and `mf_pbt`: learners continue from others, with other values."""

    fewest_learners: ClassVar[int] = 2
    stacked: ClassVar[tuple[str, ...]] = ("learners", "indices", "own_fields")
    presets: ClassVar[tuple[Layer, ...]] = (Layer("", {"perturbed": perturbed_of}),)

    review_period: Count = 2500
    """Own steps of a learner between two selections."""
    perturbed: tuple[str, ...] = ("learning_rate", "exploration_noise", "discount_factor")
    """Fields of the algorithm of which each learner has its own value."""

    def problem(self) -> UserError | None:
        known = {name for name, value in vars(self.algorithm).items() if isinstance(value, float)}
        for name in self.perturbed:
            if name not in known:
                numbers = ", ".join(sorted(known))
                message = f"{name} is not a number of {self.algorithm.name}: {numbers}"
                if isinstance(vars(self.algorithm).get(name), str):
                    message = f"{name} is a schedule, and learners may differ in numbers: {numbers}"
                return UserError(message, "perturbed")
        return super().problem()

    def start_value(self, name: str, draw: jax.Array) -> jax.Array:
        """A learner's first value of a field, by a number drawn uniformly from [-1, 1)."""
        raise NotImplementedError

    def init(self, key: jax.Array, spec: EnvSpec) -> Any:
        indices = jnp.arange(self.num_learners)
        own_fields = self.start_fields(key, indices)
        return PBTState(self.init_learners(key, spec), indices, own_fields)

    def start_fields(self, key: jax.Array, indices: jax.Array) -> dict[str, jax.Array]:
        """Every learner's own values at the start of a run."""
        own_fields = {}
        for index, name in enumerate(self.perturbed):
            draws = keys.per_learner(jax.random.fold_in(key, 1000 + index), indices)
            drawn = jax.vmap(lambda k: jax.random.uniform(k, (), jnp.float32, -1, 1))(draws)
            own_fields[name] = self.start_value(name, drawn)
        return own_fields

    def acting(self, state: Any) -> Any:
        return self.policies(state), state.indices, state.own_fields

    def learn(
        self, state: Any, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[Any, Recorded]:
        return self.learn_with(state, batches, key, with_policy, own_fields=state.own_fields)

    def report(self, state: Any, observations: np.ndarray) -> dict[str, Any]:
        return {"own_fields": state.own_fields}

    def decision(
        self, best: int | None, sources: list[int], after: dict[str, Any], about: dict[str, Any]
    ) -> Decision:
        """What is to be done, and written down.

        sources: whom each learner continues from; after: the report as it is then.
        """
        copies = [[source, index] for index, source in enumerate(sources) if source != index]
        values = {name: own.tolist() for name, own in after["own_fields"].items()}
        row = {"best": best, "copies": copies, "own_fields": values, **about}
        return Decision(row, tuple(sorted({source for source, _ in copies})), after)

    def offer(self, state: Any, index: int) -> Params:
        """All of the learner."""
        return pick(state.learners, index)

    def apply(self, state: Any, decision: Decision, offers: dict[int, Params]) -> Any:
        place = {int(index): here for here, index in enumerate(state.indices)}
        learners = state.learners
        for source, index in decision.row["copies"]:
            if index in place:
                learners = put(learners, place[index], offers[source])
        own = np.array(list(place))
        after = {
            name: jax.tree.map(jnp.asarray, pick(value, own) if name in self.stacked else value)
            for name, value in decision.values.items()
        }
        return state._replace(learners=learners, **after)

    def outdated(self, review: dict[str, Any]) -> list[int]:
        """A learner's earlier returns say nothing about what it has copied."""
        return [learner for _, learner in review["copies"]]


@dataclass(frozen=True, kw_only=True)
class WorstFollowBest(WithOwnFields):
    """Base of `pbt` and `pb2`: the worst of all learners continue from the best."""

    quantile: Annotated[float, Bounds(above=0, most=0.5)] = 0.25
    """Share of the population that is replaced, and that it is replaced from."""

    def explore(
        self,
        report: dict[str, Any],
        sources: np.ndarray,
        means: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The report after the copies, other values for those who copied; what to write about it.

        sources: whom each learner continues from; means: their mean recent returns.
        """
        raise NotImplementedError

    def decide(
        self, report: dict[str, Any], recent_returns: np.ndarray, rng: np.random.Generator
    ) -> Decision:
        best = self.best(recent_returns)
        sources = list(range(self.num_learners))
        after, about = report, {}
        if best is not None:
            means = chief.mean_returns(recent_returns)
            sources = exploit(means, self.quantile, rng)
            after, about = self.explore(report, np.array(sources), means, rng)
        return self.decision(best, sources, after, about)


@dataclass(frozen=True, kw_only=True)
class WithPerturbation(WithOwnFields):
    """Base of `pbt` and `mf_pbt`: values are multiplied by a factor or by its inverse."""

    perturbation: Annotated[float, Bounds(above=1)] = 1.2
    """Factor by which a taken-over hyper-parameter is multiplied or divided."""

    def start_value(self, name: str, draw: jax.Array) -> jax.Array:
        """Within one perturbation of the given value."""
        return perturb(name, getattr(self.algorithm, name), self.perturbation**draw)

    def perturbed_values(
        self, name: str, values: np.ndarray, moved: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """A field's values, (learners,), perturbed where they have moved to another learner."""
        factors = self.perturbation ** rng.choice([-1.0, 1.0], size=len(values))
        explored = np.where(moved, perturb(name, values, factors), values)
        return explored.astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class PBT(WorstFollowBest, WithPerturbation):
    """The worst learners take over the best ones' weights and perturbed hyper-parameters."""

    name: ClassVar[str] = "pbt"

    def explore(
        self,
        report: dict[str, Any],
        sources: np.ndarray,
        means: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        moved = sources != np.arange(len(sources))
        own_fields = {
            name: self.perturbed_values(name, values[sources], moved, rng)
            for name, values in report["own_fields"].items()
        }
        return {"own_fields": own_fields}, {}
