"""Networks as pure functions over parameters that know how they are applied.

A plain list of {"weight", "bias"} layers is a multi-layer perceptron with ReLU between them;
layers with {"scale", "shift"} normalise before the activation. `Shaped` pairs parameters with any
other network: it is a pytree whose leaves are the parameters, so a stack, a copy or a target of it
is one of its kind, and no loss has to be told which network it differentiates.

    @register_network("mine")
    class Mine(Network):
        def init(self, key, input_sizes, output_size): ...      # -> a pytree of float32 arrays
        def apply(self, params, inputs): ...                    # (..., sum of sizes) -> (..., size)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.types import Params

Initialization = Literal["fan_in", "xavier"]
Activation = Literal["relu", "tanh", "elu", "leaky_relu", "gelu", "silu"]
Layers = list[dict[str, jax.Array]]

LAYER_NORM_EPSILON = 1e-5
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "leaky_relu": jax.nn.leaky_relu,
    "gelu": lambda inputs: jax.nn.gelu(inputs, approximate=False),
    "silu": jax.nn.silu,
}


def init_mlp(
    key: jax.Array,
    input_sizes: Sequence[int],
    hidden_sizes: Sequence[int],
    output_size: int,
    initialization: Initialization,
    layer_norm: bool = False,
) -> Layers:
    """Random layers for the concatenation of inputs of the given sizes.

    fan_in: weights and biases U(±1/sqrt(fan_in)), as TD3's code has them.
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


def follow(targets: Params, online: Params, rate: float) -> Params:
    """Move target parameters a little towards the online ones: (1 - rate) target + rate online."""
    return jax.tree.map(lambda target, leaf: target + rate * (leaf - target), targets, online)


def follow_every(
    targets: Params, online: Params, rate: float, count: jax.Array, period: int
) -> Params:
    """`follow` whenever `count` is a multiple of `period`; a rate of 1 copies to the bit."""
    due = count % period == 0
    return jax.tree.map(
        lambda target, leaf: jnp.where(due, (1.0 - rate) * target + rate * leaf, target),
        targets,
        online,
    )


def normalize(inputs: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Layer normalisation (Ba et al. 2016) over the last axis."""
    centered = inputs - inputs.mean(axis=-1, keepdims=True)
    variance = jnp.mean(centered**2, axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON) * scale + shift


def apply_mlp(layers: Layers, inputs: jax.Array, activation: Activation = "relu") -> jax.Array:
    """The activation between the layers, nothing after the last."""
    for layer in layers[:-1]:
        inputs = inputs @ layer["weight"] + layer["bias"]
        if "scale" in layer:
            inputs = normalize(inputs, layer["scale"], layer["shift"])
        inputs = ACTIVATIONS[activation](inputs)
    return inputs @ layers[-1]["weight"] + layers[-1]["bias"]


# ---------------------------------------------------------------------- networks by name


@dataclass(frozen=True, kw_only=True)
class Network:
    """Base of all networks; one's own may use these fields of the algorithm or leave them."""

    name: ClassVar[str]

    hidden_sizes: tuple[int, ...]
    activation: Activation
    layer_norm: bool
    initialization: Initialization

    def init(self, key: jax.Array, input_sizes: Sequence[int], output_size: int) -> Params:
        """Random parameters for the concatenation of inputs of the given sizes."""
        raise NotImplementedError

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Outputs for one input or a batch of them."""
        raise NotImplementedError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shaped:
    """Parameters, the network that they are of, and the size of its input."""

    params: Params
    network: Network = field(metadata={"static": True})
    input_size: int = field(metadata={"static": True})


NETWORKS: dict[str, type[Network]] = {}
AnyNetwork = TypeVar("AnyNetwork", bound=type[Network])


def register_network(name: str) -> Callable[[AnyNetwork], AnyNetwork]:
    """Make a network known by this name to the field `network` of all off-policy algorithms."""

    def register(network: AnyNetwork) -> AnyNetwork:
        network.name = name
        NETWORKS[name] = network
        return network

    return register


@register_network("mlp")
class MLP(Network):
    """Dense layers, the activation between them."""

    def init(self, key: jax.Array, input_sizes: Sequence[int], output_size: int) -> Layers:
        return init_mlp(
            key, input_sizes, self.hidden_sizes, output_size, self.initialization, self.layer_norm
        )

    def apply(self, params: Layers, inputs: jax.Array) -> jax.Array:
        return apply_mlp(params, inputs, self.activation)


def network_named(name: str) -> type[Network]:
    """The network registered by this name."""
    if name not in NETWORKS:
        raise UserError(
            f"network {name!r} is not known: import the module that registers it "
            f"(known: {', '.join(sorted(NETWORKS))})"
        )
    return NETWORKS[name]


def init_network(
    network: Network, key: jax.Array, input_sizes: Sequence[int], output_size: int
) -> Params:
    """Random parameters: plain layers where ReLU layers are meant, `Shaped` for all else."""
    params = network.init(key, input_sizes, output_size)
    plain = isinstance(network, MLP) and network.activation == "relu"
    return params if plain else Shaped(params, network, sum(input_sizes))


def apply_network(params: Params, inputs: jax.Array) -> jax.Array:
    """Outputs of the network that the parameters are of."""
    if isinstance(params, Shaped):
        return params.network.apply(params.params, inputs)
    return apply_mlp(params, inputs)


def input_size(params: Params) -> int:
    """Numbers that the network takes in."""
    return params.input_size if isinstance(params, Shaped) else params[0]["weight"].shape[-2]


def dense_layers(params: Params) -> tuple[Layers, Activation] | None:
    """The layers of a multi-layer perceptron and its activation; None for any other network."""
    if not isinstance(params, Shaped):
        return params, "relu"
    if isinstance(params.network, MLP):
        return params.params, params.network.activation
    return None


def part(
    params: Params, inputs: slice = slice(None), outputs: slice = slice(None)
) -> Params | None:
    """A multi-layer perceptron with these inputs and outputs only; None for any other network."""
    found = dense_layers(params)
    if found is None:
        return None
    layers = [dict(layer) for layer in found[0]]
    layers[0]["weight"] = layers[0]["weight"][..., inputs, :]
    for name in ("weight", "bias"):
        layers[-1][name] = layers[-1][name][..., outputs]
    return replace(params, params=layers) if isinstance(params, Shaped) else layers
