"""Population-guided off-policy reinforcement learning: N learners as one compiled JAX program.

from p3s import Population

population = Population("Hopper-v5", num_learners=4).learn(100_000)
action, _ = population.predict(observation)
"""

from p3s.envs import make_env
from p3s.errors import TrainingStopped, UserError
from p3s.networks import Network
from p3s.plugins import register
from p3s.policy import Policy
from p3s.population import Population, evaluate, load
from p3s.report.export import load_results

__all__ = [
    "Network",
    "Policy",
    "Population",
    "TrainingStopped",
    "UserError",
    "evaluate",
    "load",
    "load_results",
    "make_env",
    "register",
]
