"""Trained and carried leaves: what gradients, targets and mixtures touch, and what travels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from p3s.algorithms import TD3
from p3s.errors import UserError
from p3s.trees import (
    Carried,
    flatten_names,
    follow,
    follow_every,
    merge,
    trained,
    unflatten_names,
)


def tree(weight: float, mean: float, count: int):
    """A policy with a weight, a running mean and a counter."""
    return {
        "layers": [{"weight": jnp.full(2, weight), "mean": Carried(jnp.full(2, mean))}],
        "count": Carried({"passes": jnp.int32(count)}),
    }


def values(tree) -> tuple[float, float, int]:
    layer = tree["layers"][0]
    count = tree["count"].value["passes"]
    assert count.dtype == jnp.int32
    return float(layer["weight"][0]), float(layer["mean"].value[0]), int(count)


class TestTrained:
    def test_only_trained_leaves_are_left(self):
        assert [leaf.tolist() for leaf in jax.tree.leaves(trained(tree(1.0, 2.0, 3)))] == [[1, 1]]

    def test_merge_is_its_inverse(self):
        whole = tree(1.0, 2.0, 3)
        again = merge(trained(whole), whole)
        assert jax.tree.structure(again) == jax.tree.structure(whole)
        assert values(again) == (1, 2, 3)

    def test_merge_takes_what_the_carrier_carries(self):
        assert values(merge(trained(tree(1.0, 2.0, 3)), tree(4.0, 5.0, 6))) == (1, 5, 6)

    def test_a_tree_without_carried_leaves_is_as_it_was(self):
        plain = {"a": jnp.ones(2), "b": (jnp.zeros(1), None)}
        assert jax.tree.structure(trained(plain)) == jax.tree.structure(plain)
        other = jax.tree.map(lambda leaf: leaf + 1, plain)
        assert merge(trained(plain), other)["a"].tolist() == [1, 1]

    def test_nothing_trained(self):
        only = Carried(jnp.int32(7))
        assert jax.tree.leaves(trained(only)) == []
        assert int(merge(trained(only), Carried(jnp.int32(8))).value) == 8


class TestFollow:
    """Target weight 0 and online weight 8; what is carried is never averaged."""

    def test_trained_leaves_move_and_carried_leaves_are_copied(self):
        after = follow(tree(0.0, 0.0, 0), tree(8.0, 3.0, 5), 0.25)
        assert values(after) == (2, 3, 5)

    @pytest.mark.parametrize(
        ("count", "rate", "expected"),
        [(2, 1.0, (0, 0, 0)), (3, 1.0, (8, 3, 5)), (3, 0.25, (2, 3, 5)), (4, 0.25, (0, 0, 0))],
    )
    def test_every_third_time(self, count, rate, expected):
        online = tree(8.0, 3.0, 5)
        assert values(follow_every(tree(0.0, 0.0, 0), online, rate, jnp.int32(count), 3)) == (
            expected
        )

    def test_hard_targets_are_copies_to_the_bit(self):
        targets, online = jnp.array([0.1, 7.3]), jnp.array([0.7, 1e-7])
        hard = [follow_every(targets, online, 1.0, jnp.int32(count), 3) for count in (2, 3)]
        assert jnp.array_equal(hard[0], targets)
        assert jnp.array_equal(hard[1], online)
        soft = follow_every(targets, online, 0.25, jnp.int32(1), 1)
        np.testing.assert_allclose(soft, 0.75 * targets + 0.25 * online)


class TestMinimize:
    """One step of Adam moves a weight by the learning rate, and nothing else."""

    algorithm = TD3(learning_rate=0.5)

    def test_carried_leaves_are_as_the_loss_left_them(self):
        params = tree(1.0, 2.0, 3)
        state = self.algorithm.start_optimizer(params)
        assert all(leaf.shape in ((2,), ()) for leaf in jax.tree.leaves(state))
        moments = [leaf for leaf in jax.tree.leaves(state) if leaf.ndim]
        assert len(moments) == 2  # of the weight only

        def loss_of(params):
            weight, mean = params["layers"][0]["weight"], params["layers"][0]["mean"].value
            # The mean is part of the loss, and still takes no gradient.
            loss = jnp.sum(weight * mean)
            passes = params["count"].value["passes"]
            return loss, ({**params, "count": Carried({"passes": passes + 1})}, "anything")

        after, state, loss, rest = self.algorithm.minimize(loss_of, params, state)
        weight, mean, count = values(after)
        assert (weight, mean, count) == (pytest.approx(0.5, rel=1e-5), 2.0, 4)
        assert (float(loss), rest) == (4.0, "anything")

    def test_it_is_optax(self):
        optimizer, start = optax.adam(0.5), jnp.array([3.0, -1.0])
        ours = theirs = start
        our_state, their_state = self.algorithm.start_optimizer(start), optimizer.init(start)

        def loss_of(params):
            return jnp.sum(params**2), (params, None)

        for _ in range(3):
            ours, our_state, _, _ = self.algorithm.minimize(loss_of, ours, our_state)
            gradient = jax.grad(lambda params: jnp.sum(params**2))(theirs)
            updates, their_state = optimizer.update(gradient, their_state)
            theirs = optax.apply_updates(theirs, updates)
        assert jnp.array_equal(ours, theirs)


class TestNames:
    def test_there_and_back(self):
        whole = tree(1.0, 2.0, 3)
        arrays = {name: np.asarray(leaf) for name, leaf in flatten_names(whole).items()}
        assert sorted(arrays) == ["count/value/passes", "layers/0/mean/value", "layers/0/weight"]
        assert values(unflatten_names(tree(0.0, 0.0, 0), arrays, "the file")) == (1, 2, 3)

    def test_what_does_not_fit(self):
        arrays = {name: np.asarray(leaf) for name, leaf in flatten_names(tree(1.0, 2.0, 3)).items()}
        wrong = {**arrays, "layers/0/weight": np.ones(3, np.float32)}
        with pytest.raises(UserError, match=r"layers/0/weight should be .*\[2\], not .*\[3\]"):
            unflatten_names(tree(1.0, 2.0, 3), wrong, "the file")
        del arrays["layers/0/weight"]
        with pytest.raises(UserError, match=r"the file does not hold .*: layers/0/weight"):
            unflatten_names(tree(1.0, 2.0, 3), arrays, "the file")
