"""Networks as pure functions over parameters.

A `Model` pairs parameters with the network they belong to. It is a pytree whose leaves are the
parameters, so a stack, a copy or a target of a model is a model, and no loss has to be told which
network it differentiates.

    apply_network(model, *inputs)   -> outputs             evaluation mode
    train_network(model, *inputs)   -> outputs, model      training mode: the model's carried leaves
                                                           (running statistics) have moved on

A network of your own, registered with `p3s.register`:

    @register
    @dataclass(frozen=True, kw_only=True)
    class Mine(Network):
        name: ClassVar[str] = "mine"
        def init(self, key, shapes, output_size): ...       -> a pytree of arrays
        def apply(self, params, *inputs, train): ...        -> outputs, params

Inputs come separately: an observation, or an observation and an action. Images are uint8,
(..., height, width, channels); networks scale them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.products import Precision, product
from p3s.types import Params

Initialization = Literal["fan_in", "xavier"]
Activation = Literal["relu", "tanh", "elu", "leaky_relu", "gelu", "silu"]
Layers = list[dict[str, jax.Array]]
Shape = tuple[int, ...]

LAYER_NORM_EPSILON = 1e-5
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "leaky_relu": jax.nn.leaky_relu,
    "gelu": lambda inputs: jax.nn.gelu(inputs, approximate=False),
    "silu": jax.nn.silu,
}
NATURE_ENCODER = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of each convolution (Mnih et al. 2015)."""


# ---------------------------------------------------------------------- dense layers


def init_mlp(
    key: jax.Array,
    input_sizes: Sequence[int],
    hidden_sizes: Sequence[int],
    output_size: int,
    initialization: Initialization,
    layer_norm: bool = False,
) -> Layers:
    """Random layers for the concatenation of inputs of the given sizes.

    fan_in: weights and biases U(±1/sqrt(fan_in)), as in TD3's code.
    xavier: weights U(±sqrt(6/(fan_in + fan_out))), zero biases; each input of the first layer
    counts its own fan-in, as if it had its own matrix (the authors' P3S code).
    """
    sizes = [sum(input_sizes), *hidden_sizes, output_size]
    layers = []
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weight_key, bias_key = jax.random.split(jax.random.fold_in(key, index))
        if initialization == "xavier":
            parts = input_sizes if index == 0 else [fan_in]
            bounds = np.repeat([np.sqrt(6 / (part + fan_out)) for part in parts], parts)
            bias_bound = 0.0
        else:
            bounds = np.full(fan_in, 1 / np.sqrt(fan_in))
            bias_bound = 1 / np.sqrt(fan_in)
        weight = jax.random.uniform(weight_key, (fan_in, fan_out), jnp.float32, -1, 1)
        bias = jax.random.uniform(bias_key, (fan_out,), jnp.float32, -1, 1)
        layers.append(
            {
                "weight": weight * bounds[:, None].astype(np.float32),
                "bias": bias * np.float32(bias_bound),
            }
        )
    if layer_norm:
        for layer in layers[:-1]:
            layer["scale"] = jnp.ones_like(layer["bias"])
            layer["shift"] = jnp.zeros_like(layer["bias"])
    return layers


