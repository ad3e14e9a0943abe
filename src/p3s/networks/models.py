"""Networks, and models: a network with its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

import jax

from p3s.errors import UserError
from p3s.networks.layers import (
    Activation,
    Dropout,
    Initialization,
    Layers,
    apply_mlp,
    features,
    init_mlp,
)
from p3s.networks.products import Precision
from p3s.types import ImageAxes, Params, Shape


@dataclass(frozen=True, kw_only=True)
class Network:
    """Base of all networks; the fields are those of the algorithm that uses it."""

    name: ClassVar[str]
    has_dropout: ClassVar[bool] = False
    """Whether `apply` takes `dropout` too: a `Dropout`, or None."""
    soft_log_std: ClassVar[bool] = False
    """Whether a Gaussian policy squashes the outputs for its log std instead of clipping them."""
    reads_parts: ClassVar[bool] = False
    """Whether it takes packed observations: images, and numbers beside them."""

    hidden_sizes: tuple[int, ...]
    activation: Activation
    layer_norm: bool
    initialization: Initialization
    precision: Precision = "float32"
    scale_images: bool = True
    image_axes: ImageAxes = "auto"
    images: tuple[Shape, ...] = ()
    """Shapes of the images in a packed observation, for a network that `reads_parts`."""

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        """Random parameters for inputs of the given shapes."""
        raise NotImplementedError

    def apply(self, params: Params, *inputs: jax.Array, train: bool) -> tuple[jax.Array, Params]:
        """Outputs for one input or a batch, and the parameters with their carried leaves after it.

        A network without carried leaves returns its parameters as they are.
        """
        raise NotImplementedError

    def project(self, params: Params) -> Params:
        """The nearest parameters that this network may have; stacked ones too.

        Whatever has changed parameters, by a gradient or by evolution, calls `projected` after it.
        """
        return params

    def dense(self, params: Params) -> Layers | None:
        """In evaluation mode: dense layers with `activation` between them that do the same.

        None if there are none.
        """
        return None

    def head(self, params: Params) -> Layers | None:
        """Of a network that encodes images: the dense layers after that."""
        return None

    def with_head(self, params: Params, head: Layers) -> Params:
        """The parameters with these dense layers in the end, for a network that has a `head`."""
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
        joined = features(*inputs, scale_images=self.scale_images)
        return apply_mlp(params, joined, self.activation, self.precision, dropout), params

    def dense(self, params: Layers) -> Layers:
        return params


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


def projected(tree: Params) -> Params:
    """The tree with the parameters of every model projected to what its network allows."""

    def project(node: Params) -> Params:
        if not isinstance(node, Model):
            return node
        return replace(node, params=node.network.project(node.params))

    return jax.tree.map(project, tree, is_leaf=lambda node: isinstance(node, Model))


def _dropout_option(network: Network, dropout: Dropout | None) -> dict[str, Dropout]:
    """What `apply` is told of dropout; networks without it need not know the word."""
    if dropout is None:
        return {}
    if not network.has_dropout:
        raise UserError(f"network {network.name} has no dropout: leave --dropout out")
    return {"dropout": dropout}


def part(model: Model, inputs: slice = slice(None), outputs: slice = slice(None)) -> Model | None:
    """The model with these inputs and outputs only; None for a network that cannot be cut so."""
    network, dense = model.network, model.network.dense(model.params)
    whole = inputs == slice(None)
    last = network.head(model.params) if dense is None and whole else dense
    if last is None:
        return None
    layers = [dict(layer) for layer in last]
    layers[0]["weight"] = layers[0]["weight"][..., inputs, :]
    for name in ("weight", "bias"):
        layers[-1][name] = layers[-1][name][..., outputs]
    if dense is None:
        return replace(model, params=network.with_head(model.params, layers))
    mlp = MLP(
        hidden_sizes=network.hidden_sizes,
        activation=network.activation,
        layer_norm=network.layer_norm,
        initialization=network.initialization,
        precision=network.precision,
        scale_images=network.scale_images,
    )
    return Model(layers, mlp, ((layers[0]["weight"].shape[-2],),))
