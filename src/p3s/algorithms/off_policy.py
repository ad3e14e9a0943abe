"""What the off-policy algorithms have in common: networks, Adam, targets that follow.

An algorithm overrides a field where its default is another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from p3s.algorithms.base import Algorithm
from p3s.networks import (
    ACTIVATIONS,
    NETWORKS,
    Activation,
    Initialization,
    apply_network,
    init_network,
    network_named,
)
from p3s.types import EnvSpec, Params, Transition


@dataclass(frozen=True, kw_only=True)
class OffPolicy(Algorithm):
    """Base of the algorithms that learn from a replay; `td3.py` and `dqn.py` are two."""

    batch_size: int = 100
    """Transitions in a minibatch (B)."""
    policy_period: int = 2
    """Value updates per policy update (d in Appendix G)."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of policy and value networks."""
    learning_rate: float = 3e-4
    """Adam's step size, policy and values."""
    discount: float = 0.99
    """Discount factor (γ)."""
    target_rate: float = 0.005
    """How fast targets follow (τ)."""
    initialization: Initialization = "fan_in"
    """Of weights: U(±1/√fan_in) (paper's TD3), or Xavier with zero biases (authors)."""
    activation: Activation = "relu"
    """Between the layers of every network."""
    layer_norm: bool = False
    """Normalise the inputs of every activation."""
    network: str = "mlp"
    """Dense layers, or a network of one's own by the name it is registered with."""

    def problem(self) -> str | None:
        for field in ("batch_size", "policy_period"):
            if getattr(self, field) < 1:
                return f"{field} must be at least 1, not {getattr(self, field)}"
        if any(size < 1 for size in self.hidden_sizes):
            return f"hidden_sizes must be at least 1 each, not {self.hidden_sizes}"
        if self.activation not in ACTIVATIONS:
            return f"activation must be one of {', '.join(ACTIVATIONS)}, not {self.activation}"
        if self.network not in NETWORKS:
            return f"network {self.network!r} is not known: import the module that registers it"
        if self.learning_rate <= 0:
            return f"learning_rate must be above 0, not {self.learning_rate}"
        for field in ("discount", "target_rate"):
            if not 0 <= getattr(self, field) <= 1:
                return f"{field} must be between 0 and 1, not {getattr(self, field)}"
        return super().problem()

    def start_optimizer(self, params: Params) -> Params:
        """Adam's state before its first step."""
        return optax.adam(self.learning_rate).init(params)

    def descend(self, params: Params, gradient: Params, state: Params) -> tuple[Params, Params]:
        """One step of Adam: new parameters, new optimiser state."""
        updates, state = optax.adam(self.learning_rate).update(gradient, state)
        return optax.apply_updates(params, updates), state

    def init_network(self, key: jax.Array, input_sizes: list[int], output_size: int) -> Params:
        """A network of this algorithm's shape."""
        network = network_named(self.network)(
            hidden_sizes=self.hidden_sizes,
            activation=self.activation,
            layer_norm=self.layer_norm,
            initialization=self.initialization,
        )
        return init_network(network, key, input_sizes, output_size)

    def init_q_networks(self, keys: jax.Array, spec: EnvSpec) -> Params:
        """One Q network for each key, stacked: (s, a) in; in a discrete world s in, all a out."""
        observation, action = spec.observation_size, spec.action_size
        inputs = [observation] if spec.discrete else [observation, action]
        outputs = action if spec.discrete else 1
        networks = [self.init_network(key, inputs, outputs) for key in keys]
        return jax.tree.map(lambda *stack: jnp.stack(stack), *networks)


def q_value(value: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Q(s, a) of one value network."""
    return apply_network(value, jnp.concatenate([observation, action], axis=-1))[..., 0]


def q_values(values: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Q_j(s, a) of stacked value networks, (networks, batch)."""
    number = len(jax.tree.leaves(values)[0])
    # Each network has inputs of its own, so that all first layers are one batch of products.
    inputs = (jnp.broadcast_to(part, (number, *part.shape)) for part in (observation, action))
    return jax.vmap(q_value)(values, *inputs)


def value_loss(values: Params, batch: Transition, target: jax.Array) -> jax.Array:
    """Sum over j of mean (y - Q_j(s, a))²."""
    errors = q_values(values, batch.observation, batch.action) - target
    return jnp.sum(jnp.mean(errors**2, axis=1))


def bootstrap(batch: Transition, discount_factor: float, next_value: jax.Array) -> jax.Array:
    """y = r + discount * gamma * V(s'); nothing is looked ahead to after a termination."""
    return batch.reward + batch.discount * discount_factor * next_value
