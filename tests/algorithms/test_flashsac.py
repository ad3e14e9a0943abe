"""FlashSAC: its network and steps against numpy, its noise, its scale of rewards, its schedule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import FlashSAC
from p3s.algorithms.flashsac import WINDOW, held_since
from p3s.algorithms.parts.squashed_gaussian import gaussian, gaussian_of, squashed_sample
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.experience.reward_scale import RewardScale
from p3s.learning.learners import act
from p3s.networks import NETWORKS, apply_network, init_model, train_network
from p3s.trees import pick
from p3s.types import EnvSpec, Guide
from tests.helpers import leaves
from tests.helpers_losses import log_softmax, random_batch

SPEC = EnvSpec.flat(3, 2)
BATCH = random_batch(SPEC, 0)
KEY = jax.random.key(5)
SMALL = {"hidden_sizes": (4, 4), "policy_hidden_sizes": (4, 4)}


def residual(sizes: tuple[int, ...] = (4, 4), **fields):
    network = NETWORKS["residual_norm"](
        hidden_sizes=sizes,
        activation="relu",
        layer_norm=False,
        initialization="orthogonal",
        **fields,
    )
    return init_model(network, jax.random.key(1), [(3,)], 2)


def by_hand(params, inputs: np.ndarray) -> np.ndarray:
    """A pass in training mode, in double precision."""

    def normalized(norm, values):
        scaled = (values - values.mean(axis=0)) / np.sqrt(values.var(axis=0) + 1e-5)
        return scaled * np.asarray(norm["scale"]) + np.asarray(norm["shift"])

    first, *inner, last = [np.asarray(layer["weight"], np.float64) for layer in params["layers"]]
    stream = normalized(params["norms"][0], inputs) @ first
    for block in (0, 1):
        wide = np.maximum(normalized(params["norms"][1 + 2 * block], stream @ inner[2 * block]), 0)
        narrow = normalized(params["norms"][2 + 2 * block], wide @ inner[2 * block + 1])
        stream = stream + np.maximum(narrow, 0)
    stream = stream / np.sqrt(np.mean(stream**2, axis=1, keepdims=True) + 1e-6)
    stream = stream * np.asarray(params["last_norm"]["scale"])
    return stream @ last + np.asarray(params["layers"][-1]["bias"])


def moved(params):
    """Parameters as a gradient step may leave them, projected."""
    draw = np.random.default_rng(2)

    def move(leaf):
        leaf = np.asarray(leaf)
        if leaf.dtype != np.float32:
            return leaf
        return leaf + draw.normal(size=leaf.shape, scale=0.3).astype(np.float32)

    return residual().network.project(jax.tree.map(move, params))


class TestNetwork:
    def test_a_pass_by_hand(self):
        model = residual()
        params = moved(model.params)
        outputs, after = model.network.apply(params, BATCH.observation, train=True)
        np.testing.assert_allclose(
            outputs, by_hand(params, BATCH.observation), rtol=1e-4, atol=1e-5
        )
        before = params["norms"][0]["running"].value
        running = after["norms"][0]["running"].value
        expected = 0.99 * before["variance"] + 0.01 * BATCH.observation.var(axis=0, ddof=1)
        np.testing.assert_allclose(running["variance"], expected, rtol=1e-5)

    def test_widths(self):
        shapes = [layer["weight"].shape for layer in residual().params["layers"]]
        assert shapes == [(3, 4), (4, 16), (16, 4), (4, 16), (16, 4), (4, 2)]
        assert [sorted(layer) for layer in residual().params["layers"]][-2:] == [
            ["weight"], ["bias", "weight"],
        ]  # fmt: skip

    def test_weights_and_norms_are_of_unit_size(self):
        """A unit's incoming weights have norm 1; scale and shift together as many as units."""
        params = moved(residual().params)
        for layer in params["layers"]:
            np.testing.assert_allclose(np.linalg.norm(layer["weight"], axis=0), 1, rtol=1e-5)
        for norm in params["norms"]:
            squares = np.sum(np.square(norm["scale"])) + np.sum(np.square(norm["shift"]))
            assert squares == pytest.approx(len(norm["scale"]), rel=1e-5)
        assert np.sum(np.square(params["last_norm"]["scale"])) == pytest.approx(4, rel=1e-5)

    def test_stacked_ones_are_projected_one_by_one(self):
        models = [moved(residual().params), residual().params]
        stacked = jax.tree.map(lambda *parts: jnp.stack(parts) * 3.0, *models)
        together = residual().network.project(stacked)
        for index in (0, 1):
            alone = residual().network.project(pick(stacked, index))
            for one, other in zip(leaves(pick(together, index)), leaves(alone), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6)

    @pytest.mark.parametrize("sizes", [(4, 8), ()])
    def test_blocks_have_one_width(self, sizes):
        with pytest.raises(UserError, match="blocks of one width, such as 256-256"):
            residual(sizes)


