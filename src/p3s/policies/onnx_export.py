"""A policy as ONNX: observation in, action in the environment's own range out.

continuous    action (batch, ...) float32 = center + half * tanh(layers(observation)),
              or clip(layers(observation), -1, 1) where the algorithm does not squash;
              whole numbers (int64) where the environment takes those
discrete      action (batch,) int64 = start + argmax(layers(observation)); with masks, over what a
              second input, action_mask (batch, actions) bool, allows

The normalization of observations, if there is one, comes first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from p3s.envs.masked_observations import FORBIDDEN
from p3s.errors import UserError
from p3s.experience.normalization import LARGEST, Scaling
from p3s.networks import LAYER_NORM_EPSILON, Activation, Layers
from p3s.policies.policy import Policy

OPSET = 17

ACTIVATION_NODES: dict[str, list[tuple[str, list[str], dict[str, float]]]] = {
    "relu": [("Relu", ["x"], {})],
    "tanh": [("Tanh", ["x"], {})],
    "elu": [("Elu", ["x"], {"alpha": 1.0})],
    "leaky_relu": [("LeakyRelu", ["x"], {"alpha": 0.01})],
    "gelu": [
        ("Mul", ["x", "sqrt_half"], {}),
        ("Erf", ["last"], {}),
        ("Add", ["last", "one"], {}),
        ("Mul", ["last", "x"], {}),
        ("Mul", ["last", "one_half"], {}),
    ],
    "silu": [("Sigmoid", ["x"], {}), ("Mul", ["last", "x"], {})],
}
"""Operators of each activation: `x` is its input, `last` the output of the operator before."""
ACTIVATION_CONSTANTS = {"sqrt_half": 0.5**0.5, "one": 1.0, "one_half": 0.5}


def export_onnx(policy: Policy, path: str | Path) -> None:
    """Write the noiseless policy as an ONNX graph with a free batch axis."""
    path = Path(path)
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise UserError("the export needs onnx: pip install 'p3s[export]'") from error
    network = policy.algorithm.noiseless_layers(policy.params, policy.spec)
    dense = None if network is None else network.network.dense(network.params)
    if network is None or dense is None:
        kind = policy.algorithm.name if network is None else f"network {network.network.name}"
        raise UserError(f"this policy cannot be exported: only dense layers can, not {kind}")
    scaling = policy.scaling
    if scaling is not None:
        scaling = Scaling(*(part[: policy.spec.features.size] for part in scaling))
    before, scaling, value = _normalizing_nodes(helper, scaling)
    nodes, constants, value = _dense_nodes(helper, dense, network.network.activation, value)
    nodes, constants = [*before, *nodes], {**scaling, **constants}
    if policy.spec.discrete:
        if policy.spec.masked:
            constants["forbidden"] = np.asarray(FORBIDDEN, np.float32)
            choice = ["action_mask", value, "forbidden"]
            nodes.append(helper.make_node("Where", choice, ["allowed"]))
            value = "allowed"
        constants["start"] = np.asarray(policy.about["action_start"], np.int64)
        nodes.append(helper.make_node("ArgMax", [value], ["index"], axis=-1, keepdims=0))
        nodes.append(helper.make_node("Add", ["index", "start"], ["action"]))
        output = helper.make_tensor_value_info("action", TensorProto.INT64, ["batch"])
    else:
        low, high = (np.asarray(policy.about[name]) for name in ("action_low", "action_high"))
        constants["half"] = np.asarray((high - low) / 2, np.float32)
        constants["center"] = np.asarray((high + low) / 2, np.float32)
        if policy.algorithm.squashed:
            nodes.append(helper.make_node("Tanh", [value], ["bounded"]))
        else:
            bounds = {"lowest": np.float32(-1), "highest": np.float32(1)}
            constants |= {name: np.asarray(bound) for name, bound in bounds.items()}
            nodes.append(helper.make_node("Clip", [value, *bounds], ["bounded"]))
        nodes.append(helper.make_node("Mul", ["bounded", "half"], ["scaled"]))
        nodes.append(helper.make_node("Add", ["scaled", "center"], ["flat"]))
        shape, value = policy.about["action_shape"], "flat"
        if len(shape) != 1:
            constants["action_shape"] = np.asarray([0, *shape], np.int64)  # 0 keeps the batch
            nodes.append(helper.make_node("Reshape", [value, "action_shape"], ["shaped"]))
            value = "shaped"
        kind = TensorProto.FLOAT
        if "action_dtype" in policy.about:
            kind = TensorProto.INT64
            nodes.append(helper.make_node("Round", [value], ["whole"]))
            nodes.append(helper.make_node("Cast", ["whole"], ["action"], to=kind))
        else:
            nodes.append(helper.make_node("Identity", [value], ["action"]))
        output = helper.make_tensor_value_info("action", kind, ["batch", *shape])
    inputs = [_info(helper, TensorProto, "observation", policy.spec.features.size)]
    if policy.spec.masked:
        shape = ["batch", policy.spec.action_size]
        inputs.append(helper.make_tensor_value_info("action_mask", TensorProto.BOOL, shape))
    graph = helper.make_graph(
        nodes,
        "p3s-policy",
        inputs,
        [output],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], producer_name="p3s", ir_version=8)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def _normalizing_nodes(
    helper: Any, scaling: Scaling | None
) -> tuple[list[Any], dict[str, np.ndarray], str]:
    """Operators and constants of the normalization, and the name of their output."""
    if scaling is None:
        return [], {}, "observation"
    largest = np.asarray(LARGEST, np.float32)
    constants = {**scaling._asdict(), "smallest_seen": -largest, "largest_seen": largest}
    nodes = [
        helper.make_node("Sub", ["observation", "mean"], ["centered"]),
        helper.make_node("Mul", ["centered", "scale"], ["standardized"]),
        helper.make_node("Clip", ["standardized", "smallest_seen", "largest_seen"], ["seen"]),
    ]
    return nodes, constants, "seen"


def _dense_nodes(
    helper: Any, layers: Layers, activation: Activation, value: str
) -> tuple[list[Any], dict[str, np.ndarray], str]:
    """Operators and constants of dense layers on `value`, and the name of their output."""
    operators = ACTIVATION_NODES[activation]
    used = {name for _, inputs, _ in operators for name in inputs}
    constants = {
        name: np.asarray(number, np.float32)
        for name, number in ACTIVATION_CONSTANTS.items()
        if name in used
    }
    nodes = []

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    for index, layer in enumerate(layers):
        names = {part: f"{part}_{index}" for part in layer}
        constants |= {names[part]: np.asarray(layer[part], np.float32) for part in layer}
        value = add("Gemm", [value, names["weight"], names["bias"]], f"layer_{index}")
        if "scale" in layer:
            inputs = [value, names["scale"], names["shift"]]
            value = add("LayerNormalization", inputs, f"normal_{index}", epsilon=LAYER_NORM_EPSILON)
        if index == len(layers) - 1:
            break
        meaning = {"x": value}
        for step, (operator, inputs, attributes) in enumerate(operators):
            inputs = [meaning.get(name, name) for name in inputs]
            value = add(operator, inputs, f"activation_{index}_{step}", **attributes)
            meaning["last"] = value
    return nodes, constants, value


def _info(helper: Any, types: Any, name: str, size: int) -> Any:
    return helper.make_tensor_value_info(name, types.FLOAT, ["batch", size])
