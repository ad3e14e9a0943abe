"""A policy as ONNX: observation in, action in the environment's own range out."""

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
    if policy.algorithm.name != "td3":
        raise UserError(f"policies of {policy.algorithm.name} cannot be exported yet")
    low, high = (np.asarray(policy.about[name]) for name in ("action_low", "action_high"))
    constants = {"half": (high - low) / 2, "center": (high + low) / 2}
    nodes, value = [], "observation"
    for index, layer in enumerate(policy.params):
        constants[f"weight_{index}"], constants[f"bias_{index}"] = layer["weight"], layer["bias"]
        inputs = [value, f"weight_{index}", f"bias_{index}"]
        nodes.append(helper.make_node("Gemm", inputs, [f"layer_{index}"]))
        last = index == len(policy.params) - 1
        value = f"activation_{index}"
        nodes.append(helper.make_node("Tanh" if last else "Relu", [f"layer_{index}"], [value]))
    nodes.append(helper.make_node("Mul", [value, "half"], ["scaled"]))
    nodes.append(helper.make_node("Add", ["scaled", "center"], ["action"]))
    graph = helper.make_graph(
        nodes,
        "p3s-policy",
        [_info(helper, TensorProto, "observation", policy.spec.observation_size)],
        [_info(helper, TensorProto, "action", policy.spec.action_size)],
        [
            numpy_helper.from_array(np.asarray(array, np.float32), name)
            for name, array in constants.items()
        ],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], producer_name="p3s", ir_version=8)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def _info(helper, types, name: str, size: int):
    return helper.make_tensor_value_info(name, types.FLOAT, ["batch", size])
