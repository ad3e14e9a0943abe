"""Activations, layer norm and networks of one's own: as numpy has them, in files, as ONNX."""

from __future__ import annotations

from math import erf

import examples.residual  # noqa: F401  registers a network
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import p3s
from p3s.algorithms import (
    DQN,
    SAC,
    SQL,
    TD3,
)
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.networks import (
    ACTIVATIONS,
    MLP,
    NETWORKS,
    Model,
    apply_mlp,
    apply_network,
    init_mlp,
    part,
)
from p3s.policies.onnx_export import export_onnx
from p3s.policies.policy import Policy
from p3s.types import EnvSpec
from tests.helpers import small_training

SPEC = EnvSpec.flat(3, 2)
ABOUT = {"action_low": [-2.0, 0.0], "action_high": [2.0, 1.0], "action_shape": [2]}
INPUTS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)

BY_HAND = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def policy_of(algorithm) -> Policy:
    params = jax.device_get(algorithm.init(jax.random.key(1), SPEC).policy)
    return Policy(algorithm, params, SPEC, ABOUT)


def reloaded(policy: Policy, tmp_path) -> Policy:
    policy.save(tmp_path / "policy.safetensors")
    return p3s.load(tmp_path / "policy.safetensors")


def random_layers(layer_norm: bool):
    """Layers whose scales and shifts are not the initial ones."""
    layers = init_mlp(jax.random.key(0), [3], (5, 4), 2, "fan_in", layer_norm)
    draw = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: leaf + draw.normal(size=leaf.shape).astype("f4"), layers)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_pass(activation, layer_norm):
    layers, values = random_layers(layer_norm), np.float64(INPUTS)
    for layer in layers[:-1]:
        values = values @ np.float64(layer["weight"]) + layer["bias"]
        if layer_norm:
            spread = np.sqrt(values.var(axis=1, keepdims=True) + 1e-5)
            values = (values - values.mean(axis=1, keepdims=True)) / spread
            values = values * layer["scale"] + layer["shift"]
        values = BY_HAND[activation](values)
    values = values @ np.float64(layers[-1]["weight"]) + layers[-1]["bias"]
    np.testing.assert_allclose(apply_mlp(layers, INPUTS, activation), values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_saved_loaded_and_exported(activation, layer_norm, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    policy = policy_of(TD3(hidden_sizes=(8, 7), activation=activation, layer_norm=layer_norm))
    loaded = reloaded(policy, tmp_path)
    expected = policy.predict(INPUTS)[0]
    assert np.array_equal(loaded.predict(INPUTS)[0], expected)
    export_onnx(loaded, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    (actions,) = session.run(None, {"observation": INPUTS})
    np.testing.assert_allclose(actions, expected, atol=1e-5)


@pytest.mark.parametrize("algorithm", [SAC, SQL])
def test_part_of_a_network_is_exported(algorithm, tmp_path):
    """SAC's export has half the outputs, SQL's not the noise among its inputs."""
    runtime = pytest.importorskip("onnxruntime")
    policy = policy_of(algorithm(hidden_sizes=(8,), activation="silu", layer_norm=True))
    export_onnx(policy, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    (actions,) = session.run(None, {"observation": INPUTS})
    np.testing.assert_allclose(actions, policy.predict(INPUTS)[0], atol=1e-5)


class TestOwn:
    fields = {"hidden_sizes": (8, 8, 8), "network": "residual", "activation": "tanh"}  # noqa: RUF012

    def test_saved_and_loaded_but_not_exported(self, tmp_path):
        policy = policy_of(TD3(**self.fields))
        loaded = reloaded(policy, tmp_path)
        assert np.array_equal(loaded.predict(INPUTS)[0], policy.predict(INPUTS)[0])
        for algorithm in (TD3, SAC):
            with pytest.raises(UserError, match=r"cannot be exported: only dense layers"):
                export_onnx(policy_of(algorithm(**self.fields)), tmp_path / "policy.onnx")

    def test_a_file_whose_network_is_not_known(self, tmp_path, monkeypatch):
        policy = policy_of(TD3(**self.fields))
        policy.save(tmp_path / "policy.safetensors")
        monkeypatch.delitem(NETWORKS, "residual")
        with pytest.raises(UserError, match="network 'residual' is not known: import the module"):
            p3s.load(tmp_path / "policy.safetensors")

    def test_trains_under_p3s(self):
        training = small_training("Pendulum-v1", algorithm="sql", num_learners=2, **self.fields)
        training.run(100)
        assert training.crew.updater.state.learners.policy.network.name == "residual"
        assert training.counters.updates == 31
        for leaf in jax.tree.leaves(training.crew.updater.state.learners):
            assert np.isfinite(leaf).all()

    def test_it_is_the_network_that_is_applied(self):
        """One hidden layer: the activation after the first matrix, as in an MLP."""
        learner = TD3(hidden_sizes=(8,), network="residual").init(jax.random.key(0), SPEC)
        plain = TD3(hidden_sizes=(8,)).init(jax.random.key(0), SPEC)
        np.testing.assert_allclose(
            apply_network(learner.policy, INPUTS), apply_network(plain.policy, INPUTS), rtol=1e-6
        )


def test_parts():
    network = MLP(hidden_sizes=(5, 4), activation="relu", layer_norm=True, initialization="fan_in")
    model = Model(random_layers(layer_norm=True), network, ((3,),))
    front = part(model, inputs=slice(2), outputs=slice(1, None))
    assert front.shapes == ((2,),)
    inputs = jnp.asarray(INPUTS).at[:, 2].set(0.0)
    np.testing.assert_allclose(
        apply_network(front, inputs[:, :2]), apply_network(model, inputs)[:, 1:], rtol=1e-5
    )
    own = policy_of(TD3(hidden_sizes=(4,), network="residual")).params
    assert part(own) is None
    assert own.network.dense(own.params) is None


def test_dueling_with_an_activation():
    algorithm = DQN(hidden_sizes=(8,), dueling=True, activation="elu", layer_norm=True)
    policy = algorithm.init(jax.random.key(0), EnvSpec.flat(3, 4, discrete=True)).policy
    found = apply_network(
        algorithm.noiseless_layers(policy, EnvSpec.flat(3, 4, discrete=True)), INPUTS
    )
    greedy = algorithm.act(policy, INPUTS, jax.random.key(0), explore=False)
    assert np.array_equal(found.argmax(axis=1), greedy)


def test_an_unknown_network_is_one_line():
    with pytest.raises(UserError, match=r"network 'none' is not known: .*\(known: .*mlp"):
        resolve("Pendulum-v1", network="none").check()
