"""A policy as ONNX."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.policies.onnx_export import export_onnx


def test_onnx_agrees(population, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    file = tmp_path / "policy.onnx"
    export_onnx(population.policy, file)
    session = runtime.InferenceSession(str(file))
    observations = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32) * 5
    (actions,) = session.run(None, {"observation": observations})
    np.testing.assert_allclose(actions, population.predict(observations)[0], atol=1e-5)
