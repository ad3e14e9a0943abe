"""What `p3s train` says about a run before it begins."""

from __future__ import annotations

from collections.abc import Iterator

from p3s.config.run import Config
from p3s.learning.rhythm import EveryStep
from p3s.networks.products import has_half_width_products
from p3s.schemes.base import Scheme


def notes(config: Config) -> Iterator[str]:
    """Lines for the user: what will not happen, what is slow, what it costs."""
    for reason in (nothing_learned, silent_chief, random_start, slow_precision):
        if (note := reason(config)) is not None:
            yield f"note: {note}"
    if (cost := cost_of(config)) is not None:
        yield cost


def nothing_learned(config: Config) -> str | None:
    """Why this run will learn nothing, if it will not."""
    first, steps = config.scheme.first_update, config.options.steps
    if steps >= first:
        return None
    return (
        f"learning begins at environment step {first:,}, and the run has {steps:,}: "
        "nothing will be learned (--initial-steps)"
    )


def silent_chief(config: Config) -> str | None:
    """Why the chief will never review this run, if it will not."""
    period = getattr(config.scheme, "review_period", 0)
    own_steps = config.options.steps // max(1, config.scheme.num_envs)
    kind = type(config.scheme)
    idle = kind.review is Scheme.review and kind.decide is Scheme.decide
    if period <= own_steps or idle:
        return None
    return (
        f"review_period is {period} own steps of a learner, and the run has {own_steps}: "
        "the chief would never review it; give a shorter period or more steps"
    )


def random_start(config: Config) -> str | None:
    """What comes before policies that a run starts from, if anything does."""
    steps, options = config.scheme.num_random_steps, config.options
    if steps == 0 or (options.start_from is None and options.cloning_updates == 0):
        return None
    return f"the first {steps:,} own steps are random all the same (--random-steps 0)"


def slow_precision(config: Config) -> str | None:
    """Why half-width products will be slower here, if they will."""
    precision = getattr(config.algorithm, "precision", "float32")
    if precision == "float32" or has_half_width_products():
        return None
    return "this hardware has no bfloat16 products: they will be slower than float32"


def cost_of(config: Config) -> str | None:
    """Steps, updates and their ratio, where that is fixed."""
    scheme, steps = config.scheme, config.options.steps
    each, learners = scheme.updates_per_environment_step(), scheme.num_trained
    rhythm = scheme.rhythm()
    if each is None or not isinstance(rhythm, EveryStep):
        return None
    updates = rhythm.updates_until(-(-steps // scheme.num_envs))
    cost = f"cost: {steps:,} environment steps and {updates:,} updates"
    if learners == 1:
        return f"{cost}: {each:.3g} per step"
    return (
        f"{cost} of each learner: {each:.3g} per step, {each * learners:.3g} in all "
        "(a single learner makes 1)"
    )
