"""Networks as operators of ONNX: dense layers, and convolutions before them."""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.networks import (
    LAYER_NORM_EPSILON,
    NATURE_ENCODER,
    Activation,
    Conv,
    Layers,
    Model,
    Multi,
    Network,
    encoder_of,
    num_places,
)
from p3s.networks.conv import Encoder, last_channels
from p3s.types import Shape, channels_first

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


class Graph:
    """Operators and constants, as they are added; helper: that of onnx."""

    def __init__(self, helper: Any) -> None:
        self._helper = helper
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """One operator; the name of its output."""
        self.nodes.append(self._helper.make_node(operator, inputs, [output], **attributes))
        return output

    @staticmethod
    def can_write(model: Model) -> bool:
        """Whether a model's network is one of those that are known here."""
        known = isinstance(model.network, Conv | Multi)
        return known or model.network.dense(model.params) is not None

    def network(self, model: Model, numbers: str, images: list[str]) -> str:
        """A model's outputs from its inputs by their names."""
        network, params = model.network, model.params
        if isinstance(network, Conv):
            shape = model.shapes[0]
            value = self._convolve(network, params["encoder"], images[0], shape, NATURE_ENCODER)
        elif isinstance(network, Multi):
            value = self._encode_parts(network, model, numbers, images)
        else:
            value = numbers
        dense = network.head(params) or network.dense(params)
        assert dense is not None
        return self._dense(dense, network.activation, value)

    def _encode_parts(self, network: Multi, model: Model, numbers: str, images: list[str]) -> str:
        parts, encoders = [], model.params["images"]
        shapes = network.images or model.shapes[:1]
        for name, shape, encoder in zip(images, shapes, encoders, strict=True):
            about = shape, encoder_of(shape, network.image_axes)
            value = self._convolve(network, encoder["convolutions"], name, *about)
            dense = f"{name}.dense"
            parts.append(self._dense(encoder["dense"], network.activation, value, dense, True))
        if (dense := model.params.get("numbers")) is not None:
            parts.append(self._dense(dense, network.activation, numbers, "numbers", True))
        return self.add("Concat", parts, "joined", axis=1)

    def _convolve(
        self, network: Network, layers: Layers, image: str, shape: Shape, encoder: Encoder
    ) -> str:
        """The features of an image, (batch, features), in the order that networks have them."""
        value = self.add("Cast", [image], f"{image}.pixels", to=1)
        if network.scale_images:
            self.constants["pixel_scale"] = np.asarray(1 / 255, np.float32)
            value = self.add("Mul", [value, "pixel_scale"], f"{image}.scaled")
        if not channels_first(shape[-3:], network.image_axes):
            *before, height, width, channels = range(len(shape) + 1)
            order = [*before, channels, height, width]
            value = self.add("Transpose", [value], f"{image}.first", perm=order)
        height, width, channels = last_channels(shape, network.image_axes)
        if len(shape) > 3:
            self.constants[f"{image}.shape"] = np.asarray([-1, channels, height, width], np.int64)
            value = self.add("Reshape", [value, f"{image}.shape"], f"{image}.joined")
        for index, (layer, (filters, kernel, stride)) in enumerate(
            zip(layers, encoder, strict=True)
        ):
            places = [num_places(size, kernel, stride) for size in (height, width)]
            missing = [
                (count - 1) * stride + kernel - size
                for count, size in zip(places, (height, width), strict=True)
            ]
            names = [f"{image}.{part}_{index}" for part in ("kernel", "bias")]
            weight = np.asarray(layer["weight"], np.float32)
            arrays = as_kernel(weight, kernel, stride), np.asarray(layer["bias"], np.float32)
            self.constants |= dict(zip(names, arrays, strict=True))
            about = {"strides": [stride, stride], "pads": [0, 0, *missing]}
            value = self.add("Conv", [value, *names], f"{image}.convolved_{index}", **about)
            value = self.add("Relu", [value], f"{image}.relu_{index}")
            (height, width), channels = places, filters
        value = self.add("Transpose", [value], f"{image}.last", perm=[0, 2, 3, 1])
        return self.add("Flatten", [value], f"{image}.features", axis=1)

    def _dense(
        self,
        layers: Layers,
        activation: Activation,
        value: str,
        prefix: str = "",
        activates_last: bool = False,
    ) -> str:
        """Dense layers on `value`, with the activation between them, or after each."""
        operators, start = ACTIVATION_NODES[activation], f"{prefix}." if prefix else ""
        used = {name for _, inputs, _ in operators for name in inputs}
        self.constants |= {
            name: np.asarray(number, np.float32)
            for name, number in ACTIVATION_CONSTANTS.items()
            if name in used
        }
        for index, layer in enumerate(layers):
            names = {part: f"{start}{part}_{index}" for part in layer}
            self.constants |= {names[part]: np.asarray(layer[part], np.float32) for part in layer}
            inputs = [value, names["weight"], names["bias"]]
            value = self.add("Gemm", inputs, f"{start}layer_{index}")
            if "scale" in layer:
                inputs, about = [value, names["scale"], names["shift"]], LAYER_NORM_EPSILON
                output = f"{start}normal_{index}"
                value = self.add("LayerNormalization", inputs, output, epsilon=about)
            if index == len(layers) - 1 and not activates_last:
                break
            meaning = {"x": value}
            for step, (operator, words, attributes) in enumerate(operators):
                inputs = [meaning.get(name, name) for name in words]
                output = f"{start}activation_{index}_{step}"
                value = self.add(operator, inputs, output, **attributes)
                meaning["last"] = value
        return value


def as_kernel(weight: np.ndarray, kernel: int, stride: int) -> np.ndarray:
    """A product of patches (`networks.image_patches`) as a kernel, (filters, channels, ...)."""
    blocks, filters = kernel // stride, weight.shape[-1]
    weight = weight.reshape(blocks, blocks, stride, stride, -1, filters)
    rows_first = weight.transpose(0, 2, 1, 3, 4, 5).reshape(kernel, kernel, -1, filters)
    return rows_first.transpose(3, 2, 0, 1)
