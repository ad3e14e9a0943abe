"""Contract, determinism and equivalences of schemes and algorithms, driven by the registries."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config import RunOptions, field_values, resolve
from p3s.learning.learners import distances
from p3s.presets import PRESETS
from p3s.schemes import P3S, PBT, SCHEMES, Resetting, scheme_name
from p3s.schemes.base import StepScheme
from p3s.schemes.center import center_loss
from p3s.schemes.p3s import P3SState
from p3s.schemes.pbt import exploit, perturb
from p3s.types import EnvSpec, Transition

from .conftest import SMALL, small_training

DRAW = np.random.default_rng(0)
TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec(2, 1)
COMBINATIONS = [(scheme, "td3") for scheme in SCHEMES]


def trained(steps: int = 400, **fields):
    training = small_training(**fields)
    training.run(steps)
    return training


def leaves(training) -> list[np.ndarray]:
    """What learns, stacked; all of the state where no field is called learners."""
    state = training.state
    learning = state.learners if hasattr(state, "learners") else state
    return [np.asarray(leaf) for leaf in jax.tree.leaves(learning)]


def same(ours, theirs) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(leaves(ours), leaves(theirs), strict=True))


@pytest.mark.parametrize(("scheme", "algorithm"), COMBINATIONS)
class TestContract:
    def test_trains_and_counts(self, scheme, algorithm):
        training = trained(scheme=scheme, algorithm=algorithm)
        scheme = training.scheme
        assert training.total_steps == training.replay.num_added == 400
        assert training.updates > 0
        if isinstance(scheme, StepScheme):
            own_steps = 400 // scheme.num_envs
            assert training.updates == (own_steps - 20) * scheme.num_updates
            assert training.total_updates == training.updates * scheme.num_trained
        for leaf in jax.tree.leaves(training.state):
            assert leaf.dtype in (np.float32, np.int32)
            assert np.isfinite(leaf).all()
        for field in scheme.stacked:
            for leaf in jax.tree.leaves(getattr(training.state, field)):
                assert leaf.shape[0] == scheme.num_trained
        assert training.last_evaluation["step"] == 400
        champions = jax.tree.leaves(scheme.champions(training.state))[0].shape[0]
        judged = champions - len(scheme.extra_champions)
        assert np.shape(training.last_evaluation["learner_returns"]) == (judged, 2)
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
            if ours.dtype == np.float32 and ours.any()
        ]
        assert all(moved)
        assert not np.array_equal(first.replay.rows[:400], other.replay.rows[:400])

    def test_second_round_compiles_nothing(self, scheme, algorithm):
        training = trained(scheme=scheme, algorithm=algorithm)
        compiled = training.program.num_compiled
        assert compiled[0] in (1, 2)  # with a policy step and, in most schemes, without one
        assert compiled[1] == 1  # acting
        training.run(800)
        assert training.program.num_compiled == compiled


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
        after, review = scheme.review(state, returns, np.zeros((5, 2), np.float32), DRAW)
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
        returns, observations = np.full((3, 1), np.nan), np.ones((5, 2), np.float32)
        _, review = self.scheme.review(state, returns, observations, DRAW)
        # Actions are 0, 0.4, 0.8: distances to the guide and to the old policies ½ 0.16 and ½ 0.64.
        assert review["spread"] == pytest.approx((0.08 + 0.32) / 2, rel=1e-5)
        assert review["change"] == pytest.approx((0.08 + 0.32) / 2, rel=1e-5)
        assert review["best"] is None
        assert review["beta"] == 0.5  # 0.2 < max(2 * 0.2, d_min) / 1.5

    def test_nobody_is_guided_before_the_first_selection_in_authors(self):
        scheme = dataclasses.replace(self.scheme, guide_from_start=False)
        returns = np.full((3, 1), np.nan)
        _, review = scheme.review(self.state(), returns, np.ones((5, 2), np.float32), DRAW)
        assert (review["best"], review["beta"]) == (None, 1.0)


def test_random_phase():
    text, code = (resolve("HalfCheetah-v5", preset=preset).scheme for preset in PRESETS)
    assert (text.initial_steps, text.random_steps) == (2500, 2500)
    assert (code.initial_steps, code.random_steps) == (2500, 3000)
    assert resolve("Hopper-v5", preset="authors").scheme.random_steps == 1000
    assert resolve("Hopper-v5", "single").scheme.initial_steps == 1000


class TestResetting:
    scheme = Resetting(algorithm=TINY, num_learners=3)

    @staticmethod
    def copied(before, after) -> bool:
        """Whether everything is the best's now; else it must be as it was."""
        if jax.tree.all(jax.tree.map(lambda leaf, old: (leaf == old[1]).all(), after, before)):
            return True
        assert jax.tree.all(jax.tree.map(np.array_equal, after, before))
        return False

    @pytest.mark.parametrize(
        ("what", "following"),
        [("policy", set()), ("policy_and_target", {"target_policy"}),
         ("policy_target_and_moments", {"target_policy", "policy_optimizer"})],
    )  # fmt: skip
    def test_copies_exactly_what_is_named(self, what, following):
        scheme = dataclasses.replace(self.scheme, copied=what)
        state = scheme.init(jax.random.key(0), SPEC)
        # Make all learners differ in every leaf, zeros included.
        before = jax.tree.map(
            lambda leaf: leaf + np.arange(3).reshape(3, *[1] * (leaf.ndim - 1)), state.learners
        )
        returns, observations = np.array([[0.0], [2.0], [1.0]]), np.zeros((5, 2), np.float32)
        after, review = scheme.review(state._replace(learners=before), returns, observations, DRAW)
        assert review == {"best": 1, "copied_to": [0, 2]}
        fresh = after.learners
        assert self.copied(before.policy, fresh.policy)
        assert not self.copied(before.value, fresh.value)
        for name in before.extra:
            assert self.copied(before.extra[name], fresh.extra[name]) is (name in following)

    def test_nobody_to_copy_from(self):
        state = self.scheme.init(jax.random.key(0), SPEC)
        returns = np.full((3, 1), np.nan)
        after, review = self.scheme.review(state, returns, np.zeros((5, 2), np.float32), DRAW)
        assert review == {"best": None, "copied_to": []}
        assert after is state

    def test_appendix_i(self):
        for env, period in (("Ant-v5", 2000), ("Hopper-v5", 5000), ("Delayed Ant-v1", 10_000),
                            ("Delayed Walker2d-v1", 20_000), ("Pendulum-v1", 5000)):  # fmt: skip
            assert resolve(env, "re").scheme.review_period == period


