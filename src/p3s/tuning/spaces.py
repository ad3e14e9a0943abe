"""The spaces that fields are searched in, and which are searched if nothing is said."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from p3s.config.run import Config, field_values
from p3s.fields.types import Bounds, bare


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, both included."""

    low: float
    high: float
    log: bool = False
    """Whether equal factors are equally likely, not equal differences."""
    whole: bool = False

    def suggest(self, trial: Any, name: str) -> Any:
        """The trial's value, drawn if it has none."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def value(self, param: Any) -> Any:
        """The field's value for what Optuna keeps."""
        return param

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values that must all be valid."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def to_json(self) -> Any:
        """As a file would have it."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return f"{self.low:.6g} to {self.high:.6g}" + (" (log)" if self.log else "")


@dataclass(frozen=True)
class Choices:
    """Some values; Optuna keeps them as JSON, so a list of sizes is one too."""

    examples: tuple[Any, ...]

    def suggest(self, trial: Any, name: str) -> Any:
        """The trial's value, drawn if it has none."""
        return self.value(trial.suggest_categorical(name, [json.dumps(v) for v in self.examples]))

    def value(self, param: Any) -> Any:
        """The field's value for what Optuna keeps."""
        return json.loads(param)

    def to_json(self) -> Any:
        """As a file would have it."""
        return list(self.examples)

    def __str__(self) -> str:
        return " | ".join(map(str, self.examples))


Space = Range | Choices

RANGES: dict[str, Space] = {
    "learning_rate": Range(3e-5, 3e-3, log=True),
    "policy_learning_rate": Range(3e-5, 3e-3, log=True),
    "batch_size": Choices((64, 128, 256, 512)),
    "minibatch_size": Choices((32, 64, 128, 256)),
    "hidden_sizes": Choices(([64, 64], [256, 256], [400, 300])),
    "policy_hidden_sizes": Choices(([64, 64], [256, 256], [400, 300])),
    "discount_factor": Choices((0.9, 0.95, 0.98, 0.99, 0.995, 0.999)),
    "target_rate": Range(1e-3, 0.1, log=True),
    "n_step": Range(1, 5, whole=True),
    "num_learners": Choices((2, 4, 8)),
    "exploration_noise": Range(0.03, 0.5, log=True),
    "trace_decay": Range(0.8, 0.99),
    "entropy_weight": Range(1e-5, 0.1, log=True),
    "rollout_steps": Choices((512, 1024, 2048, 4096)),
    "beta": Range(0.1, 10.0, log=True),
    "d_min": Range(0.005, 0.5, log=True),
    "rho": Range(1.0, 4.0),
    "mutation_strength": Range(0.01, 1.0, log=True),
}
"""Where the type and the default alone would give a worse range."""
COMMON = ("learning_rate", "batch_size", "discount_factor")
BY_ALGORITHM: dict[str, tuple[str, ...]] = {
    "td3": ("target_rate", "exploration_noise"),
    "ddpg": ("target_rate", "exploration_noise"),
    "crossq_td3": ("exploration_noise",),
    "sac": ("target_rate",),
    "sac_2018": ("target_rate", "reward_scale"),
    "redq": ("target_rate",),
    "droq": ("target_rate", "dropout"),
    "tqc": ("target_rate", "num_dropped"),
    "sac_discrete": ("target_rate", "target_entropy"),
    "sql": ("reward_scale",),
    "dqn": ("target_period", "epsilon_updates"),
    "ppo": ("rollout_steps", "minibatch_size", "trace_decay", "clip_range", "entropy_weight"),
    "acktr": ("target_kl", "value_learning_rate", "trace_decay"),
}
BY_SCHEME: dict[str, tuple[str, ...]] = {
    "p3s": ("rho", "d_min"),
    "resetting": ("review_period",),
    "center": ("beta", "center_learning_rate"),
    "cem": ("initial_variance",),
    "erl": ("mutation_strength", "synchronization_period"),
    "evorainbow": ("initial_variance", "champion_rate"),
    "pbt": ("review_period", "perturbation"),
    "mf_pbt": ("review_period", "perturbation"),
    "pb2": ("review_period",),
    "dvd": ("kernel_width",),
}
"""What is searched by default, besides `COMMON`."""


def default_names(config: Config) -> list[str]:
    """The fields that are searched if nothing is said."""
    own = BY_ALGORITHM.get(config.algorithm.name, ()), BY_SCHEME.get(config.scheme.name, ())
    having = field_values(config.algorithm) | field_values(config.scheme)
    return [name for name in (*COMMON, *own[0], *own[1]) if name in having]


def alone(expected: Any) -> Any:
    """The one type besides None that a field may hold."""
    if get_origin(expected) not in (Union, types.UnionType):
        return expected
    others = [choice for choice in get_args(expected) if choice is not type(None)]
    return others[0] if len(others) == 1 else expected


def made_from(expected: Any, default: Any) -> Space | None:
    """A space for a type with its bounds, around the default where they leave it open."""
    expected = alone(expected)
    kind = bare(expected)
    if kind is bool:
        return Choices((False, True))
    if get_origin(kind) is Literal:
        return Choices(get_args(kind))
    if kind not in (int, float):
        return None
    metadata = expected.__metadata__ if get_origin(expected) is Annotated else ()
    bounds = next((item for item in metadata if isinstance(item, Bounds)), Bounds())
    return _numbers(bounds, default, kind is int)


def _numbers(bounds: Bounds, default: Any, whole: bool) -> Space | None:
    """All numbers within two bounds; else those around a positive default, evenly by factors."""
    low = bounds.least if bounds.above is None else math.nextafter(bounds.above, math.inf)
    high = bounds.most if bounds.below is None else math.nextafter(bounds.below, -math.inf)
    if not whole and low is not None and high is not None and high - low <= 1:
        return Range(low, high)
    if default is None or default <= 0:
        return None
    factor = 4 if whole else 10
    start = max(default / factor, low or 0.0, 1 if whole else 0)
    end = min(default * factor, math.inf if high is None else high)
    return Range(int(start), int(end), True, True) if whole else Range(start, end, True)


def space_from_json(record: Any) -> Space:
    """The space that `to_json` wrote."""
    return Range(**record) if isinstance(record, dict) else Choices(tuple(record))
