"""Contract, determinism and equivalences of schemes and algorithms, driven by the registries."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config import RunOptions, field_values, resolve
from p3s.presets import PRESETS
from p3s.schemes import P3S, SCHEMES
from p3s.schemes.p3s import P3SState
from p3s.types import EnvSpec

from .conftest import SMALL, small_training

COMBINATIONS = [(scheme, "td3") for scheme in SCHEMES]


def trained(steps: int = 400, **fields):
    training = small_training(**fields)
    training.run(steps)
    return training


def leaves(training) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(training.state.learners)]


def same(ours, theirs) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(leaves(ours), leaves(theirs), strict=True))


@pytest.mark.parametrize(("scheme", "algorithm"), COMBINATIONS)
class TestContract:
    def test_trains_and_counts(self, scheme, algorithm):
        training = trained(scheme=scheme, algorithm=algorithm, preset="authors")
        count = training.scheme.num_learners
        assert training.total_steps == 400
        own_steps = 400 // count
        assert training.updates == (own_steps - 20) * training.scheme.num_updates
        assert training.replay.num_added == 400
        for leaf in leaves(training):
            assert leaf.shape[0] == count
            assert leaf.dtype in (np.float32, np.int32)
            assert np.isfinite(leaf).all()
        assert training.last_evaluation["step"] == 400
        assert np.shape(training.last_evaluation["learner_returns"]) == (count, 2)
        assert training.policy().predict(np.zeros(4))[0].shape == (1,)

    def test_same_seed_same_bits_other_seed_other_bits(self, scheme, algorithm):
        first, again, other = (
            trained(scheme=scheme, algorithm=algorithm, seed=seed) for seed in (3, 3, 4)
        )
        assert same(first, again)
        assert first.last_evaluation["learner_returns"] == again.last_evaluation["learner_returns"]
        moved = [
            not np.array_equal(ours, theirs)
            for ours, theirs in zip(leaves(first), leaves(other), strict=True)
            if ours.dtype == np.float32
        ]
        assert all(moved)
        assert not np.array_equal(first.replay.rows[:400], other.replay.rows[:400])

    def test_second_round_compiles_nothing(self, scheme, algorithm):
        training = trained(scheme=scheme, algorithm=algorithm)
        compiled = training._learn._cache_size(), training._explore._cache_size()
        assert compiled == (2, 1)  # with and without a policy step; acting
        training.run(800)
        assert (training._learn._cache_size(), training._explore._cache_size()) == compiled


def test_guidance_of_weight_zero_is_sharing_to_the_bit():
    ours, theirs = trained(800, scheme="p3s", beta=0.0), trained(800, scheme="sharing")
    assert same(ours, theirs)
    assert not same(trained(800, scheme="p3s"), theirs)


@pytest.mark.parametrize("preset", PRESETS)
def test_population_of_one_is_single_to_the_bit(preset: str):
    ours = trained(300, scheme="p3s", num_learners=1, preset=preset)
    theirs = trained(300, scheme="single", preset=preset)
    assert same(ours, theirs)
    assert ours.scheme.num_updates == 1


class TestP3S:
    scheme = P3S(algorithm=ALGORITHMS["td3"](hidden_sizes=(4,)), num_learners=3)
    spec = EnvSpec(2, 1)

    def state(self, **fields) -> P3SState:
        return self.scheme.init(jax.random.key(0), self.spec)._replace(**fields)

    def test_pull_spares_the_best(self):
        state = self.state(best=np.int32(1), beta=np.float32(4.0))
        assert self.scheme.guide(state).weight.tolist() == [4.0, 0.0, 4.0]

    def test_pull_before_the_first_selection(self):
        assert self.scheme.guide(self.state()).weight.tolist() == [1.0, 1.0, 1.0]
        authors = dataclasses.replace(self.scheme, guide_from_start=False)
        assert authors.guide(self.state()).weight.tolist() == [0.0, 0.0, 0.0]

    def test_guide_is_frozen_for_the_period(self):
        training = small_training(num_learners=2)
        training.run(2 * 60)
        before = jax.device_get(training.state.guide)
        training.run(2 * 74)
        assert jax.tree.all(jax.tree.map(np.array_equal, before, training.state.guide))
        training.run(2 * 75)
        best = training.last_review["best"]
        assert best is not None
        frozen = jax.tree.map(lambda leaf: leaf[best], training.state.learners.policy)
        assert jax.tree.all(jax.tree.map(np.array_equal, frozen, training.state.guide))

    @pytest.mark.parametrize(
        ("left_out", "expected_spread", "expected_change"),
        [("period_best", (1 + 3) / 2, (10 + 30) / 2), ("new_best", (1 + 2) / 2, (10 + 20) / 2)],
    )
    def test_review_leaves_one_out(self, left_out, expected_spread, expected_change):
        """Period's best is learner 1, the new best is learner 2; sums over 2 minibatches."""
        scheme = dataclasses.replace(
            self.scheme, left_out=left_out, distance_estimate="every_minibatch"
        )
        state = self.state(
            best=np.int32(1),
            spread_sums=np.array([2.0, 4.0, 6.0], np.float32),
            change_sums=np.array([20.0, 40.0, 60.0], np.float32),
            num_measured=np.int32(2),
        )
        returns = np.array([[0.0], [1.0], [2.0]])
        after, review = scheme.review(state, returns, np.zeros((5, 2), np.float32))
        assert review == {
            "best": 2, "beta": 0.5, "spread": expected_spread, "change": expected_change,
        }  # fmt: skip
        assert (int(after.best), float(after.beta), int(after.num_measured)) == (2, 0.5, 0)
        assert after.spread_sums.tolist() == [0, 0, 0]

    def test_review_measures_at_the_end_of_the_period(self):
        learners = self.scheme.init_learners(jax.random.key(0), self.spec)
        shift = np.array([0.0, 0.5, 1.0], np.float32)
        policy = [dict(layer) for layer in learners.policy]
        policy[-1] = {"weight": policy[-1]["weight"] * 0, "bias": np.arctanh(0.8 * shift)[:, None]}
        zero = jax.tree.map(lambda leaf: np.zeros_like(leaf), learners.policy)
        state = self.state(
            learners=learners._replace(policy=policy),
            old_policies=zero,
            guide=jax.tree.map(lambda leaf: leaf[0], policy),
            best=np.int32(0),
        )
        _, review = self.scheme.review(state, np.full((3, 1), np.nan), np.ones((5, 2), np.float32))
        # Actions are 0, 0.4, 0.8: distances to the guide and to the old policies ½ 0.16 and ½ 0.64.
        assert review["spread"] == pytest.approx((0.08 + 0.32) / 2, rel=1e-5)
        assert review["change"] == pytest.approx((0.08 + 0.32) / 2, rel=1e-5)
        assert review["best"] is None
        assert review["beta"] == 0.5  # 0.2 < max(2 * 0.2, d_min) / 1.5

    def test_nobody_is_guided_before_the_first_selection_in_authors(self):
        scheme = dataclasses.replace(self.scheme, guide_from_start=False)
        returns = np.full((3, 1), np.nan)
        _, review = scheme.review(self.state(), returns, np.ones((5, 2), np.float32))
        assert (review["best"], review["beta"]) == (None, 1.0)


