"""What the off-policy algorithms have in common: networks, Adam, an ensemble of value networks.

    OffPolicy      networks, optimizers and value functions
    WithTargets    the same with targets that follow
    ActorCritic    the same with a policy of its own, which may have another form

An algorithm overrides a field where its default differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import optax

from p3s.algorithms.base import Algorithm
from p3s.algorithms.parts.rates import scheduled
from p3s.fields.layers import Layer, Setting
from p3s.fields.schedules import Rate
from p3s.fields.types import Count, Decay, Share, Sizes
from p3s.networks import (
    Activation,
    Dropout,
    Initialization,
    Model,
    apply_network,
    init_model,
    network_named,
    projected,
    train_network,
)
from p3s.networks.products import Precision
from p3s.trees import merge, trained
from p3s.types import (
    EnvSpec,
    Guide,
    ImageAxes,
    Learner,
    ObservationSpec,
    Params,
    Shape,
    Transition,
)

Loss = Callable[[Params], tuple[jax.Array, tuple[Params, Any]]]
"""Parameters -> loss, (parameters with their carried leaves after the pass, anything else)."""

TOTAL_INITIAL_STEPS = {"HalfCheetah": 10_000, "Ant": 10_000}


def initial_steps(setting: Setting) -> int:
    """T_initial of Appendix I; times its four learners it is what TD3 takes alone."""
    return setting.own_steps(TOTAL_INITIAL_STEPS.get(setting.family, 1000))


@dataclass(frozen=True, kw_only=True)
class OffPolicy(Algorithm):
    """Base of the algorithms that learn from a replay; `dqn.py` is one."""

    presets: ClassVar[tuple[Layer, ...]] = (Layer("Appendix I", {"initial_steps": initial_steps}),)

    batch_size: Count = 100
    """Transitions in a minibatch (B)."""
    policy_period: Count = 2
    """Value updates per policy update (d in Appendix G)."""
    hidden_sizes: Sizes = (256, 256)
    """Widths of the hidden layers of every network."""
    learning_rate: Rate = 3e-4
    """Adam's step size, or a schedule of it: linear(3e-4, 1e-5), cosine(3e-4, 1e-5)."""
    learning_rate_steps: Count | None = None
    """Updates from the start to the end of rates that change; None: those of the run, by its
    `steps`. Outside of a run they stay as they are."""
    n_step: Count = 1
    """Steps whose rewards are summed up before the value of what follows is added; fewer where an
    episode ends."""
    normalize_rewards: bool = False
    """Divide rewards by the standard deviation of the running discounted return."""
    adam_momentum: Decay = 0.9
    """Share of its running mean of gradients that Adam keeps at a step (β1)."""
    discount_factor: Share = 0.99
    """Discount factor (γ)."""
    initialization: Initialization = "fan_in"
    """Initial weights: U(±1/√fan_in) (TD3's code), or Xavier with zero biases, by the fan-in of
    each input (xavier, authors) or of all inputs together (xavier_joint, REDQ's code), or
    orthogonal (FlashSAC's code)."""
    activation: Activation = "relu"
    """Activation between the layers of every network."""
    layer_norm: bool = False
    """Normalize the inputs of every activation."""
    precision: Precision = "float32"
    """Width of matrix products: float32, or bfloat16 summed in float32 (faster where the hardware
    has it); everything else stays float32."""
    network: str = "auto"
    """mlp (dense layers), conv (for an image), multi (an encoder for each image of an observation
    and one for its numbers), batch_renorm (dense layers with CrossQ's norms), batch_norm (with
    XQC's norms and unit weights), residual_norm (FlashSAC's blocks), a registered network of your
    own, or auto: conv for an image, multi for images in a Dict or Tuple, mlp otherwise."""
    image_axes: ImageAxes = "auto"
    """Where images have their channels: first, last, or auto: next to two equal axes, which are
    height and width, else at the shorter end. For networks conv and multi."""

    @property
    def return_limit(self) -> float | None:
        """With `normalize_rewards`: no discounted return so far is larger than this, if any."""
        return None

    def combine(self, values: jax.Array, key: jax.Array) -> jax.Array:
        """One estimate from those of the value networks, (networks, ...) -> (...): the smallest.

        key: for ensembles that combine a random subset.
        """
        return values.min(axis=0)

    def start_optimizer(self, params: Params) -> Params:
        """Adam's state before its first step."""
        return self.adam(self.adam_momentum).init(trained(params))

    def adam(self, momentum: float) -> optax.GradientTransformation:
        """Adam with this share of past gradients kept."""
        return optax.adam(self.step_size, momentum)

    @property
    def step_size(self) -> optax.ScalarOrSchedule:
        """Adam's step size, or a function that gives it from the number of its steps so far."""
        if not self.rates_move:
            return self.learning_rate  # pyright: ignore[reportReturnType]
        return scheduled(self.learning_rate, self.learning_rate_steps)

    @property
    def rates_move(self) -> bool:
        """Whether a step size changes over the run."""
        rates = self.learning_rate, getattr(self, "policy_learning_rate", None)
        return any(isinstance(rate, str) for rate in rates)

    def for_run(self, num_updates: int) -> Self:
        if self.learning_rate_steps is not None or not self.rates_move:
            return self
        return replace(self, learning_rate_steps=num_updates)

    def minimize(
        self, loss_of: Loss, params: Params, state: Params
    ) -> tuple[Params, Params, jax.Array, Any]:
        """One step of Adam: new parameters, optimizer state, the loss, and what else it returned.

        Gradients go to what is trained; what is carried is as the loss left it.
        """

        def loss_of_trained(part: Params) -> tuple[jax.Array, tuple[Params, Any]]:
            return loss_of(merge(part, params))

        part = trained(params)
        (loss, (after, rest)), gradient = jax.value_and_grad(loss_of_trained, has_aux=True)(part)
        updates, state = self.adam(self.adam_momentum).update(gradient, state)
        return projected(merge(optax.apply_updates(part, updates), after)), state, loss, rest

    @property
    def reads_parts(self) -> bool:
        return self.network == "auto" or network_named(self.network).reads_parts

    def init_network(
        self, key: jax.Array, inputs: Sequence[Shape | ObservationSpec], output_size: int
    ) -> Model:
        """A network of this algorithm's kind; inputs: `spec.features`, shapes of all others."""
        shapes = [item.shape if isinstance(item, ObservationSpec) else item for item in inputs]
        images = inputs[0].images if isinstance(inputs[0], ObservationSpec) else ()
        name = self.network
        if name == "auto":
            for_image = "conv" if any(len(shape) == 3 for shape in shapes) else "mlp"
            name = "multi" if images else for_image
        network = network_named(name)(
            hidden_sizes=self.hidden_sizes,
            activation=self.activation,
            layer_norm=self.layer_norm,
            initialization=self.initialization,
            precision=self.precision,
            scale_images=self.scale_images,
            image_axes=self.image_axes,
            images=images,
        )
        return init_model(network, key, shapes, output_size)

    def init_q_networks(self, keys: jax.Array, spec: EnvSpec, outputs: int = 1) -> Params:
        """One Q network for each key, stacked: (s, a) in; for discrete actions s in, all a out.

        outputs: numbers that a network gives for an action.
        """
        inputs = [spec.features, *([] if spec.discrete else [(spec.action_size,)])]
        size = outputs * (spec.action_size if spec.discrete else 1)
        networks = [self.init_network(key, inputs, size) for key in keys]
        return jax.tree.map(lambda *stack: jnp.stack(stack), *networks)


