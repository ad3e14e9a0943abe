"""What a scheme must supply: who acts, who learns from what, and what the chief does.

A scheme is a frozen dataclass of hyper-parameters that holds an algorithm. Its state is a
NamedTuple of arrays; `stacked` names the fields with a leading learner axis. `extra_champions`
names policies that are evaluated too, without counting for the score.

A review is a talk between the chief and those who hold learners, which may be several:

    report     what the chief is told of some learners                    where they are
    decide     from all reports and recent returns: what is to be done    the chief
    offer      what others take over from the learners named there        where those are
    apply      the decision and the offers                                where the learners are

A scheme whose review consists of these can be split over shards; one that overrides `review`
itself cannot.

    StepScheme      N learners act and learn at every step           `sharing.py` is the plainest
    EpisodeScheme   whole episodes, then the chief, then learning    `cem.py`, `erl.py`
    rollout.py      one on-policy learner
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief
from p3s.algorithms import Algorithm
from p3s.algorithms.off_policy import OffPolicy
from p3s.errors import UserError
from p3s.fields.layers import Layer
from p3s.fields.types import Count, CountOrZero, Ratio, Share
from p3s.learning.learners import act, init_learners, update_learners
from p3s.learning.rhythm import EveryStep, Rhythm, WholeEpisodes
from p3s.trees import pick
from p3s.types import EnvSpec, Guide, Learner, Params, Recorded, Transition


class PopulationState(NamedTuple):
    """The least that a population keeps."""

    learners: Learner
    indices: jax.Array
    """Which learners of the population these are, (learners,): learner i draws the same random
    numbers wherever it lives."""


class Decision(NamedTuple):
    """What the chief has decided in a review."""

    row: dict[str, Any]
    """What to write into the lineage."""
    sources: tuple[int, ...] = ()
    """Learners whose offer goes to everybody."""
    values: Any = None
    """What else `apply` needs, on the host."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """Base of all schemes."""

    name: ClassVar[str]
    stacked: ClassVar[tuple[str, ...]] = ("learners", "indices")
    extra_champions: ClassVar[tuple[str, ...]] = ()
    num_learners: int
    """Learners, or policies, of the population."""

    algorithm: Algorithm

    adds_loss_terms: ClassVar[bool] = False
    """Whether it adds to the losses of policies (`Guide.term`)."""
    can_be_split: ClassVar[bool] = False
    """Whether its learners can live in several shards."""
    fewest_learners: ClassVar[int] = 1
    is_alone: ClassVar[bool] = False
    """Whether it has one learner and no more."""
    envs_per_learner: ClassVar[int] = 1
    """Environment copies that each policy acts in."""
    has_own_code: ClassVar[bool] = False
    """Whether it has a code of its own; the others start as the authors' P3S code does."""
    presets: ClassVar[tuple[Layer, ...]] = ()
    """Values that it wants under any preset, of its algorithm's fields too."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A review as a whole needs all learners in one place.
        if "review" in vars(cls):
            cls.can_be_split = False

    def problem(self) -> UserError | None:
        """What is wrong with the fields taken together, or None; bounds are in their types."""
        count, message, about = self.num_learners, "", "num_learners"
        if self.is_alone and count != 1:
            message = (
                f"has one learner, not {count}: leave num_learners out, or choose another scheme"
            )
        elif count < self.fewest_learners:
            message = f"needs at least {self.fewest_learners} learners, not {count}"
        elif self.adds_loss_terms and not self.algorithm.takes_loss_terms:
            name, about = self.algorithm.name, "algorithm"
            message = (
                f"adds to the loss of each policy, and that of {name} takes no further terms: "
                "see 'p3s algorithms'"
            )
        if message:
            return UserError(f"scheme {self.name} {message}", about)
        return self.algorithm.problem()

    def rhythm(self) -> Rhythm:
        """The clock that says who acts when, and when learning and the chief are due."""
        raise NotImplementedError

    @property
    def num_recent(self) -> int:
        """Training returns that are kept for the chief, per policy that acts."""
        raise NotImplementedError

    @property
    def fading_returns(self) -> int | None:
        """Own steps over which past returns fade; None: the last `num_recent` count alike."""
        return None

    @property
    def own_rows(self) -> float:
        """The part of a learner's minibatch that is drawn from its own rows alone."""
        return 0.0

    @property
    def num_envs(self) -> int:
        """Environment copies; those of a policy that acts follow one another."""
        return self.num_learners * self.envs_per_learner

    @property
    def num_trained(self) -> int:
        """Learners that one update trains, each on its own minibatch."""
        return self.num_learners

    @property
    def num_random_steps(self) -> int:
        """Own steps with uniformly random actions."""
        return 0

    @property
    def first_update(self) -> int:
        """Total environment steps before anything is learned."""
        return 0

    def updates_per_environment_step(self) -> float | None:
        """Updates of each trained learner per environment step; None if it is not fixed."""
        return None

    def counts(self, first_step: int) -> bool:
        """Whether the chief counts the return of an episode that began with this own step."""
        return True

    def with_policy(self, update: int, position: int, backlog: int) -> bool:
        """Whether an update includes a policy step: by its number, and its place in a backlog."""
        assert isinstance(self.algorithm, OffPolicy)
        return update % self.algorithm.policy_period == 0

    def num_batches(self, with_policy: bool) -> int:
        """Minibatches that an update takes, which is also how many learner-updates it counts."""
        return self.num_trained

    def init(self, key: jax.Array, spec: EnvSpec) -> Any:
        """The state at the start of a run."""
        raise NotImplementedError

    def with_start(self, state: Any, policy: Params, learners: Sequence[int]) -> Any:
        """The state at the start of a run in which these learners start from a policy.

        What follows from learner 0's policy otherwise follows from this one if it is among them.
        """
        chosen = np.isin(np.asarray(state.indices), learners)

        def where_chosen(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(chosen.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        def repeated(leaf: Any) -> jax.Array:
            return jnp.repeat(jnp.asarray(leaf)[None], len(chosen), axis=0)

        before = jax.device_get(state.learners)
        started = self.algorithm.with_start(before, jax.tree.map(repeated, policy))
        return state._replace(learners=jax.tree.map(where_chosen, started, before))

    def policies(self, state: Any) -> Params:
        """The policies that act, stacked in the order of their environment copies."""
        return self.algorithm.policy_of(state.learners)

    def champions(self, state: Any) -> Params:
        """The policies that the run is judged by, stacked; `extra_champions` last."""
        return self.policies(state)

    def best(self, recent_returns: np.ndarray) -> int | None:
        """Which of the champions the chief would pick; None before the first finished episode."""
        return chief.best_learner(recent_returns)

    def acting(self, state: Any) -> Any:
        """What of the state `act` needs; third, if there are any, the learners' own fields."""
        return self.policies(state), state.indices

    def act(self, acting: Any, observations: jax.Array, key: jax.Array, step: jax.Array) -> Any:
        """An exploring action in every environment copy; pure, to be compiled."""
        policies, indices, *own_fields = acting
        return act(
            self.algorithm, policies, observations, key, indices, step, True, *own_fields,
            envs_per_learner=self.envs_per_learner,
        )  # fmt: skip

    def learn(self, state: Any, batches: Any, key: jax.Array, with_policy: bool) -> Any:
        """One update of every learner on its own minibatch; pure, to be compiled."""
        raise NotImplementedError

    def review(
        self,
        state: Any,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[Any, dict[str, Any]]:
        """The chief's work at the end of a period, and what to write into the lineage."""
        report = jax.device_get(self.report(state, observations))
        decision = self.decide(report, recent_returns, rng)
        offers = {source: self.offer(state, source) for source in decision.sources}
        return self.apply(state, decision, offers), decision.row

    def report(self, state: Any, observations: np.ndarray) -> dict[str, Any]:
        """What the chief is told of these learners.

        Arrays have an axis for the learners; what has no axis is the same for all of them.
        """
        return {}

    def decide(
        self, report: dict[str, Any], recent_returns: np.ndarray, rng: np.random.Generator
    ) -> Decision:
        """What is to be done, from the reports on all learners."""
        return Decision({"best": self.best(recent_returns)})

    def offer(self, state: Any, index: int) -> Params:
        """What others take over from the learner in this place of the state."""
        raise NotImplementedError

    def apply(self, state: Any, decision: Decision, offers: dict[int, Params]) -> Any:
        """The state after the chief's decision; offers: those of its sources, by learner."""
        return state

    @property
    def follows_episodes(self) -> bool:
        """Whether `end_episodes` does anything."""
        return False

    def end_episodes(self, state: Any, ended: jax.Array) -> Any:
        """The state after the updates of a step with which the episodes of some learners ended.

        ended: whose, (learners,); pure, to be compiled.
        """
        return state

    def outdated(self, review: dict[str, Any]) -> list[int]:
        """Whose recent returns no longer count after this review."""
        return []


@dataclass(frozen=True, kw_only=True)
class StepScheme(Scheme):
    """Base of the schemes in which N learners share one replay and learn at every step."""

    can_be_split: ClassVar[bool] = True

    num_learners: Count = 4
    """Learners, each with environment copies of its own (N)."""
    # The class variable of other schemes, a field of these.
    envs_per_learner: Count = 1  # type: ignore[reportIncompatibleVariableOverride]
    """Environment copies of each learner, which all act at every step (K)."""
    initial_steps: CountOrZero = 250
    """Own step of the first update (T_initial)."""
    review_period: Count = 250
    """Own steps of a learner between two reviews by the chief (M)."""
    recent_episodes: Count = 10
    """Training returns that the chief looks at, per learner (E_r)."""
    return_memory: Count | None = None
    """Own steps over which the chief forgets: a return of this age weighs 1/e of a new one. None:
    the last E_r returns weigh alike (paper)."""
    own_share: Share = 0.0
    """The part of a minibatch that a learner draws from its own transitions; the rest comes from
    those of all learners."""
    skip_random_episodes: bool = False
    """Ignore the returns of episodes in which actions were uniformly random."""
    updates_per_step: Count | Ratio | Literal["N"] = 1
    """Updates of each learner per own environment step: 1 (paper), or N, the number of
    environment copies (authors), which makes one per environment step as in a single learner. 0.25
    is one update after every fourth own step."""
    random_steps: CountOrZero | Literal["initial_steps", "next_thousand"] = "initial_steps"
    """Own steps with uniformly random actions: a number, the steps before T_initial (paper), or
    T_initial rounded up to a multiple of 1000 (authors)."""
    learners_start: Literal["identical", "independent"] = "identical"
    """All learners start with the same parameters (paper), or each with its own (authors)."""

    def problem(self) -> UserError | None:
        if self.own_share > 0 and (self.num_trained == 1 or self.num_trained != self.num_envs):
            return UserError(
                f"own_share is for several learners that share a replay, and scheme {self.name} "
                f"trains {self.num_trained} with {self.num_envs} environment copies: leave it out",
                "own_share",
            )
        return super().problem()

    @property
    def fading_returns(self) -> int | None:
        return self.return_memory

    @property
    def own_rows(self) -> float:
        return self.own_share

    def rhythm(self) -> Rhythm:
        return EveryStep(self.num_envs, self.initial_steps, self.num_updates, self.review_period)

    @property
    def num_recent(self) -> int:
        return self.recent_episodes if self.return_memory is None else 1

    @property
    def num_updates(self) -> int | float:
        """Updates of each learner per step of each."""
        return self.num_envs if self.updates_per_step == "N" else self.updates_per_step

    def updates_per_environment_step(self) -> float | None:
        return self.num_updates / max(self.num_envs, 1)  # fields may still be unchecked

    @property
    def num_random_steps(self) -> int:
        if self.random_steps == "next_thousand":
            return 1000 * -(-self.initial_steps // 1000)
        if self.random_steps == "initial_steps":
            return max(0, self.initial_steps - 1)
        return self.random_steps

    @property
    def first_update(self) -> int:
        return self.initial_steps * self.num_envs

    def counts(self, first_step: int) -> bool:
        return not self.skip_random_episodes or first_step > self.num_random_steps

    def init(self, key: jax.Array, spec: EnvSpec) -> Any:
        return PopulationState(self.init_learners(key, spec), jnp.arange(self.num_trained))

    def init_learners(self, key: jax.Array, spec: EnvSpec) -> Learner:
        """The stacked learners at the start of a run."""
        identical = self.learners_start == "identical"
        return init_learners(self.algorithm, key, spec, self.num_trained, identical)

    def guide(self, state: Any) -> Guide:
        """The policy that pulls, and its pull on each learner; nobody is pulled by default."""
        nothing = jnp.zeros(state.indices.shape, jnp.float32)
        return Guide(pick(self.policies(state), 0), nothing)

    def learn(
        self, state: Any, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[Any, Recorded]:
        return self.learn_with(state, batches, key, with_policy)

    def learn_with(
        self, state: Any, batches: Transition, key: jax.Array, with_policy: bool, **more: Any
    ) -> tuple[Any, Recorded]:
        """`learn`, with further arguments of `update_learners`."""
        about = self.guide(state), key, state.indices, with_policy
        learners, metrics = update_learners(self.algorithm, state.learners, batches, *about, **more)
        return state._replace(learners=learners), metrics


@dataclass(frozen=True, kw_only=True)
class EpisodeScheme(Scheme):
    """Base of the schemes that evolve policies by the returns of whole episodes."""

    fewest_learners: ClassVar[int] = 2

    num_learners: Count = 10
    """Policies in the population, each with its own environment copy (N)."""
    initial_steps: CountOrZero = 0
    """Own steps before the first update."""
    episodes_per_round: Count = 1
    """Noiseless episodes by which a policy is judged, in every round."""

    def problem(self) -> UserError | None:
        if not self.algorithm.has_own_policy:
            return UserError(
                f"scheme {self.name} evolves policies with one value function, and "
                f"{self.algorithm.name} has no policy of its own: see 'p3s algorithms'",
                "algorithm",
            )
        return super().problem()

    def rhythm(self) -> Rhythm:
        return WholeEpisodes(self.round_episodes, self.first_update, self.updates_per_step)

    @property
    def round_episodes(self) -> np.ndarray:
        """Episodes of a round, for each environment copy."""
        return np.full(self.num_envs, self.episodes_per_round)

    @property
    def num_recent(self) -> int:
        return self.episodes_per_round

    @property
    def first_update(self) -> int:
        return self.initial_steps * self.num_envs

    @property
    def updates_per_step(self) -> int:
        """Updates for every environment step of the round before."""
        return 1

    def best(self, recent_returns: np.ndarray) -> int | None:
        """The first champion is the one that the run is judged by."""
        return None if np.isnan(recent_returns).all() else 0
