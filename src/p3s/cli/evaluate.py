"""`p3s evaluate`: episodes with a trained policy."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.cli.chosen_policy import ChosenPolicy, PlayedOn
from p3s.policies.trained import evaluate


@dataclass(frozen=True, kw_only=True)
class Options(PlayedOn, ChosenPolicy):
    """Play episodes with a trained policy, noiseless ones unless told otherwise."""

    episodes: int = 10
    """Episodes to play."""
    seed: int = 0
    """Seed of the episodes."""
    stochastic: bool = False
    """Play with the policy's own noise."""


def run(options: Options) -> int:
    """Print the returns."""
    policy = options.load()
    returns = evaluate(
        policy,
        options.environment(policy),
        options.episodes,
        options.seed,
        deterministic=not options.stochastic,
    )
    spread = f" ± {returns.std(ddof=1):,.1f}" if len(returns) > 1 else ""
    print(f"return {returns.mean():,.1f}{spread} over {len(returns)} episodes")
    print(f"lowest {returns.min():,.1f}, highest {returns.max():,.1f}")
    return 0
