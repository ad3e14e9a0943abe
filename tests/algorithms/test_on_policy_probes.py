"""Every on-policy algorithm finds the known values of the probe environments."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.types import EnvSpec, Rollout, Transition
from tests.probe_worlds import PROBES, Probe, ProbeEnv, action_reward

CASES = [
    (name, kind)
    for name, algorithm in ALGORITHMS.items()
    for kind in ("continuous", "discrete")
    if algorithm.on_policy and algorithm.actions in (kind, "both")
]

GAMMA = 0.5
ROWS = 64

EAGER = {
    "ppo": {"learning_rate": 1e-3, "minibatch_size": 16, "normalize_rewards": False},
    "acktr": {"target_kl": 0.01, "value_learning_rate": 0.3, "value_cold_iterations": 0,
              "policy_clip_kl": 0.1},
}  # fmt: skip


@pytest.fixture(scope="module")
def programs():
    """The compiled update and the compiled actions of each algorithm and kind of actions."""
    made = {}

    def program(algorithm: str, kind: str):
        if (algorithm, kind) not in made:
            one = ALGORITHMS[algorithm](
                hidden_sizes=(16,), rollout_steps=ROWS, discount_factor=GAMMA, **EAGER[algorithm]
            )
            act = jax.jit(partial(one.act, explore=True))
            made[algorithm, kind] = one, jax.jit(one.improve), act
        return made[algorithm, kind]

    return program


def play(probe: Probe, discrete: bool, act, policy, seed: int) -> Rollout:
    """A rollout of whole episodes; what a probe shows does not depend on actions."""
    draw, episodes = np.random.default_rng(seed), ROWS // probe.length
    seen = np.tile(np.arange(probe.length, dtype=np.float32), (episodes, 1))
    seen[:, 0] = draw.choice(probe.observations, episodes)
    following = np.tile(np.arange(1, probe.length + 1, dtype=np.float32), (episodes, 1))
    last = np.zeros((episodes, probe.length), np.float32)
    last[:, -1] = 1
    seen, following, last = seen.reshape(-1, 1), following.reshape(-1, 1), last.reshape(-1)
    action = np.asarray(act(policy, seen, jax.random.key(seed)))
    bounded = action if discrete else np.clip(action, -1, 1)
    reward = [
        probe.reward(float(s[0]), action_reward(a, discrete), bool(end))
        for s, a, end in zip(seen, bounded, last, strict=True)
    ]
    steps = Transition(seen, action, np.float32(reward), 1 - last, following)
    return Rollout(steps, last, np.ones(ROWS, np.float32))


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize(("algorithm", "kind"), CASES)
def test_probe_values(algorithm, kind, probe, programs):
    made, improve, act = programs(algorithm, kind)
    discrete = kind == "discrete"
    learner = made.init(jax.random.key(0), EnvSpec.flat(1, 2 if discrete else 1, discrete))
    for seed in range(200):
        rollout = play(PROBES[probe], discrete, act, learner.policy, seed)
        learner, _ = improve(learner, rollout, jax.random.key(seed))
    env = ProbeEnv(probe, discrete)
    best = np.ones(1, np.int32) if discrete else np.full((1, 1), 0.5)
    for seen in np.unique(rollout.steps.observation):
        observation = np.full((1, 1), seen, np.float32)
        step = jnp.int32([seen == 1.0 and PROBES[probe].length == 2])
        estimate = made.state_value(learner, observation, step)
        assert float(estimate[0]) == pytest.approx(
            float(env.true_values(observation, best, GAMMA)[0]), abs=0.1
        )
    if probe == "action":
        found = made.act(learner.policy, np.zeros(1, np.float32), jax.random.key(0), explore=False)
        assert float(np.ravel(found)[0]) == pytest.approx(1 if discrete else 0.5, abs=0.15)
