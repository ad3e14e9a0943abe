"""What a base algorithm must supply.

An algorithm is a frozen dataclass whose fields are its hyper-parameters. It describes one learner
and never knows how many there are: `learning/learners.py` stacks it. Its methods are pure, and
use the fields only arithmetically, so that a scheme may replace one by a traced value per learner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import jax

from p3s.errors import UserError
from p3s.fields.layers import Layer
from p3s.networks import Model
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """Base of all algorithms; see `td3.py` for one."""

    name: ClassVar[str]
    actions: ClassVar[Literal["continuous", "discrete", "both"]]
    has_own_policy: ClassVar[bool] = True
    """Whether its policy is apart from its value functions; in DQN they are one."""
    takes_loss_terms: ClassVar[bool] = False
    """Whether its policy step minimizes `guide.term` too, by which a scheme adds to its loss."""
    squashed: ClassVar[bool] = True
    """Whether the outputs of `noiseless_layers` go through tanh; otherwise they are clipped."""
    on_policy: ClassVar[bool] = False
    """Whether it learns from its own rollouts (`on_policy.py`) instead of a replay."""
    keeps_to_masks: ClassVar[bool] = False
    """Whether it takes only actions that an observation's mask allows."""
    num_stacked_observations: ClassVar[int] = 1
    """How many of the latest observations make up what policy and values see, the newest first."""

    presets: ClassVar[tuple[Layer, ...]] = ()
    """Values that it wants under any preset, of its scheme's fields too."""

    normalize_observations: bool = False
    """Scale observations to mean 0 and standard deviation 1, by running statistics."""
    scale_images: bool = True
    """Divide pixels by 255: those of uint8 images, and those of uint8 parts (0 to 255) of
    observations that are flattened. Off for a grid whose numbers are not brightness."""

    @property
    def reads_parts(self) -> bool:
        """Whether it reads images that have numbers beside them: packed, see `ObservationSpec`."""
        return False

    def for_run(self, num_updates: int) -> Self:
        """The algorithm for this many updates of a learner; a value that is given stays."""
        return self

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        """A new learner with random parameters."""
        raise NotImplementedError

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        """An action for one observation or for a batch of them."""
        raise NotImplementedError

    @property
    def noise_memory(self) -> int:
        """Earlier steps whose noise an exploring action depends on.

        If there are any, `act` takes `past_keys` too: the keys of those steps, latest first.
        """
        return 0

    def noise_step(self, key: jax.Array, step: jax.Array) -> jax.Array:
        """The step whose noise an exploring action takes: this one, unless noise is held.

        key: of the run's actions, the same for all learners.
        """
        return step

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        """One gradient step of the value functions on a minibatch; `policy_of` stays as it is."""
        raise NotImplementedError

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        """One gradient step of the policy on the augmented loss (eq. 1), then of the targets."""
        raise NotImplementedError

    def between_policy_steps(self, learner: Learner, batch: Transition) -> Learner:
        """What becomes of the policy in an update without a policy step; only what it carries."""
        return learner

    def follow_targets(self, learner: Learner) -> Learner:
        """Move the targets that follow at policy steps; others follow in `value_step`."""
        return learner

    def distance_between(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        """D(policy, other) at each observation of a batch, (batch,); both in evaluation mode."""
        raise NotImplementedError

    def policy_of(self, learner: Learner) -> Params:
        """The parameters that act."""
        return learner.policy

    def with_policy(self, learner: Learner, policy: Params) -> Learner:
        """The learner with other parameters to act with; everything else is kept."""
        return learner._replace(policy=policy)

    def with_start(self, learner: Learner, policy: Params) -> Learner:
        """The learner as it starts from a trained policy: its target policy too."""
        learner = self.with_policy(learner, policy)
        if "policy" not in learner.targets:
            return learner
        return learner._replace(targets={**learner.targets, "policy": policy})

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        """The learner's estimate of Q(s, a) for a batch, (batch,)."""
        raise NotImplementedError

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Model | None:
        """The noiseless policy as one model, for the export; None if it cannot be written as one.

        Its output goes through tanh if `squashed`, otherwise it is clipped to [-1, 1]; if
        `spec.discrete`, the action is the index of its largest entry.
        """
        return None

    def problem(self) -> UserError | None:
        """What is wrong with the fields taken together, or None; bounds are in their types."""
        return None