@dataclass(frozen=True, kw_only=True)
class WithTargets(OffPolicy):
    """Base of the algorithms with networks that follow the online ones."""

    target_rate: Share = 0.005
    """How fast targets follow (τ)."""


POLICY_FIELDS = ("hidden_sizes", "activation", "learning_rate", "layer_norm")


@dataclass(frozen=True, kw_only=True)
class ActorCritic(OffPolicy):
    """Base of the algorithms whose policy is apart from their values; `td3.py` is one."""

    takes_loss_terms: ClassVar[bool] = True

    policy_hidden_sizes: Sizes | None = None
    """Widths of the policy's hidden layers; None: `hidden_sizes`."""
    policy_activation: Activation | None = None
    """Activation between the policy's layers; None: `activation`."""
    policy_learning_rate: Rate | None = None
    """Adam's step size for the policy, or a schedule of it; None: `learning_rate`."""
    policy_layer_norm: bool | None = None
    """Normalize the inputs of the policy's activations; None: `layer_norm`."""

    @property
    def for_policy(self) -> Self:
        """The algorithm with the policy's own fields in place of the common ones."""
        own = {name: getattr(self, f"policy_{name}") for name in POLICY_FIELDS}
        made = replace(self, **{name: value for name, value in own.items() if value is not None})
        return made.at_policy_steps

    @property
    def at_policy_steps(self) -> Self:
        """The algorithm for an optimizer that steps with the policy: a schedule ends as early."""
        steps = self.learning_rate_steps
        if steps is None or not isinstance(self.learning_rate, str):
            return self
        return replace(self, learning_rate_steps=max(steps // self.policy_period, 1))

    def minimize_policy(
        self, loss_of: Loss, learner: Learner, guide: Guide
    ) -> tuple[Params, Params, jax.Array, Any]:
        """`minimize` for the policy, whose loss has the guide's further term."""
        further = guide.term

        def loss_with_term(policy: Params) -> tuple[jax.Array, tuple[Params, Any]]:
            loss, rest = loss_of(policy)
            return (loss if further is None else loss + further(policy)), rest

        return self.for_policy.minimize(
            loss_with_term, learner.policy, learner.optimizers["policy"]
        )


def q_value(
    value: Model, observation: jax.Array, action: jax.Array, dropout: Dropout | None = None
) -> jax.Array:
    """Q(s, a) of one value network."""
    return apply_network(value, observation, action, dropout=dropout)[..., 0]


def per_network(
    values: Params, dropout: Dropout | None, *inputs: jax.Array
) -> tuple[tuple[jax.Array, ...], Dropout | None]:
    """The inputs once per network, so that all first layers are one batch of products.

    And a dropout for each network.
    """
    number = len(jax.tree.leaves(values)[0])
    repeated = tuple(jnp.broadcast_to(part, (number, *part.shape)) for part in inputs)
    if dropout is None:
        return repeated, None
    rates = jnp.broadcast_to(dropout.rate, (number,))
    return repeated, Dropout(rates, jax.random.split(dropout.key, number))


def q_values(
    values: Params, observation: jax.Array, action: jax.Array, dropout: Dropout | None = None
) -> jax.Array:
    """Q_j(s, a) of stacked value networks, (networks, batch)."""
    (seen, actions), dropouts = per_network(values, dropout, observation, action)
    return jax.vmap(q_value)(values, seen, actions, dropouts)


def value_loss(
    values: Params, batch: Transition, target: jax.Array, dropout: Dropout | None = None
) -> tuple[jax.Array, tuple[Params, None]]:
    """Sum over j of mean (y - Q_j(s, a))²."""
    inputs, dropouts = per_network(values, dropout, batch.observation, batch.action)
    outputs, after = jax.vmap(lambda value, own, *seen: train_network(value, *seen, dropout=own))(
        values, dropouts, *inputs
    )
    errors = outputs[..., 0] - target
    return jnp.sum(jnp.mean(errors**2, axis=1)), (after, None)


def bootstrap(batch: Transition, discount_factor: float, next_value: jax.Array) -> jax.Array:
    """y = r + discount * gamma * V(s'); no lookahead after a termination.

    Of several steps, (batch, steps): y = sum_k gamma^k (r_k + gamma discount_k V(s')), k from 0.
    """
    if batch.reward.ndim == next_value.ndim:
        return batch.reward + batch.discount * discount_factor * next_value
    powers = discount_factor ** jnp.arange(batch.reward.shape[-1], dtype=jnp.float32)
    each = batch.reward + batch.discount * discount_factor * next_value[..., None]
    return jnp.sum(powers * each, axis=-1)