class TestCenter:
    def test_gradient_of_the_centre_by_hand(self):
        """Linear policies without input: actions tanh(0.2), tanh(0.4); centre at tanh(0.1).

        d/dc beta sum_i ½(a_i - tanh(c))² = beta sum_i (tanh(c) - a_i)(1 - tanh(c)²).
        """
        algorithm = dataclasses.replace(TINY, hidden_sizes=())

        def policy(bias):
            return [{"weight": jnp.zeros((2, 1)), "bias": jnp.array([bias], jnp.float32)}]

        policies = jax.tree.map(lambda *leaves: jnp.stack(leaves), policy(0.2), policy(0.4))
        gradient = jax.grad(center_loss)(policy(0.1), algorithm, policies, jnp.zeros((5, 2)), 3.0)[
            0
        ]["bias"]
        center = np.tanh(0.1)
        expected = 3.0 * (2 * center - np.tanh(0.2) - np.tanh(0.4)) * (1 - center**2)
        assert float(gradient[0]) == pytest.approx(expected, rel=1e-5)

    def test_everyone_is_pulled_and_the_centre_follows(self):
        pulled = trained(400, scheme="center", beta=1e4, review_period=2)
        free = trained(400, scheme="center", beta=0.0, review_period=2)
        loss = {run: run.last_review["center_loss"] for run in (pulled, free)}
        assert free.last_review["center_loss"] == 0
        observations = pulled.replay.rows[:100, :4]
        spread = {
            run: distances(run.config.algorithm, run.scheme.policies(run.state),
                           run.state.center, observations).sum()
            for run in (pulled, free)
        }  # fmt: skip
        assert loss[pulled] > 0
        assert spread[pulled] < spread[free]

    def test_centre_is_evaluated_beside_the_learners(self):
        row = trained(400, scheme="center").last_evaluation
        assert np.shape(row["learner_returns"]) == (4, 2)
        assert np.shape(row["center_returns"]) == (2,)
        assert row["score"] == np.mean(row["learner_returns"], axis=1).max()


