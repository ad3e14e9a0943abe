"""A policy as ONNX: observation in, action in the environment's own range out.

inputs        observation (batch, n) float32, all numbers in the order of its parts; or the image,
              (batch, height, width, channels) uint8; images beside numbers by their parts' names,
              image.camera uint8
continuous    action (batch, ...) float32 = center + half * tanh(layers(observation)),
              or clip(layers(observation), -1, 1) where the algorithm does not squash;
              whole numbers (int64) where the environment takes those
discrete      action (batch,) int64 = start + argmax(layers(observation)); with masks, over what a
              second input, action_mask (batch, actions) bool, allows

The normalization of observations, if there is one, comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p3s.envs.flattening import images_in
from p3s.envs.masked_observations import FORBIDDEN
from p3s.errors import UserError
from p3s.experience.normalization import LARGEST, Scaling
from p3s.policies.onnx_layers import Graph
from p3s.policies.policy import Policy

OPSET = 17


def export_onnx(policy: Policy, path: str | Path) -> None:
    """Write the noiseless policy as an ONNX graph with a free batch axis."""
    path = Path(path)
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise UserError("the export needs onnx: pip install 'p3s[export]'") from error
    model = policy.algorithm.noiseless_layers(policy.params, policy.spec)
    graph = Graph(helper)
    if model is None or not graph.can_write(model):
        kind = policy.algorithm.name if model is None else f"network {model.network.name}"
        raise UserError(
            f"this policy cannot be exported: only dense layers and convolutions can, not {kind}"
        )
    features, value, inputs = policy.spec.features, "observation", list[Any]()
    if features.num_numbers and not features.is_image:
        inputs.append(_info(helper, TensorProto.FLOAT, value, [features.num_numbers]))
    images = image_inputs(policy)
    inputs += [_info(helper, TensorProto.UINT8, *image) for image in images.items()]
    if policy.scaling is not None:
        scaling = Scaling(*(part[: features.num_numbers] for part in policy.scaling))
        value = _normalize(graph, scaling, value)
    value = graph.network(model, value, list(images))
    nodes, constants = graph.nodes, graph.constants
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
    if policy.spec.masked:
        inputs.append(_info(helper, TensorProto.BOOL, "action_mask", [policy.spec.action_size]))
    written = helper.make_graph(
        nodes,
        "p3s-policy",
        inputs,
        [output],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(written, opset_imports=[opset], producer_name="p3s", ir_version=8)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def image_inputs(policy: Policy) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a graph's images: the observation itself, or by their parts' names."""
    features = policy.spec.features
    if features.is_image:
        return {"observation": features.shape}
    if not features.images:
        return {}
    named = images_in(policy.about["observation_space"])
    return {f"image.{name}" if name else "image": shape for name, shape in named.items()}


def _normalize(graph: Graph, scaling: Scaling, value: str) -> str:
    """The normalization of observations."""
    largest = np.asarray(LARGEST, np.float32)
    graph.constants |= {**scaling._asdict(), "smallest_seen": -largest, "largest_seen": largest}
    value = graph.add("Sub", [value, "mean"], "centered")
    value = graph.add("Mul", [value, "scale"], "standardized")
    return graph.add("Clip", [value, "smallest_seen", "largest_seen"], "seen")


def _info(helper: Any, kind: Any, name: str, shape: Sequence[int]) -> Any:
    return helper.make_tensor_value_info(name, kind, ["batch", *shape])
