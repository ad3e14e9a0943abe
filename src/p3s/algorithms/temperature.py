"""The learned temperature of both soft actor-critics (Haarnoja et al. 2018b, Section 5).

    minimise log alpha * (entropy of pi - target entropy)

alpha grows while the policy is less random than wanted and shrinks while it is more so.
Differs from the text in one respect that has become usual: the loss is linear in log alpha
instead of in alpha, so that a step does not shrink with alpha.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import OffPolicy
from p3s.types import Params


@dataclass(frozen=True, kw_only=True)
class LearnedTemperature(OffPolicy):
    """An algorithm that keeps log alpha and its optimiser in the learner's `extra`."""

    initial_temperature: float = 1.0
    """Weight of the entropy at the start (α)."""

    def problem(self) -> str | None:
        if self.initial_temperature <= 0:
            return f"initial_temperature must be above 0, not {self.initial_temperature}"
        return super().problem()

    def start_temperature(self) -> Params:
        """The entries of `extra` before the first update."""
        log_temperature = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        return {
            "log_temperature": log_temperature,
            "temperature_optimizer": self.start_optimizer(log_temperature),
        }

    def adapt_temperature(
        self, extra: Params, entropy: jax.Array, target_entropy: jax.Array | float
    ) -> Params:
        """The same entries after one step."""
        gradient = entropy - target_entropy  # of the loss above, with respect to log alpha
        log_temperature, state = self.descend(
            extra["log_temperature"], gradient, extra["temperature_optimizer"]
        )
        return {"log_temperature": log_temperature, "temperature_optimizer": state}