class TestPBT:
    def test_worst_quantile_continues_from_the_best(self):
        means = np.array([3.0, 1.0, np.nan, 4.0, 2.0, 0.0, 8.0, 7.0])
        for seed in range(20):
            sources = exploit(means, 0.25, np.random.default_rng(seed))
            assert [sources[i] for i in (0, 2, 3, 4, 6, 7)] == [0, 2, 3, 4, 6, 7]
            assert {sources[1], sources[5]} <= {6, 7}

    def test_who_took_over_is_judged_anew(self):
        training = small_training("Pendulum-v1", scheme="pbt", review_period=210, recent_episodes=3)
        training.run(4 * 210)
        [[_, taker]] = training.last_review["copies"]
        unknown = np.isnan(training.recent_returns).all(axis=1)
        assert unknown.tolist() == [learner == taker for learner in range(4)]
        assert None not in training.last_review["recent_returns"]
        training.close()

    def test_who_finished_no_episode_is_left_alone(self):
        for known in ([], [1.0], [1.0, 2.0], [1.0, 2.0, 0.5]):
            means = np.array(known + [np.nan] * (4 - len(known)))
            sources = exploit(means, 0.5, np.random.default_rng(0))
            worst = int(np.argmin(known)) if len(known) > 1 else 9
            assert sources == [1 if index == worst else index for index in range(4)]

    def test_perturbation(self):
        assert perturb("learning_rate", 0.1, 1.2) == pytest.approx(0.12)
        assert 1 / (1 - perturb("discount", 0.99, 1.2)) == pytest.approx(120)

    def test_review_copies_all_and_perturbs_only_the_copy(self):
        scheme = PBT(algorithm=TINY, num_learners=4, learners_start="independent")
        before = scheme.init(jax.random.key(0), SPEC)
        returns = np.array([[1.0], [2.0], [0.0], [3.0]])
        after, review = scheme.review(before, returns, np.zeros((5, 2), np.float32), DRAW)
        assert review["copies"] == [[3, 2]]
        assert scheme.outdated(review) == [2]
        for leaf, old in zip(
            jax.tree.leaves(after.learners), jax.tree.leaves(before.learners), strict=True
        ):
            assert np.array_equal(leaf, np.asarray(old)[[0, 1, 3, 3]])
        for name, values in after.own_fields.items():
            old = np.asarray(before.own_fields[name])
            assert np.array_equal(np.asarray(values)[[0, 1, 3]], old[[0, 1, 3]])
            options = [perturb(name, old[3], factor) for factor in (1.2, 1 / 1.2)]
            assert np.isclose(float(values[2]), options, rtol=1e-6).any()

    def test_own_values_are_in_force(self):
        """Equal learners on equal batches part as their learning rates do, in one program."""
        scheme = PBT(algorithm=TINY, num_learners=2, perturbed=("learning_rate",))
        state = scheme.init(jax.random.key(0), SPEC)
        rates = np.array([1e-3, 4e-3], np.float32)
        state = state._replace(own_fields={"learning_rate": jnp.asarray(rates)})
        draw = np.random.default_rng(0)
        batch = Transition(draw.normal(size=(7, 2)), draw.normal(size=(7, 1)), np.ones(7),
                           np.zeros(7), draw.normal(size=(7, 2)))  # fmt: skip
        both = jax.tree.map(lambda leaf: jnp.float32(np.stack([leaf, leaf])), batch)
        after, _ = scheme.learn(state, both, jax.random.key(1), False)
        moved = np.asarray(after.learners.value[0]["weight"] - state.learners.value[0]["weight"])
        np.testing.assert_allclose(moved[1], 4 * moved[0], rtol=2e-3, atol=1e-6)

    def test_exploration_noise_is_in_force(self):
        scheme = PBT(algorithm=TINY, num_learners=2, perturbed=("exploration_noise",))
        state = scheme.init(jax.random.key(0), SPEC)
        quiet = {"exploration_noise": jnp.array([0.0, 0.5], jnp.float32)}
        observations = np.zeros((2, 2), np.float32)
        actions = [
            np.asarray(scheme.act((scheme.policies(state), quiet), observations,
                                  jax.random.key(0), np.int32(step)))
            for step in range(2)
        ]  # fmt: skip
        assert actions[0][0] == actions[1][0]
        assert actions[0][1] != actions[1][1]


