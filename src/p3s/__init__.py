"""Population-guided off-policy reinforcement learning: N learners as one compiled JAX program.

from p3s import Population

population = Population("Hopper-v5", num_learners=4).learn(100_000)
action, _ = population.predict(observation)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p3s.envs import make_env
    from p3s.errors import TrainingStopped, UserError
    from p3s.fields.schedules import cosine, linear
    from p3s.networks import Network
    from p3s.plugins.loading import register
    from p3s.policies.policy import Policy
    from p3s.policies.trained import evaluate, load
    from p3s.population import Population
    from p3s.report.export import load_results

_MODULES = {
    "Network": "p3s.networks",
    "Policy": "p3s.policies.policy",
    "Population": "p3s.population",
    "TrainingStopped": "p3s.errors",
    "UserError": "p3s.errors",
    "cosine": "p3s.fields.schedules",
    "evaluate": "p3s.policies.trained",
    "linear": "p3s.fields.schedules",
    "load": "p3s.policies.trained",
    "load_results": "p3s.report.export",
    "make_env": "p3s.envs",
    "register": "p3s.plugins.loading",
}
"""Where each name is; jax is imported with the first that needs it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'p3s' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]


__all__ = [
    "Network",
    "Policy",
    "Population",
    "TrainingStopped",
    "UserError",
    "cosine",
    "evaluate",
    "linear",
    "load",
    "load_results",
    "make_env",
    "register",
]
