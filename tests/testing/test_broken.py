"""Every contract test can fail: broken algorithms and schemes, and the sentence for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from p3s.algorithms.td3 import TD3
from p3s.fields.types import Positive
from p3s.schemes.base import Decision
from p3s.schemes.center import Center
from p3s.schemes.sharing import Sharing
from p3s.testing import ContractError, SchemeCase, check_algorithm, check_scheme, small_scheme
from p3s.testing.schemes import check_carried, check_parts, check_review


@dataclass(frozen=True, kw_only=True)
class NaNAtInit(TD3):
    name: ClassVar[str] = "nan_at_init"

    def init(self, key, spec):
        learner = super().init(key, spec)
        return learner._replace(extra={"scale": jnp.log(jnp.float32(-1.0))})


@dataclass(frozen=True, kw_only=True)
class SameStart(TD3):
    name: ClassVar[str] = "same_start"

    def init(self, key, spec):
        return super().init(jax.random.key(0), spec)


@dataclass(frozen=True, kw_only=True)
class HidesParts(TD3):
    name: ClassVar[str] = "hides_parts"

    def init_network(self, key, inputs, output_size):
        return super().init_network(key, [getattr(it, "shape", it) for it in inputs], output_size)


@dataclass(frozen=True, kw_only=True)
class OwnDice(TD3):
    name: ClassVar[str] = "own_dice"

    def act(self, policy, observation, key, *, explore, past_keys=None):
        action = super().act(policy, observation, key, explore=explore)
        return jnp.clip(action + 0.1 * np.random.normal() * explore, -1, 1)


@dataclass(frozen=True, kw_only=True)
class Quiet(TD3):
    name: ClassVar[str] = "quiet"

    def act(self, policy, observation, key, *, explore, past_keys=None):
        return super().act(policy, observation, key, explore=False)


@dataclass(frozen=True, kw_only=True)
class InPlace(TD3):
    name: ClassVar[str] = "in_place"

    def value_step(self, learner, batch, key):
        learner.extra["seen"] = jnp.int32(1)
        return super().value_step(learner, batch, key)


@dataclass(frozen=True, kw_only=True)
class Forgets(TD3):
    name: ClassVar[str] = "forgets"

    def policy_step(self, learner, batch, guide, key):
        learner, metrics = super().policy_step(learner, batch, guide, key)
        return learner._replace(extra={}), metrics


@dataclass(frozen=True, kw_only=True)
class TellsADictionary(TD3):
    name: ClassVar[str] = "tells_a_dictionary"

    def value_step(self, learner, batch, key):
        learner, metrics = super().value_step(learner, batch, key)
        return learner, {"value_loss": metrics.loss}


@dataclass(frozen=True, kw_only=True)
class NoTerms(TD3):
    name: ClassVar[str] = "no_terms"
    takes_loss_terms: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Unguided(TD3):
    name: ClassVar[str] = "unguided"

    def policy_step(self, learner, batch, guide, key):
        return super().policy_step(learner, batch, guide._replace(weight=jnp.float32(0.0)), key)


@dataclass(frozen=True, kw_only=True)
class TrainsEverything(TD3):
    """Its own gradient step goes over what is carried too."""

    name: ClassVar[str] = "trains_everything"

    def start_optimizer(self, params):
        return self.adam(self.adam_momentum).init(params)

    def minimize(self, loss_of, params, state):
        (loss, (_, rest)), gradient = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, state = self.adam(self.adam_momentum).update(gradient, state)
        return optax.apply_updates(params, updates), state, loss, rest


@dataclass(frozen=True, kw_only=True)
class DeadField(TD3):
    name: ClassVar[str] = "dead_field"

    sharpness: Positive = 1.0
    """Nobody reads it."""


@dataclass(frozen=True, kw_only=True)
class Unfelt(TD3):
    name: ClassVar[str] = "unfelt"

    sharpness: Positive = 1.0
    """It is multiplied by 0."""

    def act(self, policy, observation, key, *, explore, past_keys=None):
        return super().act(policy, observation, key, explore=explore) + 0.0 * self.sharpness


ALGORITHMS = {
    NaNAtInit: "nan_at_init: init has numbers that are not finite (extra/scale)",
    HidesParts: "hides_parts: init hides from init_network what is an image: "
    "give it spec.features, not its shape",
    SameStart: "same_start: init ignores its key: two keys give the same policy",
    OwnDice: "own_dice: act is not the same twice: draw random numbers from its key alone",
    Quiet: "quiet: act ignores its key when it explores",
    NoTerms: "no_terms: policy_step takes guide.term, and takes_loss_terms is False",
    TellsADictionary: "tells_a_dictionary: value_step returns a dict for p3s.types.Metrics",
    InPlace: "in_place: value_step changes its Learner in place: return a new one",
    Forgets: "forgets: policy_step replaces extra: "
    "keep what else is in it ({**learner.extra, ...})",
    Unguided: "unguided: policy_step ignores its guide",
    TrainsEverything: "trains_everything: value_step trains a carried leaf of its value: "
    "differentiate trained(params), and merge what comes out",
    DeadField: "dead_field: the field sharpness is dead: no other value changes anything",
    Unfelt: "unfelt: the field sharpness is dead: 1 and 0.3 give the same after three updates",
}


@pytest.mark.parametrize(
    "algorithm",
    [
        # A dead field is looked for under every choice of the others.
        pytest.param(
            made, id=made.name, marks=pytest.mark.slow if made in (DeadField, Unfelt) else ()
        )
        for made in ALGORITHMS
    ],
)
def test_a_broken_algorithm_is_told_in_one_sentence(algorithm):
    with pytest.raises(ContractError) as told:
        check_algorithm(algorithm)
    assert str(told.value) == ALGORITHMS[algorithm]


@dataclass(frozen=True, kw_only=True)
class SameLearners(Sharing):
    name: ClassVar[str] = "same_learners"

    def init(self, key, spec):
        return super().init(jax.random.key(0), spec)


@dataclass(frozen=True, kw_only=True)
class NaNState(Sharing):
    name: ClassVar[str] = "nan_state"

    def init(self, key, spec):
        state = super().init(key, spec)
        scaled = jax.tree.map(lambda leaf: leaf / 0 if leaf.ndim == 0 else leaf, state.learners)
        return state._replace(learners=scaled._replace(extra={"scale": jnp.float32([jnp.nan] * 4)}))


@dataclass(frozen=True, kw_only=True)
class Sorts(Sharing):
    name: ClassVar[str] = "sorts"

    def decide(self, report, recent_returns, rng):
        recent_returns.sort()
        return super().decide(report, recent_returns, rng)


@dataclass(frozen=True, kw_only=True)
class Shuffles(Sharing):
    name: ClassVar[str] = "shuffles"

    def decide(self, report, recent_returns, rng):
        return Decision({"best": int(np.random.randint(10**6))})


@dataclass(frozen=True, kw_only=True)
class NumpyRow(Sharing):
    name: ClassVar[str] = "numpy_row"

    def decide(self, report, recent_returns, rng):
        return Decision({"best": None, "means": recent_returns.mean(axis=1)})


@dataclass(frozen=True, kw_only=True)
class Averages(Sharing):
    """All learners get the mean policy, with the mean of what policies carry."""

    name: ClassVar[str] = "averages"

    def review(self, state, recent_returns, observations, rng):
        def mean(leaf):
            return jnp.broadcast_to(leaf.mean(axis=0), leaf.shape).astype(leaf.dtype)

        averaged = jax.tree.map(mean, state.learners.policy)
        learners = state.learners._replace(policy=averaged)
        return state._replace(learners=learners), {"best": self.best(recent_returns)}


@dataclass(frozen=True, kw_only=True)
class ByPlace(Sharing):
    """Learner 0 of any part learns by other numbers than the others do."""

    name: ClassVar[str] = "by_place"

    def learn(self, state, batches, key, with_policy):
        moved = state._replace(indices=jnp.arange(len(state.indices)))
        after, metrics = super().learn(moved, batches, key, with_policy)
        return after._replace(indices=state.indices), metrics


@dataclass(frozen=True, kw_only=True)
class DeadPull(Center):
    name: ClassVar[str] = "dead_pull"

    patience: Positive = 2.0
    """Nobody reads it."""


WHOLE = {
    SameLearners: "same_learners: init ignores its key: two keys give the same state",
    NaNState: "nan_state: init has numbers that are not finite (learners/extra/scale)",
    DeadPull: "dead_pull: the field patience is dead: no other value changes anything "
    "(if it needs others, give them: check_scheme(..., other=value))",
}
SINGLE = {
    Sorts: (check_review, "sorts: review changes recent_returns or observations"),
    Shuffles: (
        check_review,
        "shuffles: review is not the same twice: draw random numbers from rng alone",
    ),
    NumpyRow: (
        check_review,
        "numpy_row: review writes a value that JSON cannot hold: "
        "Object of type ndarray is not JSON serializable",
    ),
    Averages: (
        check_carried,
        "averages: review changes a carried leaf: work on trained(policy), and merge",
    ),
    ByPlace: (
        check_parts,
        "by_place: learn treats a part of the learners differently from all of them",
    ),
}


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(made, id=made.name, marks=pytest.mark.slow if made is DeadPull else ())
        for made in WHOLE
    ],
)
def test_a_broken_scheme_is_told_in_one_sentence(scheme):
    with pytest.raises(ContractError) as told:
        check_scheme(scheme)
    assert str(told.value) == WHOLE[scheme]


@pytest.mark.parametrize("scheme", SINGLE, ids=lambda made: made.name)
def test_each_check_of_schemes_can_fail(scheme):
    check, sentence = SINGLE[scheme]
    with pytest.raises(ContractError) as told:
        check(SchemeCase(small_scheme(scheme)))
    assert str(told.value) == sentence
