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
(..., height, width, channels); networks scale them. Images with numbers beside them come packed as
bytes to a network that says `reads_parts`, see `ObservationSpec`.
"""

from __future__ import annotations

from p3s.errors import UserError
from p3s.networks.batch_norm import BatchNorm
from p3s.networks.batch_renorm import BatchRenorm
from p3s.networks.conv import LEAST_UNPADDED, NATURE_ENCODER, Conv, image_patches, num_places
from p3s.networks.layers import (
    ACTIVATIONS,
    LAYER_NORM_EPSILON,
    Activation,
    Dropout,
    Initialization,
    Layers,
    apply_mlp,
    features,
    init_mlp,
    layer_normalize,
    pixel_values,
)
from p3s.networks.models import (
    MLP,
    Model,
    Network,
    apply_network,
    init_model,
    part,
    projected,
    train_network,
)
from p3s.networks.multi import Multi, encoder_of, unpacked
from p3s.networks.residual_norm import ResidualNorm
from p3s.types import Shape

__all__ = [
    "ACTIVATIONS",
    "LAYER_NORM_EPSILON",
    "LEAST_UNPADDED",
    "MLP",
    "NATURE_ENCODER",
    "NETWORKS",
    "Activation",
    "BatchNorm",
    "BatchRenorm",
    "Conv",
    "Dropout",
    "Initialization",
    "Layers",
    "Model",
    "Multi",
    "Network",
    "ResidualNorm",
    "Shape",
    "apply_mlp",
    "apply_network",
    "encoder_of",
    "features",
    "image_patches",
    "init_mlp",
    "init_model",
    "layer_normalize",
    "network_named",
    "num_places",
    "part",
    "pixel_values",
    "projected",
    "train_network",
    "unpacked",
]

NETWORKS: dict[str, type[Network]] = {
    network.name: network for network in (MLP, Conv, Multi, BatchRenorm, BatchNorm, ResidualNorm)
}


def network_named(name: str) -> type[Network]:
    """The network registered by this name."""
    if name not in NETWORKS:
        raise UserError(
            f"network {name!r} is not known: import the module that registers it "
            f"(known: {', '.join(sorted(NETWORKS))})",
            "network",
        )
    return NETWORKS[name]