class TestDistributed:
    def test_one_policy_acts_everywhere_and_learns_n_times(self):
        training = trained(400, scheme="drl")
        assert leaves(training)[0].shape[0] == 1
        assert training.total_updates == 4 * (100 - 20)
        assert training.collector.observations.shape[0] == 4
        acting = training.scheme.acting(training.state)
        same_place = np.zeros((4, 4), np.float32)
        quiet = dataclasses.replace(
            training.scheme, algorithm=dataclasses.replace(TINY, exploration_noise=0.0)
        )
        actions = np.asarray(quiet.act(acting, same_place, jax.random.key(0), np.int32(1)))
        np.testing.assert_allclose(actions, actions[:1].repeat(4, axis=0), atol=1e-6)
        noisy = np.asarray(training.scheme.act(acting, same_place, jax.random.key(0), np.int32(1)))
        assert len(np.unique(noisy)) == 4


@pytest.mark.parametrize("scheme", ["resetting", "center", "pbt", "cem", "erl"])
def test_a_population_needs_two(scheme):
    problem = str(resolve("Pendulum-v1", scheme, num_learners=1).scheme.problem())
    assert f"scheme {scheme} needs" in problem
    assert "two" in problem


def test_names_of_the_paper():
    for name in ("eso", "Re", "DRL", "P3S-TD3", "center-td3", "ESO-TD3", "pbt", "CEM-TD3",
                 "ERL"):  # fmt: skip
        assert scheme_name(name) in SCHEMES


OTHER_VALUES = {
    "p3s": {
        "num_learners": 2, "review_period": 30, "recent_episodes": 2, "updates_per_step": 2,
        "initial_steps": 30, "random_until": "next_thousand", "learners_start": "independent",
        "beta": 3.0, "rho": 0.1, "d_min": 1.0, "beta_limit": 1.0,
        "distance_estimate": "every_minibatch", "left_out": "new_best",
        "guide_from_start": False, "batch_size": 9, "policy_period": 3,
        "normalise_observations": True,
    },
    "resetting": {"review_period": 30, "copied": "policy_and_target"},
    "center": {"review_period": 30, "beta": 3.0, "center_learning_rate": 0.01},
    "pbt": {"quantile": 0.5, "perturbation": 2.0, "perturbed": ("discount",)},
}  # fmt: skip
"""For every field of the schemes, and those of algorithms that the loop uses, another value."""

OTHER_VALUES_OF_ROUNDS = {
    "cem": {
        "num_selected": 1, "num_elites": 1, "selection": "first", "sampling": "mirrored",
        "elite_weights": "log", "variance_estimate": "cem_rl", "update_order": "values_first",
        "initial_variance": 0.1, "damping": 0.1, "final_damping": 0.1, "damping_decay": 0.5,
        "episodes_per_round": 2, "initial_steps": 60,
    },
    "erl": {
        "elite_fraction": 0.5, "mutation_probability": 0.1, "mutated_share": 0.9,
        "mutation_strength": 1.0, "synchronization_period": 1, "episodes_per_round": 2,
    },
}  # fmt: skip
"""The same for the schemes that work in rounds."""


