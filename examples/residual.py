"""A network from outside the package: residual blocks in place of plain layers.

p3s --import examples.residual train Pendulum-v1 --network residual --hidden-sizes 64 64 64
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from p3s import Network, register
from p3s.networks import ACTIVATIONS, features, init_mlp


@register
@dataclass(frozen=True, kw_only=True)
class Residual(Network):
    """Every hidden layer but the first adds to what it is given; all are of the first's width."""

    name: ClassVar[str] = "residual"

    def init(self, key, shapes, output_size):
        sizes = [prod(shape) for shape in shapes]
        widths = (self.hidden_sizes[0],) * len(self.hidden_sizes)
        return init_mlp(key, sizes, widths, output_size, self.initialization)

    def apply(self, params, *inputs, train):
        activation = ACTIVATIONS[self.activation]
        first, *blocks, last = params
        stream = features(*inputs) @ first["weight"] + first["bias"]
        for block in blocks:
            stream += activation(stream) @ block["weight"] + block["bias"]
        return activation(stream) @ last["weight"] + last["bias"], params
