"""XQC: binned returns by hand, its steps against numpy, the step size, modes, files and presets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import XQC
from p3s.algorithms.parts.bins import bin_values, cross_entropy, mean_return, share_out
from p3s.algorithms.parts.joint_batch import joint_pass
from p3s.algorithms.parts.squashed_gaussian import gaussian, gaussian_of, squashed_sample
from p3s.algorithms.xqc import discount_for
from p3s.cli.train import parse_train
from p3s.config.run import Config, resolve
from p3s.learning.learners import update_learners
from p3s.networks import apply_network, part, train_network
from p3s.policies.policy import Policy
from p3s.trees import pick
from p3s.types import EnvSpec, Guide
from tests.helpers import assert_file_and_export, leaves, problem_of
from tests.helpers_losses import log_softmax, random_batch

SPEC = EnvSpec.flat(3, 2)
BATCH = random_batch(SPEC, 0)
KEY = jax.random.key(5)


class TestBins:
    """Five bins from -2 to 2: -2, -1, 0, 1, 2."""

    def shared(self, *mass: tuple[float, float]) -> list[float]:
        values, probabilities = (jnp.array([part], jnp.float32) for part in zip(*mass, strict=True))
        return share_out(probabilities, values, 5, 2.0)[0].tolist()

    def test_values(self):
        np.testing.assert_allclose(bin_values(5, 2.0), [-2, -1, 0, 1, 2])
        assert float(bin_values(101, 5.0)[50]) == 0

    def test_on_a_bin(self):
        assert self.shared((1.0, 1.0)) == [0, 0, 0, 1, 0]

    def test_between_two_bins(self):
        """0.25 lies a quarter of the way from 0 to 1; -1.5 halfway from -2 to -1."""
        assert self.shared((0.25, 0.8), (-1.5, 0.2)) == pytest.approx([0.1, 0.1, 0.6, 0.2, 0])

    def test_beyond_the_ends(self):
        assert self.shared((7.0, 0.3), (-2.1, 0.5), (2.0, 0.2)) == pytest.approx(
            [0.5, 0, 0, 0, 0.5]
        )

    def test_mass_and_mean_are_kept_inside(self):
        draw = np.random.default_rng(0)
        values = draw.uniform(-2, 2, (9, 5)).astype(np.float32)
        mass = draw.dirichlet(np.ones(5), 9).astype(np.float32)
        found = share_out(mass, values, 5, 2.0)
        np.testing.assert_allclose(found.sum(axis=1), np.ones(9), rtol=1e-5)
        np.testing.assert_allclose(
            (found * bin_values(5, 2.0)).sum(axis=1), (mass * values).sum(axis=1), atol=1e-5
        )

    def test_mean_by_hand(self):
        """Odds of 1 : 3 at 0 and 1, nothing elsewhere."""
        logits = jnp.array([-99.0, -99.0, 0.0, np.log(3.0), -99.0])
        assert float(mean_return(logits, bin_values(5, 2.0))) == pytest.approx(0.75)

    def test_cross_entropy_by_hand(self):
        """-(0.5 log 0.25 + 0.5 log 0.75), for odds of 1 : 3."""
        logits, target = jnp.log(jnp.array([[[1.0, 3.0]]])), jnp.array([[0.5, 0.5]])
        expected = -0.5 * np.log(0.25) - 0.5 * np.log(0.75)
        assert float(cross_entropy(logits, target)[0, 0]) == pytest.approx(expected)

    def test_the_slope_is_prediction_less_target(self):
        logits, target = jnp.log(jnp.array([[[1.0, 3.0]]])), jnp.array([[0.5, 0.5]])
        slope = jax.grad(lambda logits: cross_entropy(logits, target).sum())(logits)
        np.testing.assert_allclose(slope[0, 0], [-0.25, 0.25], rtol=1e-5)


@pytest.fixture(scope="module")
def stepped():
    """A learner at its start, after a value step, and after a policy step on that."""
    made = XQC(hidden_sizes=(8,), num_bins=5, value_limit=2.0, initial_temperature=0.3)
    start = jax.jit(made.init, static_argnums=1)(jax.random.key(0), SPEC)
    guide = Guide(start.policy, jnp.float32(0.5))
    valued, value_metrics = jax.jit(made.value_step)(start, BATCH, KEY)
    after, metrics = jax.jit(made.policy_step)(valued, BATCH, guide, KEY)
    return made, start, valued, after, {**value_metrics, **metrics}


@pytest.mark.slow
class TestSteps:
    def test_value_loss(self, stepped):
        """Row by row: the network with the smaller mean, its bins moved, shared out, compared."""
        _, start, _, _, metrics = stepped
        noise = jax.random.normal(KEY, (7, 2), jnp.float32)
        seen = gaussian(start.policy, BATCH.next_observation)
        action, log_density = squashed_sample(seen, noise)
        now, ahead, _ = joint_pass(start.value, BATCH, action)
        bins = np.linspace(-2, 2, 5)
        loss, means = 0.0, []
        for row in range(7):
            chances = np.exp(log_softmax(np.asarray(ahead[:, row], np.float64)))
            chosen = chances[np.argmin(chances @ bins)]
            soft = bins - 0.3 * float(log_density[row])
            moved = BATCH.reward[row] + BATCH.discount[row] * 0.99 * soft
            target = np.zeros(5)
            for chance, value in zip(chosen, np.clip(moved, -2, 2), strict=True):
                below = min(int(np.floor(value + 2)), 3)
                target[below] += chance * (below + 1 - (value + 2))
                target[below + 1] += chance * (value + 2 - below)
            means.append(target @ bins)
            for network in (0, 1):
                loss -= target @ log_softmax(np.asarray(now[network, row], np.float64)) / 7
        assert float(metrics.loss) == pytest.approx(loss, rel=1e-4)
        assert float(metrics.target_mean) == pytest.approx(np.mean(means), abs=1e-5)

    def test_policy_loss(self, stepped):
        made, _, valued, _, metrics = stepped
        outputs, _ = train_network(valued.policy, BATCH.observation)
        noise = jax.random.normal(KEY, (7, 2), jnp.float32)
        action, log_density = squashed_sample(gaussian_of(outputs), noise)
        value = made.action_value(valued, BATCH.observation, action)
        expected = jnp.mean(0.3 * log_density - value) + 0.5 * metrics.guide_distance
        assert float(metrics.loss) == pytest.approx(float(expected), rel=1e-4)

    def test_value_is_the_smaller_mean_in_evaluation_mode(self, stepped):
        made, _, valued, _, _ = stepped
        logits = [
            apply_network(pick(valued.value, j), BATCH.observation, BATCH.action) for j in (0, 1)
        ]
        means = [np.exp(log_softmax(np.asarray(each))) @ np.linspace(-2, 2, 5) for each in logits]
        found = made.action_value(valued, BATCH.observation, BATCH.action)
        np.testing.assert_allclose(found, np.min(means, axis=0), rtol=1e-4, atol=1e-5)

    def test_weights_stay_at_norm_one(self, stepped):
        _, start, valued, after, _ = stepped
        for model in (start.value, valued.value, start.policy, after.policy):
            for layer in model.params["layers"]:
                norms = np.linalg.norm(layer["weight"], axis=-2)
                np.testing.assert_allclose(norms, np.ones_like(norms), rtol=1e-5)
        assert any(map(np.any, leaves(after.value.params["layers"][-1]["bias"])))

    def test_statistics_are_those_of_both_halves(self, stepped):
        _, _, valued, after, _ = stepped
        both = np.concatenate([BATCH.observation, BATCH.next_observation])
        running = valued.value.params["norms"][0]["running"].value
        np.testing.assert_allclose(running["mean"][0, :3], 0.01 * both.mean(axis=0), rtol=1e-4)
        copied = valued.targets["value"].params["norms"][0]["running"].value
        assert np.array_equal(copied["mean"], running["mean"])
        pairs = zip(leaves(after.value), leaves(valued.value), strict=True)
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)

    def test_files_and_exports_hold_the_statistics(self, stepped, tmp_path):
        made, _, _, after, _ = stepped
        policy = after.policy
        for seed in range(100):
            _, policy = train_network(policy, 3 + random_batch(SPEC, seed).observation)
        about = {"action_low": [-2.0, 0.0], "action_high": [2.0, 1.0], "action_shape": [2]}
        assert_file_and_export(Policy(made, jax.device_get(policy), SPEC, about), tmp_path)
        np.testing.assert_allclose(
            apply_network(part(policy), BATCH.observation),
            apply_network(policy, BATCH.observation),
            rtol=1e-4,
            atol=1e-5,
        )


def test_the_step_size_falls_in_a_line():
    """From 0.1 to a tenth of it over four steps; Adam's steps have the size of its rate."""
    made = XQC(learning_rate=0.1, learning_rate_end=0.1, learning_rate_steps=4)
    params, state, sizes = jnp.float32(0.0), made.start_optimizer(jnp.float32(0.0)), []
    for _ in range(6):
        before = float(params)
        params, state, _, _ = made.minimize(lambda x: (x, (x, None)), params, state)
        sizes.append(before - float(params))
    assert sizes == pytest.approx([0.1, 0.0775, 0.055, 0.0325, 0.01, 0.01], rel=1e-3)


