"""A network from outside the package: residual blocks in place of plain layers.

p3s --import examples.residual train Pendulum-v1 --network residual --hidden-sizes 64 64 64
"""

from p3s import register_network
from p3s.networks import ACTIVATIONS, Network, init_mlp


@register_network("residual")
class Residual(Network):
    """Every hidden layer but the first adds to what it is given; all are of the first's width."""

    def init(self, key, input_sizes, output_size):
        widths = (self.hidden_sizes[0],) * len(self.hidden_sizes)
        return init_mlp(key, input_sizes, widths, output_size, self.initialization)

    def apply(self, params, inputs):
        activation = ACTIVATIONS[self.activation]
        first, *blocks, last = params
        stream = inputs @ first["weight"] + first["bias"]
        for block in blocks:
            stream += activation(stream) @ block["weight"] + block["bias"]
        return activation(stream) @ last["weight"] + last["bias"]