class TestPolicy:
    def test_log_std_is_bounded_softly(self):
        outputs = jnp.array([[0.0, 0.0, 99.0], [0.0, 0.0, -99.0]])
        found = gaussian_of(jnp.concatenate([outputs, outputs], axis=1), soft=True).log_std
        np.testing.assert_allclose(found, [[-4.0, -4.0, 2.0], [-4.0, -4.0, -10.0]], atol=1e-6)

    def test_the_network_says_so(self):
        policy = FlashSAC(**SMALL).init(KEY, SPEC).policy
        expected = gaussian_of(apply_network(policy, BATCH.observation), soft=True)
        np.testing.assert_array_equal(gaussian(policy, BATCH.observation).log_std, expected.log_std)

    def test_the_entropy_that_it_aims_at(self):
        assert FlashSAC().target_entropy == pytest.approx(
            0.5 * np.log(2 * np.pi * np.e * 0.15**2), abs=1e-4
        )


class TestHeldNoise:
    starts = staticmethod(
        jax.jit(jax.vmap(lambda step, longest=16: held_since(KEY, step, longest)))
    )

    def test_lengths_are_drawn_in_proportion_to_their_inverse_square(self):
        steps = jnp.arange(40 * WINDOW, dtype=jnp.int32)
        starts = np.asarray(self.starts(steps))
        assert (starts <= np.asarray(steps)).all()
        assert (np.diff(starts) >= 0).all()
        _, lengths = np.unique(starts, return_counts=True)
        assert lengths.max() == 16
        expected = 1 / np.arange(1, 17) ** 2.0
        shares = np.bincount(lengths, minlength=17)[1:] / len(lengths)
        np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.02)

    def test_one_is_no_holding(self):
        steps = jnp.arange(100, dtype=jnp.int32)
        found = jax.vmap(lambda step: held_since(KEY, step, 1))(steps)
        np.testing.assert_array_equal(found, steps)

    def test_actions_follow(self):
        """All learners change their noise at once, and each has its own."""
        algorithm = FlashSAC(**SMALL)
        learner = algorithm.init(KEY, SPEC)
        policies = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), learner.policy)
        seen = jnp.zeros((3, 3), jnp.float32)
        actions = np.stack(
            [
                act(algorithm, policies, seen, KEY, jnp.arange(3), jnp.int32(step), explore=True)
                for step in range(20)
            ]
        )
        starts = np.asarray(self.starts(jnp.arange(20, dtype=jnp.int32)))
        same = np.diff(starts) == 0
        assert same.any()
        assert not same.all()
        np.testing.assert_array_equal((np.diff(actions, axis=0) == 0).all(axis=(1, 2)), same)
        assert len(np.unique(actions[0, :, 0])) == 3


@pytest.fixture(scope="module")
def stepped():
    made = FlashSAC(**SMALL, num_bins=5, value_limit=2.0, initial_temperature=0.3)
    start = jax.jit(made.init, static_argnums=1)(jax.random.key(0), SPEC)
    valued, value_metrics = jax.jit(made.value_step)(start, BATCH, KEY)
    guide = Guide(start.policy, jnp.float32(0.5))
    after, metrics = jax.jit(made.policy_step)(valued, BATCH, guide, KEY)
    return made, start, valued, after, {**value_metrics, **metrics}