def test_the_policys_statistics_move_at_every_update():
    """From mean 0 three passes over the same states: 1 - 0.99³ of their mean."""
    made = XQC(hidden_sizes=(4,), num_bins=5)
    learners = jax.tree.map(lambda leaf: leaf[None], made.init(jax.random.key(0), SPEC))
    batches = jax.tree.map(lambda leaf: leaf[None], BATCH)
    guide = Guide(pick(learners, 0).policy, jnp.zeros(1))
    start = learners.policy.params
    for with_policy in (False, False, True):
        before = learners.policy.params["layers"]
        learners, _ = update_learners(
            made, learners, batches, guide, KEY, jnp.arange(1), with_policy
        )
        trained = zip(leaves(before), leaves(learners.policy.params["layers"]), strict=True)
        assert all(np.array_equal(*pair) for pair in trained) is not with_policy
    running = learners.policy.params["norms"][0]["running"].value
    expected = (1 - 0.99**3) * BATCH.observation.mean(axis=0)
    np.testing.assert_allclose(running["mean"][0], expected, rtol=1e-4)
    assert not np.any(start["norms"][0]["running"].value["mean"])


class TestDecay:
    """By default the step size falls over the updates of the run: two per environment step."""

    @pytest.mark.parametrize("scheme", ["single", "p3s", "sharing"])
    def test_it_ends_with_the_run(self, scheme):
        made = resolve("Hopper-v5", scheme, "xqc", steps=10_000).algorithm
        assert made.learning_rate_steps == 20_000
        sizes = [float(made.step_size(count)) for count in (0, 10_000, 20_000, 30_000)]
        assert sizes == pytest.approx([3e-4, 1.65e-4, 3e-5, 3e-5])

    def test_it_follows_the_updates_per_step(self):
        config = resolve("Hopper-v5", "single", "xqc", steps=10_000, updates_per_step=1)
        assert config.algorithm.learning_rate_steps == 10_000
        assert resolve("Hopper-v5", "single", "xqc").algorithm.learning_rate_steps == 2_000_000
        assert resolve("Hopper-v5", "erl", "xqc", steps=700).algorithm.learning_rate_steps == 700

    def test_it_follows_the_command_line(self):
        words = ["Hopper-v5", "--scheme", "single", "--algorithm", "xqc", "--steps", "3000"]
        config, _ = parse_train(words)
        assert config.algorithm.learning_rate_steps == 6000
        config, _ = parse_train([*words, "--learning-rate-steps", "50"])
        assert config.algorithm.learning_rate_steps == 50

    def test_a_longer_resumed_run_keeps_it(self):
        record = resolve("Hopper-v5", "single", "xqc", steps=10_000).to_json()
        longer = Config.from_json({**record, "steps": 90_000})
        assert longer.settled().algorithm.learning_rate_steps == 20_000

    def test_without_a_run_nothing_falls(self):
        assert XQC().step_size == 3e-4


