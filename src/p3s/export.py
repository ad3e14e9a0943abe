"""A policy as ONNX: observation in, action in the environment's own range out.

continuous    action (batch, size) float32 = center + half * tanh(layers(observation))
discrete      action (batch,) int64 = start + argmax(layers(observation))
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from p3s.errors import UserError
from p3s.policy import Policy

OPSET = 17


def export_onnx(policy: Policy, path: Path) -> None:
    """Write the noiseless policy as an ONNX graph with a free batch axis."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise UserError("the export needs onnx: pip install 'p3s[export]'") from error
    layers = policy.algorithm.noiseless_layers(policy.params, policy.spec)
    if layers is None:
        raise UserError(f"policies of {policy.algorithm.name} cannot be exported: they are no MLP")
    constants: dict[str, np.ndarray] = {}
    nodes, value = [], "observation"
    for index, layer in enumerate(layers):
        for part in ("weight", "bias"):
            constants[f"{part}_{index}"] = np.asarray(layer[part], np.float32)
        inputs = [value, f"weight_{index}", f"bias_{index}"]
        value = f"layer_{index}"
        nodes.append(helper.make_node("Gemm", inputs, [value]))
        if index < len(layers) - 1:
            nodes.append(helper.make_node("Relu", [value], [f"activation_{index}"]))
            value = f"activation_{index}"
    if policy.spec.discrete:
        constants["start"] = np.asarray(policy.about["action_start"], np.int64)
        nodes.append(helper.make_node("ArgMax", [value], ["index"], axis=-1, keepdims=0))
        nodes.append(helper.make_node("Add", ["index", "start"], ["action"]))
        output = helper.make_tensor_value_info("action", TensorProto.INT64, ["batch"])
    else:
        low, high = (np.asarray(policy.about[name]) for name in ("action_low", "action_high"))
        constants["half"] = np.asarray((high - low) / 2, np.float32)
        constants["center"] = np.asarray((high + low) / 2, np.float32)
        nodes.append(helper.make_node("Tanh", [value], ["squashed"]))
        nodes.append(helper.make_node("Mul", ["squashed", "half"], ["scaled"]))
        nodes.append(helper.make_node("Add", ["scaled", "center"], ["action"]))
        output = _info(helper, TensorProto, "action", policy.spec.action_size)
    graph = helper.make_graph(
        nodes,
        "p3s-policy",
        [_info(helper, TensorProto, "observation", policy.spec.observation_size)],
        [output],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], producer_name="p3s", ir_version=8)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def _info(helper, types, name: str, size: int):
    return helper.make_tensor_value_info(name, types.FLOAT, ["batch", size])