@pytest.mark.slow
class TestSteps:
    def test_value_loss_is_a_mean_over_networks(self, stepped):
        made, start, _, _, metrics = stepped
        target = made.soft_target(start, BATCH, KEY)
        both = np.concatenate([BATCH.observation, BATCH.next_observation])
        actions = np.concatenate([BATCH.action, target.next_action])
        losses = []
        for network in (0, 1):
            logits, _ = train_network(pick(start.value, network), both, actions)
            chances = log_softmax(np.asarray(logits[:7], np.float64))
            losses.append(-np.sum(np.asarray(target.probabilities) * chances) / 7)
        assert float(metrics.loss) == pytest.approx(np.mean(losses), rel=1e-4)

    def test_policy_is_normalized_over_both_halves(self, stepped):
        made, _, valued, after, metrics = stepped
        both = np.concatenate([BATCH.observation, BATCH.next_observation])
        outputs, moved_on = train_network(valued.policy, both)
        noise = jax.random.normal(KEY, (7, 2), jnp.float32)
        action, log_density = squashed_sample(gaussian_of(outputs[:7], soft=True), noise)
        value = made.action_value(valued, BATCH.observation, action)
        expected = jnp.mean(0.3 * log_density - value) + 0.5 * metrics.guide_distance
        assert float(metrics.loss) == pytest.approx(float(expected), rel=1e-4)
        running = [model.params["norms"][0]["running"].value for model in (after.policy, moved_on)]
        np.testing.assert_allclose(running[0]["mean"], running[1]["mean"], rtol=1e-6)

    def test_between_policy_steps_nothing_moves(self, stepped):
        made, _, valued, _, _ = stepped
        assert made.between_policy_steps(valued, BATCH) is valued

    def test_targets_are_left_unprojected(self, stepped):
        _, start, valued, _, _ = stepped
        for network in (0, 1):
            mixed = jax.tree.map(
                lambda old, new: 0.99 * old + 0.01 * new,
                pick(start.targets["value"], network).params["layers"],
                pick(valued.value, network).params["layers"],
            )
            found = pick(valued.targets["value"], network).params["layers"]
            for one, other in zip(leaves(found), leaves(mixed), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_rewards_are_scaled_until_every_return_fits():
    """Discounted returns 1, 1.5, 1.75 and then 10: largest / 5 = 2 beside a std of 3.7."""
    scale, plain = RewardScale(0.5, 5.0), RewardScale(0.5)
    for reward in (1.0, 1.0, 1.0):
        for each in (scale, plain):
            each.see(np.array([reward]), [0], [])
    deviation = np.std([1.0, 1.5, 1.75])
    assert plain.divisor(True) == pytest.approx(deviation)
    assert scale.divisor(True) == pytest.approx(max(deviation, 1.75 / 5))
    scale.see(np.array([10.0]), [1], [1])
    assert scale.divisor(True) == pytest.approx(np.std([1.0, 1.5, 1.75, 10.0]))
    other = RewardScale(0.5, 5.0)
    other.resume(scale.snapshot())
    for each in (scale, other):
        each.see(np.array([0.0]), [0], [])
    assert scale.divisor(True) == other.divisor(True)


def test_step_size_falls_by_half_along_a_cosine():
    size = FlashSAC(learning_rate_steps=1000).step_size
    assert [float(size(count)) for count in (0, 500, 1000, 5000)] == pytest.approx(
        [3e-4, 2.25e-4, 1.5e-4, 1.5e-4]
    )


@pytest.mark.parametrize(("num_learners", "own"), [(1, 10_000), (4, 2500)])
def test_settings_of_the_original(num_learners, own):
    config = resolve("HalfCheetah-v5", algorithm="flashsac", num_learners=num_learners, steps=10**6)
    algorithm, scheme = config.algorithm, config.scheme
    assert scheme.initial_steps == own
    assert algorithm.initialization == "orthogonal"
    assert algorithm.learning_rate_steps == 10**6
    assert scheme.updates_per_environment_step() == 1
    assert (algorithm.batch_size, algorithm.discount_factor, algorithm.policy_period) == (
        512,
        0.99,
        2,
    )
