"""A policy as ONNX."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.algorithms import TD3
from p3s.policies.onnx_export import export_onnx
from p3s.policies.policy import Policy
from p3s.types import EnvSpec, ObservationSpec


def test_onnx_agrees(population, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    file = tmp_path / "policy.onnx"
    export_onnx(population.policy, file)
    session = runtime.InferenceSession(str(file))
    observations = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32) * 5
    (actions,) = session.run(None, {"observation": observations})
    np.testing.assert_allclose(actions, population.predict(observations)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ((41, 38, 3), {}),
        ((2, 40, 36), {"scale_images": False, "layer_norm": True}),
        ((7, 7, 20), {"image_axes": "first", "activation": "tanh"}),
        ((20, 17, 1), {"network": "multi"}),
    ],
)
def test_images(shape, fields, tmp_path):
    """Sizes that no stride divides, wherever the channels are."""
    runtime = pytest.importorskip("onnxruntime")
    algorithm = TD3(hidden_sizes=(16, 8), **fields)
    spec = EnvSpec(ObservationSpec(shape, "uint8"), 2)
    params = algorithm.init(jax.random.key(0), spec).policy
    about = {"action_low": [-1.0, 0.0], "action_high": [1.0, 3.0], "action_shape": [2]}
    policy = Policy(algorithm, params, spec, about)
    export_onnx(policy, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    images = np.random.default_rng(0).integers(0, 256, (9, *shape)).astype(np.uint8)
    (actions,) = session.run(None, {"observation": images})
    assert np.ptp(actions, axis=0).min() > 1e-3
    np.testing.assert_allclose(actions, policy.predict(images)[0], atol=2e-5)