def test_random_phase():
    text, code = (resolve("HalfCheetah-v5", preset=preset).scheme for preset in PRESETS)
    assert (text.initial_steps, text.random_steps) == (2500, 2500)
    assert (code.initial_steps, code.random_steps) == (2500, 3000)
    assert resolve("Hopper-v5", preset="authors").scheme.random_steps == 1000
    assert resolve("Hopper-v5", "single").scheme.initial_steps == 1000


class TestFields:
    """A hyper-parameter is written once, arrives, and changes something."""

    others = {  # noqa: RUF012
        "num_learners": 2, "review_period": 30, "recent_episodes": 2, "updates_per_step": 2,
        "initial_steps": 30, "random_until": "next_thousand", "learners_start": "independent",
        "beta": 3.0, "rho": 0.1, "d_min": 1.0, "beta_limit": 1.0,
        "distance_estimate": "every_minibatch", "left_out": "new_best", "guide_from_start": False,
        "batch_size": 9, "policy_period": 3, "hidden_sizes": (16, 15), "learning_rate": 3e-3,
        "discount": 0.9, "target_rate": 0.5, "exploration_noise": 0.3, "target_noise": 0.4,
        "target_noise_clip": 0.1, "distance_reduction": "mean", "targets_start": "independent",
        "initialization": "xavier",
    }  # fmt: skip

    def history(self, **fields):
        """What a short run leaves behind, in a form that tells any two runs apart."""
        # Reacher has two action dimensions, so that sum and mean differ.
        training = small_training("Reacher-v5", review_period=fields.pop("review_period", 25),
                                  **{"recent_episodes": 1, "d_min": 0.0, **fields})  # fmt: skip
        reviews = []
        for _ in range(6):
            training.run(training.total_steps + 25 * training.scheme.num_learners)
            reviews.append(str(training.last_review))
        return reviews, [leaf.tobytes() for leaf in leaves(training)]

    @pytest.fixture(scope="class")
    def reference(self):
        return self.history()

    @pytest.mark.parametrize("name", others)
    def test_none_is_dead(self, name, reference):
        assert self.history(**{name: self.others[name]}) != reference

    def test_all_are_covered(self):
        known = set()
        for scheme, algorithm in COMBINATIONS:
            config = resolve(None, scheme, algorithm)
            known |= set(field_values(config.scheme)) | set(field_values(config.algorithm))
        assert known == set(self.others)

    @pytest.mark.parametrize("preset", PRESETS)
    def test_presets_build_and_survive_json(self, preset):
        for env in ("Hopper-v1", "Delayed Ant-v1", "Pendulum-v1", "p3s/DelayedWalker2d-v5"):
            config = resolve(env, preset=preset, **SMALL)
            config.check()
            assert type(config).from_json(config.to_json()) == config

    def test_presets_differ_in_every_row(self):
        paper, authors = PRESETS["paper"], PRESETS["authors"]
        assert paper.keys() == authors.keys()
        assert all(paper[name] != authors[name] for name in paper)

    @pytest.mark.parametrize(
        ("env", "d_min", "initial_steps"),
        [("Hopper-v5", 0.05, 250), ("Walker2d-v5", 0.02, 250), ("HalfCheetah-v5", 0.05, 2500),
         ("Ant-v5", 0.02, 2500), ("Delayed Hopper-v1", 0.02, 250), ("Delayed Ant-v1", 0.05, 2500),
         ("p3s/DelayedHalfCheetah-v5", 0.02, 2500), ("Pendulum-v1", 0.05, 250)],
    )  # fmt: skip
    def test_appendix_i(self, env, d_min, initial_steps):
        scheme = resolve(env).scheme
        assert (scheme.d_min, scheme.initial_steps) == (d_min, initial_steps)

    def test_documented(self):
        import inspect

        for group in (RunOptions, *SCHEMES.values(), *ALGORITHMS.values()):
            sources = "".join(
                inspect.getsource(base) for base in group.__mro__ if dataclasses.is_dataclass(base)
            )
            for field in dataclasses.fields(group):
                if field.name != "algorithm":
                    assert f"    {field.name}: " in sources