def layer_normalize(inputs: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Layer normalization (Ba et al. 2016) over the last axis."""
    centered = inputs - inputs.mean(axis=-1, keepdims=True)
    variance = jnp.mean(centered**2, axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON) * scale + shift


class Dropout(NamedTuple):
    """Leave units out at random (Srivastava et al. 2014)."""

    rate: jax.Array | float
    """The share of units that is left out; the others are scaled up by as much."""
    key: jax.Array

    def apply(self, units: jax.Array, layer: int) -> jax.Array:
        """Another choice for every row and every layer."""
        kept = jax.random.bernoulli(jax.random.fold_in(self.key, layer), 1 - self.rate, units.shape)
        return jnp.where(kept, units / (1 - self.rate), 0.0)


def apply_mlp(
    layers: Layers,
    inputs: jax.Array,
    activation: Activation = "relu",
    precision: Precision = "float32",
    dropout: Dropout | None = None,
) -> jax.Array:
    """The activation between the layers, nothing after the last."""
    for index, layer in enumerate(layers[:-1]):
        inputs = product(inputs, layer["weight"], precision) + layer["bias"]
        if dropout is not None:
            inputs = dropout.apply(inputs, index)
        if "scale" in layer:
            inputs = layer_normalize(inputs, layer["scale"], layer["shift"])
        inputs = ACTIVATIONS[activation](inputs)
    return product(inputs, layers[-1]["weight"], precision) + layers[-1]["bias"]


def features(*inputs: jax.Array) -> jax.Array:
    """All inputs as one float32 vector per row; images flattened and scaled to [0, 1]."""
    flat = [
        scaled_image(part).reshape(*part.shape[:-3], -1) if part.dtype == jnp.uint8 else part
        for part in inputs
    ]
    return jnp.concatenate(flat, axis=-1) if len(flat) > 1 else flat[0]


def scaled_image(pixels: jax.Array) -> jax.Array:
    """uint8 pixels as float32 in [0, 1]."""
    return pixels.astype(jnp.float32) * np.float32(1 / 255)


# ---------------------------------------------------------------------- networks by name


@dataclass(frozen=True, kw_only=True)
class Network:
    """Base of all networks; the fields are those of the algorithm that uses it."""

    name: ClassVar[str]
    has_dropout: ClassVar[bool] = False
    """Whether `apply` takes `dropout` too: a `Dropout`, or None."""

    hidden_sizes: tuple[int, ...]
    activation: Activation
    layer_norm: bool
    initialization: Initialization
    precision: Precision = "float32"

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        """Random parameters for inputs of the given shapes."""
        raise NotImplementedError

    def apply(self, params: Params, *inputs: jax.Array, train: bool) -> tuple[jax.Array, Params]:
        """Outputs for one input or a batch, and the parameters with their carried leaves after it.

        A network without carried leaves returns its parameters as they are.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MLP(Network):
    """Dense layers with the activation between them."""

    name: ClassVar[str] = "mlp"
    has_dropout: ClassVar[bool] = True

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Layers:
        sizes = [prod(shape) for shape in shapes]
        return init_mlp(
            key, sizes, self.hidden_sizes, output_size, self.initialization, self.layer_norm
        )

    def apply(
        self, params: Layers, *inputs: jax.Array, train: bool, dropout: Dropout | None = None
    ) -> tuple[jax.Array, Layers]:
        joined = features(*inputs)
        return apply_mlp(params, joined, self.activation, self.precision, dropout), params


@dataclass(frozen=True, kw_only=True)
class Conv(Network):
    """Three convolutions on the image (Mnih et al. 2015), then dense layers on all inputs."""

    name: ClassVar[str] = "conv"
    has_dropout: ClassVar[bool] = True

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        if len(shapes[0]) != 3:
            raise UserError("network conv takes images: choose --network mlp for this environment")
        height, width, channels = _channels_last(shapes[0])
        encoder = []
        for index, (filters, kernel, stride) in enumerate(NATURE_ENCODER):
            fan_in = kernel * kernel * channels
            own_key = jax.random.fold_in(key, 1000 + index)
            encoder += init_mlp(own_key, [fan_in], [], filters, self.initialization)
            height, width = (num_places(size, kernel, stride) for size in (height, width))
            channels = filters
        sizes = [height * width * channels, *(prod(shape) for shape in shapes[1:])]
        head = init_mlp(
            key, sizes, self.hidden_sizes, output_size, self.initialization, self.layer_norm
        )
        return {"encoder": encoder, "head": head}

    def apply(
        self, params: Params, *inputs: jax.Array, train: bool, dropout: Dropout | None = None
    ) -> tuple[jax.Array, Params]:
        image, *others = inputs
        batch = image.shape[:-3]
        image = scaled_image(image.reshape(-1, *image.shape[-3:]))
        if _channels_first(image.shape[1:]):
            image = jnp.moveaxis(image, 1, -1)
        for layer, (_, kernel, stride) in zip(params["encoder"], NATURE_ENCODER, strict=True):
            patches = image_patches(image, kernel, stride)
            rows = patches.reshape(-1, patches.shape[-1])
            rows = product(rows, layer["weight"], self.precision) + layer["bias"]
            image = jax.nn.relu(rows).reshape(*patches.shape[:-1], -1)
        encoded = image.reshape(*batch, -1)
        joined = features(encoded, *others)
        head = apply_mlp(params["head"], joined, self.activation, self.precision, dropout)
        return head, params


def _channels_first(shape: Shape) -> bool:
    return shape[0] < shape[2]


def _channels_last(shape: Shape) -> Shape:
    return (shape[1], shape[2], shape[0]) if _channels_first(shape) else shape


def num_places(size: int, kernel: int, stride: int) -> int:
    """Places of a convolution along an axis; the last one may reach beyond the end."""
    return max(0, -(-(size - kernel) // stride)) + 1


def image_patches(image: jax.Array, kernel: int, stride: int) -> jax.Array:
    """What a convolution sees at each place, (batch, height, width, kernel² channels).

    A convolution is then one matrix product, which stays fast under a vmap over learners, where
    XLA's grouped convolutions do not. The stride divides the kernel: blocks of stride × stride
    pixels become channels first, so that few slices are left to join. Zeros are added at the bottom
    and on the right where the last place reaches beyond the image, so that no pixel goes unseen.
    """
    count, height, width, channels = image.shape
    rows, columns = num_places(height, kernel, stride), num_places(width, kernel, stride)
    blocks = kernel // stride
    down, across = rows + blocks - 1, columns + blocks - 1
    missing = (down * stride - height, across * stride - width)
    image = jnp.pad(image, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)))
    image = image.reshape(count, down, stride, across, stride, channels)
    image = image.transpose(0, 1, 3, 2, 4, 5).reshape(count, down, across, -1)
    slices = [image[:, i : i + rows, j : j + columns] for i in range(blocks) for j in range(blocks)]
    return jnp.concatenate(slices, axis=-1)


NETWORKS: dict[str, type[Network]] = {network.name: network for network in (MLP, Conv)}


def network_named(name: str) -> type[Network]:
    """The network registered by this name."""
    if name not in NETWORKS:
        raise UserError(
            f"network {name!r} is not known: import the module that registers it "
            f"(known: {', '.join(sorted(NETWORKS))})"
        )
    return NETWORKS[name]


# ---------------------------------------------------------------------- models


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Model:
    """Parameters, the network they belong to, and the shapes of its inputs."""

    params: Params
    network: Network = field(metadata={"static": True})
    shapes: tuple[Shape, ...] = field(metadata={"static": True})


def init_model(
    network: Network, key: jax.Array, shapes: Sequence[Shape], output_size: int
) -> Model:
    """A model with random parameters."""
    return Model(network.init(key, shapes, output_size), network, tuple(shapes))


def apply_network(model: Model, *inputs: jax.Array, dropout: Dropout | None = None) -> jax.Array:
    """Outputs of the model in evaluation mode."""
    options = _dropout_option(model.network, dropout)
    return model.network.apply(model.params, *inputs, train=False, **options)[0]


def train_network(
    model: Model, *inputs: jax.Array, dropout: Dropout | None = None
) -> tuple[jax.Array, Model]:
    """Outputs of the model in training mode, and the model with its carried leaves after it."""
    options = _dropout_option(model.network, dropout)
    outputs, params = model.network.apply(model.params, *inputs, train=True, **options)
    return outputs, replace(model, params=params)


def _dropout_option(network: Network, dropout: Dropout | None) -> dict[str, Dropout]:
    """What `apply` is told of dropout; networks without it need not know the word."""
    if dropout is None:
        return {}
    if not network.has_dropout:
        raise UserError(f"network {network.name} has no dropout: leave --dropout out")
    return {"dropout": dropout}


def dense_layers(model: Model) -> tuple[Layers, Activation] | None:
    """The layers of a multi-layer perceptron and its activation; None for any other network."""
    if isinstance(model.network, MLP):
        return model.params, model.network.activation
    return None


def part(model: Model, inputs: slice = slice(None), outputs: slice = slice(None)) -> Model | None:
    """A multi-layer perceptron with these inputs and outputs only; None for any other network."""
    found = dense_layers(model)
    if found is None:
        return None
    layers = [dict(layer) for layer in found[0]]
    layers[0]["weight"] = layers[0]["weight"][..., inputs, :]
    for name in ("weight", "bias"):
        layers[-1][name] = layers[-1][name][..., outputs]
    return replace(model, params=layers, shapes=((layers[0]["weight"].shape[-2],),))
