"""Network batch_norm: norms and unit weights by hand, dense layers, who projects after a change."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import SAC
from p3s.learning.divergence import parts_of, with_copy
from p3s.networks import BatchNorm, Model, apply_network, init_model, part, projected, train_network
from p3s.networks.batch_norm import unit_columns
from p3s.schemes import ERL, Center, Sharing
from p3s.schemes.search_distribution import draw_policies
from p3s.trees import trained
from p3s.types import EnvSpec

SPEC = EnvSpec.flat(3, 2)
NETWORK = BatchNorm(hidden_sizes=(2,), activation="relu", layer_norm=False, initialization="fan_in")
ALGORITHM = SAC(hidden_sizes=(4,), network="batch_norm")
INPUTS = np.array([[1.0, 10.0], [3.0, 10.0]], np.float32)


def by_hand() -> Model:
    """Hidden units x1 and -x1 after the norms, and their sum plus 0.5."""
    model = init_model(NETWORK, jax.random.key(0), [(2,)], 1)
    layers = [
        {"weight": jnp.array([[1.0, -1.0], [0.0, 0.0]])},
        {"weight": jnp.array([[0.6], [0.8]]), "bias": jnp.array([0.5])},
    ]
    return Model({**model.params, "layers": layers}, NETWORK, model.shapes)


class TestByHand:
    def test_training_mode(self):
        """x1 = 1, 3 has mean 2 and variance 1: ±1 after each norm, but for the epsilons."""
        outputs, after = train_network(by_hand(), INPUTS)
        np.testing.assert_allclose(outputs[:, 0], [1.3, 1.1], atol=2e-3)
        running = after.params["norms"][0]["running"].value
        np.testing.assert_allclose(running["mean"], [0.02, 0.1], rtol=1e-5)
        np.testing.assert_allclose(running["variance"], [1.0, 0.99], rtol=1e-5)
        assert int(running["passes"]) == 1

    def test_evaluation_mode(self):
        """Running mean 0 and variance 1: only the epsilons are left of the norms."""
        np.testing.assert_allclose(apply_network(by_hand(), INPUTS)[:, 0], [1.1, 2.3], atol=3e-3)

    def test_unit_columns(self):
        """(3, 4) has norm 5; a unit without weights keeps none."""
        weight = jnp.array([[3.0, 0.0, 0.0], [4.0, 0.0, -2.0]])
        np.testing.assert_allclose(
            unit_columns(weight), [[0.6, 0.0, 0.0], [0.8, 0.0, -1.0]], rtol=1e-6
        )


def test_there_are_no_biases_before_a_norm():
    hidden, last = init_model(NETWORK, jax.random.key(0), [(2,)], 1).params["layers"]
    assert set(hidden) == {"weight"}
    assert set(last) == {"weight", "bias"}


@pytest.mark.parametrize("layer_norm", [False, True])
def test_dense_layers_do_the_same(layer_norm):
    network = BatchNorm(
        hidden_sizes=(5, 4), activation="tanh", layer_norm=layer_norm, initialization="xavier"
    )
    model = init_model(network, jax.random.key(0), [(3,)], 2)
    draw = np.random.default_rng(0)
    for _ in range(8):
        _, model = train_network(model, draw.normal(2, 3, (16, 3)).astype(np.float32))
    seen = draw.normal(2, 3, (9, 3)).astype(np.float32)
    folded = part(model)
    assert folded is not None
    np.testing.assert_allclose(
        apply_network(folded, seen), apply_network(model, seen), rtol=1e-4, atol=1e-5
    )


def assert_projected(tree) -> None:
    models = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Model))
    assert models
    for model in models:
        for layer in model.params["layers"]:
            norms = np.linalg.norm(layer["weight"], axis=-2)
            np.testing.assert_allclose(norms, np.ones_like(norms), rtol=1e-5)


class TestPopulations:
    """Whatever changes weights projects them; what only copies need not."""

    policy = ALGORITHM.init(jax.random.key(0), SPEC).policy

    def test_a_tree_of_models(self):
        scaled = jax.tree.map(lambda leaf: 3 * leaf, {"a": self.policy, "b": jnp.float32(1)})
        found = projected(scaled)
        assert_projected(found["a"])
        assert float(found["b"]) == 3

    def test_cem(self):
        variance = jax.tree.map(jnp.ones_like, trained(self.policy))
        assert_projected(draw_policies(jax.random.key(1), self.policy, variance, 3, False))

    @pytest.mark.slow
    def test_erl(self):
        scheme = ERL(algorithm=ALGORITHM, num_learners=4, mutation_probability=1.0)
        state = scheme.init(jax.random.key(0), SPEC)
        returns = np.arange(5.0)[:, None]
        after, review = scheme.review(state, returns, np.zeros(1), np.random.default_rng(0))
        assert review["mutated"]
        assert_projected(after.population)

    @pytest.mark.slow
    def test_center(self):
        scheme = Center(algorithm=ALGORITHM, num_learners=2, learners_start="independent")
        state = scheme.init(jax.random.key(0), SPEC)
        seen = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
        after, _ = scheme.review(state, np.ones((2, 1)), seen, np.random.default_rng(0))
        assert_projected(after.center)

    def test_a_copy_of_another_learner(self):
        scheme = Sharing(algorithm=ALGORITHM, num_learners=2)
        state = scheme.init(jax.random.key(0), SPEC)
        after = with_copy(scheme, state, 0, parts_of(scheme, state, 1), np.random.default_rng(0))
        assert_projected(after.learners.policy)