def test_values_of_the_original_code():
    made = XQC()
    assert (made.num_bins, made.value_limit, made.num_critics) == (101, 5.0, 2)
    assert (made.learning_rate, made.policy_period, made.target_rate) == (3e-4, 3, 0.005)
    assert (made.initial_temperature, made.target_entropy) == (0.01, -0.5)
    assert (made.network, made.normalize_rewards, made.batch_size) == ("batch_norm", True, 256)
    assert problem_of(XQC(num_bins=1)) == "num_bins must be at least 2, not 1"


@pytest.mark.parametrize(
    ("env", "discount"),
    [("Hopper-v5", 0.995), ("p3s/DelayedHopper-v5", 0.995), ("Pendulum-v1", 0.975), (None, 0.99)],
)
def test_presets(env, discount):
    config = resolve(env, "single", "xqc")
    assert config.algorithm.discount_factor == discount
    assert (config.scheme.initial_steps, config.scheme.updates_per_step) == (5000, 2)
    assert resolve(env, "p3s", "xqc", "authors").scheme.updates_per_step == 8


def test_discount_by_the_length_of_episodes():
    """(T/5 - 1) / (T/5), between 0.95 and 0.995."""
    assert [discount_for(length) for length in (50, 200, 500, 1000, 9000)] == [
        0.95, 0.975, 0.99, 0.995, 0.995,
    ]  # fmt: skip
