"""Every scheme of the registry: contract, determinism, and schemes that must agree to the bit.

The single checks are in `p3s.testing`; ../testing/test_broken.py shows that they can fail.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.config.run import resolve
from p3s.schemes import SCHEMES, scheme_name
from p3s.schemes.base import EpisodeScheme, StepScheme
from p3s.testing import SCHEME_CHECKS, SchemeCase, small_scheme
from p3s.testing.schemes import check_scheme_fields
from tests.helpers import problem_of, trained

SHARING = [name for name in SCHEMES if name != "rollout"]
"""The schemes with a replay; rollout: ../algorithms/test_on_policy.py."""


def learned(training) -> list[np.ndarray]:
    """What learns, stacked; all of the state where no field is called learners."""
    state = training.crew.updater.state
    learning = state.learners if hasattr(state, "learners") else state
    return [np.asarray(leaf) for leaf in jax.tree.leaves(learning)]


def same(ours, theirs) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(learned(ours), learned(theirs), strict=True))


CHECKS = [check for check in SCHEME_CHECKS if check is not check_scheme_fields]
"""That no field is dead: test_fields.py, by trainings, which reach every field of every scheme."""
IN_FAST_TESTS = ("p3s", "cem")
"""One of each kind, all checks of which run in the fast tests."""


@pytest.fixture(
    scope="module",
    params=[
        name if name in IN_FAST_TESTS else pytest.param(name, marks=pytest.mark.slow)
        for name in SCHEMES
    ],
)
def case(request) -> SchemeCase:
    """What is compiled of a scheme serves all checks."""
    algorithm = "ppo" if request.param == "rollout" else "td3"
    return SchemeCase(small_scheme(request.param, algorithm))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_keeps(case, check):
    check(case)


@pytest.mark.parametrize("scheme", SHARING)
class TestContract:
    def test_trains_and_counts(self, scheme):
        training = trained(scheme=scheme)
        scheme = training.scheme
        assert training.total_steps == training.experience.ring.num_added == 400
        assert training.counters.updates > 0
        if isinstance(scheme, StepScheme):
            own_steps = 400 // scheme.num_envs
            assert training.counters.updates == (own_steps - 19) * scheme.num_updates
            assert training.counters.total_updates == training.counters.updates * scheme.num_trained
        for leaf in jax.tree.leaves(training.crew.updater.state):
            assert leaf.dtype in (np.float32, np.int32)
            assert np.isfinite(leaf).all()
        for field in scheme.stacked:
            for leaf in jax.tree.leaves(getattr(training.crew.updater.state, field)):
                assert leaf.shape[0] == scheme.num_trained
        assert training.evaluated[-1]["step"] == 400
        champions = jax.tree.leaves(scheme.champions(training.crew.updater.state))[0].shape[0]
        judged = champions - len(scheme.extra_champions)
        assert np.shape(training.evaluated[-1]["learner_returns"]) == (judged, 2)
        assert training.policy().predict(np.zeros(4))[0].shape == (1,)

    @pytest.mark.slow
    def test_same_seed_same_bits_other_seed_other_bits(self, scheme):
        first, again, other = (trained(scheme=scheme, seed=seed) for seed in (3, 3, 4))
        assert same(first, again)
        assert first.evaluated[-1]["learner_returns"] == again.evaluated[-1]["learner_returns"]
        moved = [
            not np.array_equal(ours, theirs)
            for ours, theirs in zip(learned(first), learned(other), strict=True)
            if ours.dtype == np.float32 and ours.any()
        ]
        assert all(moved)
        assert not np.array_equal(
            first.experience.ring.rows[:400], other.experience.ring.rows[:400]
        )

    def test_second_round_compiles_nothing(self, scheme):
        training = trained(scheme=scheme)
        compiled = training.crew.updater.program.num_compiled
        # With a policy step and, in most schemes, without one; the updates after a round of
        # episodes are also done in stretches.
        rounds = isinstance(training.scheme, EpisodeScheme)
        assert compiled[0] in ((1, 2, 3) if rounds else (1, 2))
        assert compiled[1] == 1  # acting
        training.run(800)
        assert training.crew.updater.program.num_compiled == compiled


def test_guidance_of_weight_zero_is_sharing_to_the_bit():
    ours, theirs = trained(800, scheme="p3s", beta=0.0), trained(800, scheme="sharing")
    assert same(ours, theirs)
    assert not same(trained(800, scheme="p3s"), theirs)


@pytest.mark.parametrize("preset", ["paper", pytest.param("recommended", marks=pytest.mark.slow)])
def test_population_of_one_is_single_to_the_bit(preset: str):
    # The authors ran single TD3 with another code, which starts its networks in another way.
    start = {"initialization": "fan_in", "targets_start": "online"}
    ours = trained(300, scheme="p3s", num_learners=1, preset=preset, **start)
    theirs = trained(300, scheme="single", preset=preset, **start)
    assert same(ours, theirs)
    assert ours.scheme.num_updates == 1


@pytest.mark.parametrize(
    "scheme", ["resetting", "center", "pbt", "pb2", "dvd", "cem", "erl", "evorainbow"]
)
def test_a_population_needs_two(scheme):
    problem = problem_of(resolve("Pendulum-v1", scheme, num_learners=1).scheme)
    assert f"scheme {scheme} needs" in problem
    assert "at least 2" in problem


def test_names_of_the_paper():
    for name in ("eso", "Re", "DRL", "P3S-TD3", "center-td3", "ESO-TD3", "pbt", "CEM-TD3",
                 "ERL"):  # fmt: skip
        assert scheme_name(name) in SCHEMES
