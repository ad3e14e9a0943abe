"""CEM-TD3 (Appendix D; Pourchot & Sigaud 2019): a search distribution over policies, one critic.

    in rounds
        1. policies are drawn from N(mean, diag(variance)), mirrored or not
        2. half of them, and the common value functions, take gradient steps on the common
           replay: as many as the round before had environment steps
        3. every policy plays `episodes_per_round` noiseless episodes; all go into the replay
        4. mean and variance are taken from the best half

The run is judged by the mean. The presets are two sets of values of the same fields: `paper` is
the plain form that Appendix D describes, `authors` is the CEM-RL code that its numbers come from:
mirrored samples, log weights, a variance about the old mean divided by the number of elites,
damping, and value steps before policy steps. The distribution is over trained leaves; carried
leaves come from the best policy of a round.

Differs from that code in: the selected policies step together as one program, after all value
steps, where the code trains them one by one; value targets use the selected policies in turn, not
one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief, keys
from p3s.errors import UserError
from p3s.fields.layers import Layer, Setting
from p3s.fields.types import Count, CountOrZero
from p3s.learning.learners import act
from p3s.learning.metrics import POLICY_LOSS, VALUE_LOSS, recorded
from p3s.schemes.search_distribution import CEM_RL, SearchDistribution
from p3s.trees import pick
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Recorded, Transition

CODE = {**CEM_RL, "selection": "first", "sampling": "mirrored", "update_order": "values_first"}
NETWORKS = {"activation": "leaky_relu", "policy_activation": "tanh"}
"""Of CEM-RL's code, that CEM-TD3 was run with; the defaults are Appendix D's description."""


def runs_their_algorithm(setting: Setting) -> bool:
    """Whether a run is one of the authors' own, whose networks are their algorithm's."""
    return setting.preset == "authors" and setting.algorithm.name in ("td3", "ddpg")


class CEMState(NamedTuple):
    """The distribution, the policies drawn from it, and the common value functions."""

    mean: Params
    variance: Params
    damping: jax.Array
    selected: Params
    optimizers: Any
    others: Params
    critic: Learner
    turn: jax.Array


@dataclass(frozen=True, kw_only=True)
class CEM(SearchDistribution):
    """Policies are drawn around the best ones; half of them take gradient steps."""

    name: ClassVar[str] = "cem"
    has_own_code: ClassVar[bool] = True
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("CEM-RL's code", {"initial_steps": lambda setting: setting.own_steps(10_000)}),
        Layer("CEM-RL's code", CODE, lambda setting: setting.preset != "paper"),
        Layer("CEM-RL's code", NETWORKS, runs_their_algorithm),
    )
    stacked: ClassVar[tuple[str, ...]] = ("selected", "optimizers")

    initial_steps: CountOrZero = 1000
    """Own steps before the first update."""
    num_selected: Count | Literal["half"] = "half"
    """Policies of a round that take gradient steps."""
    selection: Literal["random", "first"] = "random"
    """Which policies take gradient steps: random ones (paper), or the first drawn, whose mirror
    images do not (authors)."""
    update_order: Literal["together", "values_first"] = "together"
    """Value and policy steps alternate (paper), or all value steps come first (authors)."""

    def problem(self) -> UserError | None:
        return self.more_than_all("num_selected", self._selected) or super().problem()

    @property
    def _selected(self) -> int:
        return max(self.num_learners // 2, 1) if self.num_selected == "half" else self.num_selected

    @property
    def num_trained(self) -> int:
        return self._selected

    @property
    def updates_per_step(self) -> int:
        return 2 if self.update_order == "values_first" else 1

    def with_policy(self, update: int, position: int, backlog: int) -> bool:
        """Values first: only value steps in the first half of a backlog, then only policy steps."""
        return self.update_order == "together" or position >= backlog // 2

    def num_batches(self, with_policy: bool) -> int:
        return self.num_trained if with_policy else 1

    def init(self, key: jax.Array, spec: EnvSpec) -> CEMState:
        critic = self.algorithm.init(jax.random.fold_in(key, 0), spec)
        if "policy" not in critic.optimizers:
            raise UserError(
                f"scheme cem gives each policy its own optimizer: {self.algorithm.name} must keep "
                "it in optimizers['policy']"
            )
        mean = self.algorithm.policy_of(critic)
        return self._next_round(
            jax.random.fold_in(key, 1),
            np.arange(self.num_learners),
            CEMState(
                mean=mean,
                variance=self.start_variance(mean),
                damping=jnp.float32(self.damping),
                selected=None,
                optimizers=None,
                others=None,
                critic=critic,
                turn=jnp.int32(0),
            ),
        )

    def _next_round(
        self, key: jax.Array, order: jax.Array | np.ndarray, state: CEMState
    ) -> CEMState:
        """New policies, those that take gradient steps first, with fresh optimizers."""
        drawn = self.draw(key, state)
        selected, others = order[: self._selected], order[self._selected :]
        fresh = jax.tree.map(
            lambda leaf: jnp.zeros((self._selected, *leaf.shape), leaf.dtype),
            state.critic.optimizers["policy"],
        )
        return state._replace(
            selected=pick(drawn, selected), others=pick(drawn, others), optimizers=fresh
        )

    def policies(self, state: CEMState) -> Params:
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), state.selected, state.others)

    def champions(self, state: CEMState) -> Params:
        return jax.tree.map(lambda leaf: leaf[None], state.mean)

    def acting(self, state: CEMState) -> Any:
        return state.selected, state.others

    def act(self, acting: Any, observations: jax.Array, key: jax.Array, step: jax.Array) -> Any:
        split = self._selected
        return jnp.concatenate(
            [
                act(self.algorithm, policies, own, key, jnp.arange(len(own)), step, explore=False)
                for policies, own in zip(
                    acting, (observations[:split], observations[split:]), strict=True
                )
                if len(own)
            ]
        )

    def learn(
        self, state: CEMState, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[CEMState, Recorded]:
        value_key, policy_key = jax.random.split(key)
        metrics: Recorded = {}
        count = len(batches.reward)
        if self.update_order == "together" or not with_policy:
            state, metrics = self._value_step(state, pick(batches, 0), value_key)
            metrics = {name: jnp.full(count, value) for name, value in metrics.items()}
        if with_policy:
            state, more = self._policy_steps(state, batches, policy_key)
            metrics = {**metrics, **more}
        return state, metrics

    def _value_step(
        self, state: CEMState, batch: Transition, key: jax.Array
    ) -> tuple[CEMState, Recorded]:
        """One step of the value functions, whose targets follow one of the selected policies."""
        policy = pick(state.selected, state.turn % self._selected)
        critic = self.algorithm.with_policy(state.critic, policy)
        if "policy" in critic.targets:
            critic = critic._replace(targets={**critic.targets, "policy": policy})
        critic, metrics = self.algorithm.value_step(critic, batch, key)
        critic = self.algorithm.follow_targets(critic)
        state = state._replace(critic=critic, turn=state.turn + 1)
        return state, recorded(metrics, VALUE_LOSS)

    def _policy_steps(
        self, state: CEMState, batches: Transition, key: jax.Array
    ) -> tuple[CEMState, Recorded]:
        """One step of every selected policy on the common value functions, as one program.

        What else a policy step moves, like SAC's temperature, is taken from the first one.
        """

        def step(
            policy: Params, optimizer: Any, batch: Transition, step_key: jax.Array
        ) -> tuple[Learner, Metrics]:
            learner = self.algorithm.with_policy(state.critic, policy)
            learner = learner._replace(optimizers={**learner.optimizers, "policy": optimizer})
            return self.algorithm.policy_step(
                learner, batch, Guide(policy, jnp.float32(0.0)), step_key
            )

        step_keys = keys.per_learner(key, jnp.arange(self._selected))
        learners, metrics = jax.vmap(step)(state.selected, state.optimizers, batches, step_keys)
        first = pick(learners, 0)
        optimizers = {**first.optimizers, "policy": state.critic.optimizers["policy"]}
        state = state._replace(
            selected=self.algorithm.policy_of(learners),
            optimizers=learners.optimizers["policy"],
            critic=state.critic._replace(optimizers=optimizers, extra=first.extra),
        )
        return state, recorded(metrics, POLICY_LOSS)

    @partial(jax.jit, static_argnums=0)
    def _evolve(
        self, state: CEMState, elites: jax.Array, order: jax.Array, key: jax.Array
    ) -> CEMState:
        """The distribution of the elites, and the policies of the next round."""
        state = self.refit(state, pick(self.policies(state), elites))
        return self._next_round(key, order, state)

    def review(
        self,
        state: CEMState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[CEMState, dict[str, Any]]:
        returns = chief.mean_returns(recent_returns)
        elites = np.argsort(-returns, kind="stable")[: self._elites]
        order = np.arange(self.num_learners)
        if self.selection == "random":
            order = rng.permutation(self.num_learners)
        key = jax.random.key(int(rng.integers(2**31)))
        state = self._evolve(state, elites, order, key)
        return state, {
            "best": int(elites[0]),
            "elites": elites.tolist(),
            "trained_elites": int((elites < self._selected).sum()),
            **self.spread(state),
        }
