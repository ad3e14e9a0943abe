"""Every off-policy algorithm finds the known values of the probe environments."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.algorithms.off_policy import WithTargets
from p3s.envs import make_env
from p3s.types import EnvSpec, Guide, Transition
from tests.helpers import off_policy
from tests.probe_worlds import PROBES, ProbeEnv

"""The others: test_on_policy_probes.py."""

# Where all observations are alike, running statistics of hidden units lag behind weights that move.
NORMALIZED = {"learning_rate": 1e-3, "policy_hidden_sizes": ()}

QUIET = {
    # An entropy bonus is part of a soft value: make it too small to be seen.
    "sac": {"initial_temperature": 1e-3, "target_entropy": -20.0},
    "redq": {"initial_temperature": 1e-3, "target_entropy": -20.0},
    "droq": {"initial_temperature": 1e-3, "target_entropy": -20.0},
    "tqc": {"initial_temperature": 1e-3, "target_entropy": -20.0, "num_dropped": 0},
    "crossq": {"initial_temperature": 1e-3, "target_entropy": -20.0, **NORMALIZED},
    "crossq_td3": NORMALIZED,
    "xqc": {"initial_temperature": 1e-3, "target_entropy": -20.0},
    # Features of norm √width and weights of norm 1 bound its logits: narrow ones are too flat.
    "flashsac": {
        "initial_temperature": 1e-3,
        "target_entropy": -20.0,
        "learning_rate": 1e-3,
        "hidden_sizes": (128, 128),
        "policy_hidden_sizes": (32, 32),
    },
    "sac_2018": {"temperature": 1e-3, "reward_scale": 1.0},
    "sac_discrete": {"initial_temperature": 1e-3, "target_entropy": 0.0},
    "dqn": {"target_rate": 0.05, "target_period": 1},
    "sql": {"target_rate": 0.05, "target_period": 1},
}

GAMMA = 0.5
UPDATES = {"xqc": 5000, "flashsac": 5000}
"""Of those whose weights are kept at norm 1, and so move slowly; 1500 for others."""


def probe_transitions(name: str, discrete: bool) -> Transition:
    """256 transitions under random actions."""
    env = make_env(lambda: ProbeEnv(name, discrete))
    draw = np.random.default_rng(1)  # not the environment's seed: actions must not follow it
    rows = []
    observation, over = env.reset(seed=0)[0], False
    for _ in range(256):
        if over:
            observation, _ = env.reset()
        action = np.int32(draw.integers(2)) if discrete else draw.uniform(-1, 1, 1)
        following, reward, over, _, _ = env.step(action)
        rows.append(Transition(observation, action, reward, not over, following))
        observation = following
    columns = [
        np.stack([np.asarray(part) for part in column]) for column in zip(*rows, strict=True)
    ]
    actions = columns[1].astype(np.int32 if discrete else np.float32)
    floats = [column.astype(np.float32) for column in columns]
    return Transition(floats[0], actions, *floats[2:])


@pytest.fixture(scope="module")
def probe_learner():
    """A compiled program for each algorithm: transitions in, a trained learner out."""
    programs = {}

    def program(algorithm: str):
        if algorithm not in programs:
            fields = {"hidden_sizes": (32, 32), "learning_rate": 3e-3, "target_rate": 0.05}
            if not issubclass(ALGORITHMS[algorithm], WithTargets):
                del fields["target_rate"]
            made = ALGORITHMS[algorithm](
                discount_factor=GAMMA, **{**fields, **QUIET.get(algorithm, {})}
            )
            updates = UPDATES.get(algorithm, 1500)
            made = made.for_run(updates)
            programs[algorithm] = made, jax.jit(partial(learn_probe, made, updates))
        return programs[algorithm]

    return program


def learn_probe(made: Algorithm, updates: int, transitions: Transition):
    spec = EnvSpec.flat(1, 2 if made.actions == "discrete" else 1, made.actions == "discrete")
    learner = made.init(jax.random.key(0), spec)

    def update(learner, key):
        row_key, value_key, policy_key = jax.random.split(key, 3)
        rows = jax.random.randint(row_key, (64,), 0, 256)
        batch = jax.tree.map(lambda column: column[rows], transitions)
        learner, _ = made.value_step(learner, batch, value_key)
        guide = Guide(learner.policy, jnp.float32(0.0))
        return made.policy_step(learner, batch, guide, policy_key)[0], None

    return jax.lax.scan(update, learner, jax.random.split(jax.random.key(1), updates))[0]


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("algorithm", off_policy("crossq"))
def test_probe_values(algorithm, probe, probe_learner):
    made, program = probe_learner(algorithm)
    discrete = made.actions == "discrete"
    transitions = probe_transitions(probe, discrete)
    learner = program(transitions)
    actions = np.array([0, 1], np.int32) if discrete else np.linspace(-0.9, 0.9, 7)[:, None]
    env = ProbeEnv(probe, discrete)
    for seen in np.unique(transitions.observation):
        observations = np.full((len(actions), 1), seen, np.float32)
        estimate = made.action_value(
            learner, observations, actions.astype(transitions.action.dtype)
        )
        true = env.true_values(observations, actions, GAMMA)
        np.testing.assert_allclose(estimate, true, atol=0.1)
    if probe == "action":
        best = made.act(learner.policy, np.zeros(1, np.float32), jax.random.key(0), explore=False)
        assert float(np.ravel(best)[0]) == pytest.approx(1 if discrete else 0.5, abs=0.15)
