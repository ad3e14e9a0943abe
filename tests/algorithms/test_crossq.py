"""CrossQ and CrossQ-TD3: the joint batch by hand, which mode is used where, files and presets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import SAC, TD3, XQC, CrossQ, CrossQTD3
from p3s.algorithms.off_policy import bootstrap
from p3s.algorithms.parts.joint_batch import joint_value_loss
from p3s.config.run import resolve
from p3s.networks import apply_network, part, train_network
from p3s.policies.policy import Policy
from p3s.trees import pick
from p3s.types import EnvSpec, Guide, Transition
from tests.helpers import assert_file_and_export, leaves
from tests.helpers_losses import linear, random_batch

SPEC = EnvSpec.flat(3, 2)
BATCH = random_batch(SPEC, 0)
KEY = jax.random.key(5)
BOTH = [CrossQ, CrossQTD3]


class TestJointBatch:
    """One state; Q_1 = 2a and Q_2 = 3a + 1, r = 1, gamma = 0.5; a = 0.2, a' = 0.4."""

    values = jax.tree.map(
        lambda *pair: jnp.stack(pair),
        linear([[0.0], [2.0]], [0.0], 1, 1),
        linear([[0.0], [3.0]], [1.0], 1, 1),
    )
    one = np.ones((1, 1), np.float32)
    batch = Transition(one, 0.2 * one, np.ones(1, np.float32), np.ones(1, np.float32), one)

    def loss(self, values):
        def target_of(ahead):
            return bootstrap(self.batch, 0.5, ahead.min(axis=0))

        return joint_value_loss(values, self.batch, 0.4 * self.one, target_of)

    def test_by_hand(self):
        """q' = 0.8 and 2.2, so y = 1 + 0.5 · 0.8 = 1.4; q = 0.4 and 1.6."""
        loss, (_, target) = self.loss(self.values)
        assert float(target) == pytest.approx(1.4)
        assert float(loss) == pytest.approx(0.5 * ((0.4 - 1.4) ** 2 + (1.6 - 1.4) ** 2))

    def test_the_target_has_no_gradient(self):
        """Slopes at the biases: q - y, though y depends on the first bias too."""
        slopes = jax.grad(lambda values: self.loss(values)[0])(self.values)
        np.testing.assert_allclose(slopes.params[0]["bias"][:, 0], [-1.0, 0.2], rtol=1e-5)

    def test_no_lookahead_after_a_termination(self):
        over = self.batch._replace(discount=np.zeros(1, np.float32))
        _, (_, target) = joint_value_loss(
            self.values, over, 0.4 * self.one, lambda ahead: bootstrap(over, 0.5, ahead[0])
        )
        assert float(target) == 1


@pytest.fixture(
    scope="module",
    params=[CrossQ, pytest.param(CrossQTD3, marks=pytest.mark.slow)],
    ids=lambda kind: kind.name,
)
def stepped(request):
    """A learner at its start, after a value step, and after a policy step on that."""
    made = request.param(hidden_sizes=(8,))
    start = jax.jit(made.init, static_argnums=1)(jax.random.key(0), SPEC)
    guide = Guide(start.policy, jnp.float32(0.5))
    valued, _ = jax.jit(made.value_step)(start, BATCH, KEY)
    after, metrics = jax.jit(made.policy_step)(valued, BATCH, guide, KEY)
    return made, start, valued, after, metrics


def first_norm(model):
    return model.params["norms"][0]["running"].value


