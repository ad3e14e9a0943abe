"""Running statistics in every off-policy algorithm: which steps move them, and who copies them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import p3s
from p3s.algorithms import ALGORITHMS
from p3s.algorithms.off_policy import WithTargets
from p3s.policies.policy import Policy
from p3s.trees import Carried, trained
from p3s.types import Guide
from tests.helpers import OFF_POLICY, leaves
from tests.helpers_losses import SPECS, random_batch
from tests.networks_for_tests import BatchRenorm


def statistics(tree) -> list[np.ndarray]:
    """The running statistics of a tree; DQN's epsilon is carried too, and is none."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Carried))
    found = [node.value for node in nodes if isinstance(node, Carried)]
    return leaves([value for value in found if isinstance(value, dict)])


def passes(tree) -> set[int]:
    """What the counters of a tree say."""
    return {int(n) for leaf in statistics(tree) if leaf.dtype == np.int32 for n in leaf.ravel()}


def same(ours, theirs) -> bool:
    pairs = list(zip(ours, theirs, strict=True))
    return bool(pairs) and all(np.array_equal(one, other) for one, other in pairs)


@pytest.fixture(scope="module", params=OFF_POLICY)
def stepped(request):
    """A learner at the start, after a value step, and after a policy step as well."""
    made = ALGORITHMS[request.param](hidden_sizes=(4,), network=BatchRenorm.name)
    if hasattr(made, "target_period"):
        made = dataclasses.replace(made, target_period=1)
    spec = SPECS[made.actions]
    batch = random_batch(spec, 0)
    start = made.init(jax.random.key(0), spec)
    guide = Guide(made.init(jax.random.key(1), spec).policy, jnp.float32(0.5))
    valued, _ = jax.jit(made.value_step)(start, batch, jax.random.key(2))
    after, _ = jax.jit(made.policy_step)(valued, batch, guide, jax.random.key(3))
    return made, spec, start, valued, after


class TestSteps:
    def test_a_value_step_moves_those_of_the_values(self, stepped):
        made, _, start, valued, _ = stepped
        assert passes(start) == {0}
        assert same(leaves(valued.policy), leaves(start.policy))
        if made.has_own_policy:
            assert passes(valued.value) == {1}
            assert not same(statistics(valued.value), statistics(start.value))

    def test_a_policy_step_moves_those_of_the_policy_only(self, stepped):
        made, _, _, valued, after = stepped
        assert passes(after.policy) == {1}
        if made.has_own_policy:
            assert same(statistics(after.value), statistics(valued.value))

    def test_targets_copy_them(self, stepped):
        made, *_, after = stepped
        if not isinstance(made, WithTargets):
            assert after.targets == {}
            return
        # In SAC's first form, the target is that of V alone.
        value = after.value["v"] if isinstance(after.value, dict) and after.value else after.value
        online = {"policy": after.policy, "value": value}
        assert after.targets
        for name, target in after.targets.items():
            assert same(statistics(target), statistics(online[name]))
            assert passes(target) == {1}

    def test_optimizers_have_no_moments_of_them(self, stepped):
        made, _, start, _, _ = stepped
        policy = start.policy if made.has_own_policy else start.policy["layers"]
        moments = [leaf for leaf in leaves(start.optimizers["policy"]) if leaf.dtype != np.int32]
        assert len(moments) == 2 * len(leaves(trained(policy)))

    def test_gradients_move_everything_else(self, stepped):
        _, _, start, _, after = stepped
        for ours, theirs in zip(
            leaves(trained(after.policy)), leaves(trained(start.policy)), strict=True
        ):
            assert not np.array_equal(ours, theirs)


class TestEvaluationMode:
    """An action or a distance at one observation does not depend on the others of the batch."""

    def test_actions(self, stepped):
        made, spec, *_, after = stepped
        seen = 5 * random_batch(spec, 5).observation
        together = made.act(after.policy, seen, jax.random.key(0), explore=False)
        alone = [made.act(after.policy, row, jax.random.key(0), explore=False) for row in seen]
        np.testing.assert_allclose(together, np.stack(alone), rtol=1e-4, atol=1e-5)

    def test_distances(self, stepped):
        made, spec, start, _, after = stepped
        seen = 5 * random_batch(spec, 5).observation
        together = made.distance_between(after.policy, start.policy, seen)
        alone = [made.distance_between(after.policy, start.policy, row[None])[0] for row in seen]
        np.testing.assert_allclose(together, np.stack(alone), rtol=1e-3, atol=1e-5)
        assert float(together.max()) > 0


def test_a_file_holds_them(stepped, tmp_path):
    made, spec, *_, after = stepped
    about = {"action_start": 0} if spec.discrete else {
        "action_low": [-1.0, -1.0], "action_high": [1.0, 1.0], "action_shape": [2],
    }  # fmt: skip
    policy = Policy(made, jax.device_get(after.policy), spec, about)
    policy.save(tmp_path / "policy.safetensors")
    loaded = p3s.load(tmp_path / "policy.safetensors")
    assert same(statistics(loaded.params), statistics(after.policy))
    seen = random_batch(spec, 5).observation
    assert np.array_equal(loaded.predict(seen)[0], policy.predict(seen)[0])