class TestFields:
    """A hyper-parameter is written once, arrives, and changes something."""

    def history(self, scheme, **fields):
        """What a short run leaves behind, in a form that tells any two runs apart."""
        # Reacher has two action dimensions, so that sum and mean differ.
        defaults = {
            "p3s": {"recent_episodes": 1, "review_period": 25, "d_min": 0.0},
        }.get(scheme, {"recent_episodes": 1, "review_period": 25})
        fields = {"evaluation_period": 0, **defaults, **fields}
        training = small_training("Reacher-v5", scheme=scheme, **fields)
        reviews = []
        for _ in range(6):
            training.run(training.total_steps + 25 * training.scheme.num_learners)
            reviews.append(str(training.last_review))
        state = jax.tree.leaves(training.state)
        return reviews, [np.asarray(leaf).tobytes() for leaf in state]

    @pytest.fixture(scope="class")
    def references(self):
        return {}

    @pytest.mark.parametrize(
        ("scheme", "name"),
        [(scheme, name) for scheme in OTHER_VALUES for name in OTHER_VALUES[scheme]],
    )
    def test_none_is_dead(self, scheme, name, references):
        if scheme not in references:
            references[scheme] = self.history(scheme)
        assert self.history(scheme, **{name: OTHER_VALUES[scheme][name]}) != references[scheme]

    def rounds(self, scheme, **fields):
        """What two rounds leave behind, and what would be learned when: nothing is trained."""
        small = {"hidden_sizes": (4,), "num_learners": 4, "initial_steps": 1}
        own = {"cem": {"damping": 0.01}, "erl": {"synchronization_period": 3}}[scheme]
        made = resolve(None, scheme, **{**small, **own, **fields}).scheme
        state, draw = jax.jit(made.init, static_argnums=1)(jax.random.key(0), SPEC), []
        generator = np.random.default_rng(0)
        returns = np.resize([3.0, 1.0, 4.0, 2.0, 5.0], (made.num_envs, made.num_recent))
        for _ in range(2):
            state, review = made.review(state, returns, np.zeros((5, 2), np.float32), generator)
            draw.append(str(review))
        leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]
        everyone, rhythm = np.arange(made.num_envs), made.rhythm()
        due = [rhythm.after(step, everyone, everyone.tolist()) for step in range(1, 4)]
        learning = [(made.with_policy(1, place, 4), made.num_batches(True)) for place in range(4)]
        return draw, leaves, due, learning

    @pytest.mark.parametrize(
        ("scheme", "name"),
        [(scheme, name) for scheme, own in OTHER_VALUES_OF_ROUNDS.items() for name in own],
    )
    def test_none_is_dead_in_rounds(self, scheme, name, references):
        if scheme not in references:
            references[scheme] = self.rounds(scheme)
        other = OTHER_VALUES_OF_ROUNDS[scheme][name]
        assert self.rounds(scheme, **{name: other}) != references[scheme]

    def test_all_are_covered(self):
        """The fields of algorithms that the loop does not use: tests/test_algorithms.py."""
        used_by_the_loop = {"batch_size", "policy_period", "normalise_observations"}
        known, covered = set(used_by_the_loop), set()
        for scheme in SCHEMES:
            known |= set(field_values(resolve(None, scheme).scheme))
            covered |= {*OTHER_VALUES.get(scheme, ()), *OTHER_VALUES_OF_ROUNDS.get(scheme, ())}
        assert known == covered

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


@pytest.mark.parametrize("name", SCHEMES)
def test_page_names_every_field(name):
    pages = Path(__file__).parent.parent / "docs" / "schemes"
    text = (pages / f"{name}.md").read_text() + (pages / "README.md").read_text()
    fields = {field.name for field in dataclasses.fields(SCHEMES[name])} - {"algorithm"}
    missing = {field for field in fields if f"`--{field.replace('_', '-')}`" not in text}
    assert not missing