class TestModes:
    def test_values_are_normalized_by_both_halves_together(self, stepped):
        """The running mean of the inputs after one pass: a hundredth of the joint batch's mean."""
        _, _, valued, _, _ = stepped
        both = np.concatenate([BATCH.observation, BATCH.next_observation])
        running = first_norm(pick(valued.value, 0))
        np.testing.assert_allclose(running["mean"][:3], 0.01 * both.mean(axis=0), rtol=1e-4)
        expected = 0.99 + 0.01 * both.var(axis=0)
        np.testing.assert_allclose(running["variance"][:3], expected, rtol=1e-5)
        assert int(running["passes"]) == 1

    def test_the_policy_is_normalized_by_the_minibatch(self, stepped):
        _, _, _, after, _ = stepped
        expected = 0.01 * BATCH.observation.mean(axis=0)
        np.testing.assert_allclose(first_norm(after.policy)["mean"], expected, rtol=1e-4)
        assert int(first_norm(after.policy)["passes"]) == 1

    def test_the_policy_climbs_values_in_evaluation_mode(self, stepped):
        """Its step does not move their statistics, and its loss is that of single states."""
        made, _, valued, after, metrics = stepped
        pairs = zip(leaves(after.value), leaves(valued.value), strict=True)
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)
        if made.name == "crossq":
            return
        outputs, _ = train_network(valued.policy, BATCH.observation)
        first = pick(valued.value, 0)
        rows = zip(BATCH.observation, np.tanh(outputs), strict=True)
        value = np.mean([apply_network(first, seen, action)[0] for seen, action in rows])
        loss = float(metrics.loss) - 0.5 * float(metrics.guide_distance)
        assert loss == pytest.approx(-value, rel=1e-4, abs=1e-5)

    def test_there_are_no_targets(self, stepped):
        made, start, *_ = stepped
        assert start.targets == {}
        assert not hasattr(made, "target_rate")

    def test_files_and_exports_hold_the_statistics(self, stepped, tmp_path):
        """After many passes the norms are far from where they start."""
        made, *_, after, _ = stepped
        policy = after.policy
        for seed in range(200):
            _, policy = train_network(policy, 3 + random_batch(SPEC, seed).observation)
        assert float(jnp.abs(first_norm(policy)["mean"]).min()) > 2
        about = {"action_low": [-2.0, 0.0], "action_high": [2.0, 1.0], "action_shape": [2]}
        assert_file_and_export(Policy(made, jax.device_get(policy), SPEC, about), tmp_path)
        folded = part(policy)
        np.testing.assert_allclose(
            apply_network(folded, BATCH.observation),
            apply_network(policy, BATCH.observation),
            rtol=1e-4,
            atol=1e-5,
        )


def test_adam_by_hand():
    """Slopes 1 and 3: the mean of gradients is (b (1 - b) + 3 (1 - b)) / (1 - b²), b = 0.5."""
    made = CrossQ(learning_rate=0.1)
    assert made.adam_momentum == 0.5
    params, state = jnp.float32(0.0), made.start_optimizer(jnp.float32(0.0))
    params, state, _, _ = made.minimize(lambda x: (x, (x, None)), params, state)
    assert float(params) == pytest.approx(-0.1, rel=1e-4)
    params, state, _, _ = made.minimize(lambda x: (3 * x, (x, None)), params, state)
    mean = (0.5 * 0.5 * 1 + 0.5 * 3) / (1 - 0.5**2)
    square = (0.999 * 0.001 * 1 + 0.001 * 9) / (1 - 0.999**2)
    assert float(params) == pytest.approx(-0.1 - 0.1 * mean / np.sqrt(square), rel=1e-3)


@pytest.mark.parametrize(("kind", "second"), [(CrossQ, 1.5), (XQC, 1.5), (SAC, 3.0)])
def test_a_step_of_the_temperature(kind, second):
    """Entropies 1 and 3 above their goal, at alpha = 1 and 0.5: slopes of alpha * excess by log
    alpha are 1 and 1.5, of log alpha * excess 1 and 3; Adam's own momentum, b = 0.9."""
    made = kind(hidden_sizes=(4,), learning_rate=1e-3, initial_temperature=1.0)
    learner = made.init(jax.random.key(0), SPEC)
    _, state = made._adapt_temperature(learner, jnp.float32(1.0))
    learner = learner._replace(
        extra={"log_temperature": jnp.log(jnp.float32(0.5))},
        optimizers={**learner.optimizers, "temperature": state},
    )
    after, _ = made._adapt_temperature(learner, jnp.float32(3.0))
    mean = (0.9 * 0.1 * 1 + 0.1 * second) / (1 - 0.9**2)
    square = (0.999 * 0.001 * 1 + 0.001 * second**2) / (1 - 0.999**2)
    expected = np.log(0.5) - 1e-3 * mean / np.sqrt(square)
    assert float(after) == pytest.approx(expected, abs=2e-6)


def test_values_of_the_original_code():
    for kind in BOTH:
        made = kind()
        assert (made.learning_rate, made.adam_momentum, made.policy_period) == (1e-3, 0.5, 3)
        assert (made.network, made.batch_size) == ("batch_renorm", 256)
        assert resolve("Hopper-v5", "single", kind.name).scheme.initial_steps == 5000
        assert resolve("Hopper-v5", "p3s", kind.name).scheme.initial_steps == 1250
        assert resolve("Swimmer-v5", "single", kind.name).algorithm.discount_factor == 0.9999
    assert (CrossQTD3().target_noise, CrossQTD3().exploration_noise) == (0.2, 0.1)
    assert SAC().adam_momentum == TD3().adam_momentum == 0.9
