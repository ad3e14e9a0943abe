"""Every off-policy algorithm of the registry: contract, determinism, resume, stacking, files."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import p3s
from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.envs import make_env
from p3s.envs.probes import PROBES, ProbeEnv
from p3s.errors import UserError
from p3s.learning.learners import init_learners, pick, update_learners
from p3s.policy import Policy
from p3s.policy_onnx import export_onnx
from p3s.types import EnvSpec, Guide, Transition

from .conftest import small_training
from .test_runs import record, resume, run

SMALL_ENV = {"continuous": "Pendulum-v1", "discrete": "CartPole-v1"}
SPECS = {"continuous": EnvSpec(3, 2), "discrete": EnvSpec(3, 4, discrete=True)}
STEPS = 300
OFF_POLICY = [name for name, algorithm in ALGORITHMS.items() if not algorithm.on_policy]
"""The others: tests/test_on_policy.py."""


def env_of(algorithm: str) -> str:
    return SMALL_ENV[ALGORITHMS[algorithm].actions]


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def random_batch(spec: EnvSpec, seed: int, size: int = 7) -> Transition:
    draw = np.random.default_rng(seed)
    if spec.discrete:
        action = draw.integers(0, spec.action_size, size).astype(np.int32)
    else:
        action = draw.uniform(-1, 1, (size, spec.action_size)).astype(np.float32)
    return Transition(
        draw.normal(size=(size, spec.observation_size)).astype(np.float32),
        action,
        draw.normal(size=size).astype(np.float32),
        draw.integers(0, 2, size).astype(np.float32),
        draw.normal(size=(size, spec.observation_size)).astype(np.float32),
    )


@pytest.mark.parametrize("algorithm", OFF_POLICY)
class TestContract:
    def test_trains_and_repeats_itself(self, algorithm):
        def trained():
            fields = {"algorithm": algorithm, "num_learners": 2, "recent_episodes": 1}
            training = small_training(env_of(algorithm), seed=3, **fields)
            start = [leaf.copy() for leaf in leaves(training.state.learners.policy)]
            training.run(STEPS)
            return training, start

        (first, start), (again, _) = trained(), trained()
        assert first.updates == STEPS // 2 - 20
        for leaf in leaves(first.state.learners):
            assert leaf.shape[0] == 2
            assert leaf.dtype in (np.float32, np.int32)
            assert np.isfinite(leaf).all()
        moved = zip(leaves(first.state.learners.policy), start, strict=True)
        assert not any(np.array_equal(ours, theirs) for ours, theirs in moved)
        pairs = zip(leaves(first.state), leaves(again.state), strict=True)
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)
        assert first.last_evaluation["learner_returns"] == again.last_evaluation["learner_returns"]

    def test_guided_run_resumes_to_the_bit(self, algorithm, tmp_path):
        fields = {"env": env_of(algorithm), "scheme": "p3s", "algorithm": algorithm}
        fields |= {"num_learners": 2, "recent_episodes": 1}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=450, **fields)
        resume(tmp_path / "killed")
        whole = record(tmp_path / "whole")
        assert whole == record(tmp_path / "killed")
        assert whole["lineage"][-1]["best"] is not None
        assert whole["lineage"][-1]["spread"] > 0
        assert whole["metrics"][-1]["learners"]["guide_distance"][0] >= 0

    def test_a_value_step_leaves_the_policy(self, algorithm):
        made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
        learner = jax.jit(made.init, static_argnums=1)(jax.random.key(0), spec)
        step = jax.jit(made.value_step)
        stepped, _ = step(learner, random_batch(spec, 0), jax.random.key(1))
        pairs = zip(leaves(made.policy_of(learner)), leaves(made.policy_of(stepped)), strict=True)
        assert all(np.array_equal(before, after) for before, after in pairs)

    def test_stacked_update_equals_single_updates(self, algorithm):
        made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
        learners = init_learners(made, jax.random.key(0), spec, 3, identical=False)
        rows = [random_batch(spec, index) for index in range(3)]
        batches = jax.tree.map(lambda *parts: np.stack(parts), *rows)
        guide = Guide(pick(learners.policy, 1), jnp.array([0.5, 0.0, 2.0], jnp.float32))
        key = jax.random.key(4)
        stacked, metrics = jax.jit(partial(update_learners, made, with_policy=True))(
            learners, batches, guide, key
        )

        @jax.jit
        def update(learner, batch, weight, learner_key):
            value_key, policy_key = jax.random.split(learner_key)
            learner, first = made.value_step(learner, batch, value_key)
            pull = Guide(guide.policy, weight)
            learner, second = made.policy_step(learner, batch, pull, policy_key)
            return learner, {**first, **second}

        for index in range(3):
            learner, ours = update(
                pick(learners, index), rows[index], guide.weight[index],
                jax.random.fold_in(key, index),
            )  # fmt: skip
            for one, other in zip(leaves(pick(stacked, index)), leaves(learner), strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6)
            for name, value in ours.items():
                assert float(metrics[name][index]) == pytest.approx(
                    float(value), rel=1e-4, abs=1e-5
                )

    def test_distance_and_actions(self, algorithm):
        made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
        policy, other = (made.init(jax.random.key(seed), spec).policy for seed in (1, 2))
        observation = random_batch(spec, 0).observation
        same = made.distance(policy, policy, observation)
        np.testing.assert_allclose(same, np.zeros(7), atol=1e-6)
        apart = made.distance(policy, other, observation)
        assert apart.shape == (7,)
        assert float(apart.min()) > 0
        towards = jax.tree.map(lambda ours, theirs: ours + 0.1 * (theirs - ours), policy, other)
        assert (made.distance(policy, towards, observation) < apart).all()
        for explore in (False, True):
            action = made.act(policy, observation, jax.random.key(0), explore=explore)
            single = made.act(policy, observation[0], jax.random.key(0), explore=explore)
            if spec.discrete:
                assert (action.shape, single.shape) == ((7,), ())
                assert action.dtype == np.int32
            else:
                assert (action.shape, single.shape) == ((7, 2), (2,))
                assert float(jnp.abs(action).max()) <= 1

    def test_saved_loaded_and_exported(self, algorithm, tmp_path):
        made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
        about = {"action_start": 5} if spec.discrete else {
            "action_low": [-2.0, 0.0], "action_high": [2.0, 1.0], "action_shape": [2],
        }  # fmt: skip
        policy = Policy(
            made, jax.device_get(made.init(jax.random.key(0), spec).policy), spec, about
        )
        policy.save(tmp_path / "policy.safetensors")
        loaded = p3s.load(tmp_path / "policy.safetensors")
        observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
        expected = policy.predict(observations)[0]
        assert np.array_equal(loaded.predict(observations)[0], expected)
        export_onnx(loaded, tmp_path / "policy.onnx")
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
        (actions,) = session.run(None, {"observation": observations})
        np.testing.assert_allclose(actions, expected, atol=1e-5)


def make(algorithm: str, **fields) -> Algorithm:
    return ALGORITHMS[algorithm](hidden_sizes=(16, 15), batch_size=7, **fields)


def test_wrong_kind_of_actions():
    with pytest.raises(UserError, match="td3 cannot learn: choose --algorithm dqn or sac_discrete"):
        small_training("CartPole-v1")
    with pytest.raises(UserError, match="dqn cannot learn: choose --algorithm td3 or ddpg or sac"):
        small_training("Pendulum-v1", algorithm="dqn")


def test_no_export_without_layers(tmp_path):
    class Strange(ALGORITHMS["td3"]):
        def noiseless_layers(self, policy, spec):
            return None

    made, spec = Strange(hidden_sizes=(4,)), SPECS["continuous"]
    with pytest.raises(UserError, match="cannot be exported"):
        export_onnx(Policy(made, made.init(jax.random.key(0), spec).policy, spec, {}), tmp_path)


@pytest.mark.parametrize("algorithm", OFF_POLICY)
class TestFields:
    """A hyper-parameter changes something; a number may be a traced one, another per learner."""

    shaping = {  # noqa: RUF012
        "hidden_sizes": (16, 14), "initialization": "xavier", "targets_start": "independent",
        "distance_reduction": "mean", "double": False, "dueling": True,
        "activation": "tanh", "layer_norm": True, "network": "test_linear",
        "num_value_actions": 8, "num_particles": 8,
    }  # fmt: skip
    only_in_updates = ("double", "num_value_actions", "num_particles")
    elsewhere = ("batch_size", "policy_period", "normalise_observations")
    """Used by the loop, not by the algorithm: tests/test_schemes.py."""

    def numbers(self, made: Algorithm) -> dict[str, float]:
        values = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
        return {
            name: value
            for name, value in values.items()
            if name not in (*self.elsewhere, *self.shaping)
        }

    def history(self, made: Algorithm, numbers: dict):
        """What three updates leave behind, the distance and an action, for traced numbers."""
        spec = SPECS[made.actions]
        traced = dataclasses.replace(made, **numbers)
        learner = traced.init(jax.random.key(0), spec)
        guide = jax.tree.map(lambda leaf: 0.5 * leaf, learner.policy)

        def update(learner, inputs):
            batch, index = inputs
            learner, _ = traced.value_step(learner, batch, jax.random.key(index))
            pull = Guide(guide, jnp.float32(0.5))
            return traced.policy_step(learner, batch, pull, jax.random.key(9 + index))[0], None

        # Rewards are large, so that clips and thresholds are reached.
        batches = [random_batch(spec, index) for index in range(3)]
        batches = [batch._replace(reward=3 * batch.reward) for batch in batches]
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *batches)
        learner, _ = jax.lax.scan(update, learner, (stacked, jnp.arange(3)))
        seen = random_batch(spec, 7, 64).observation
        action = traced.act(learner.policy, seen, jax.random.key(2), explore=True)
        return learner, traced.distance(learner.policy, guide, seen), action

    def test_none_is_dead(self, algorithm):
        # Three updates are too few for the default period of hard targets.
        hard = "target_period" in {
            field.name for field in dataclasses.fields(ALGORITHMS[algorithm])
        }
        made = make(algorithm, **({"target_period": 2} if hard else {}))
        numbers = self.numbers(made)
        spec = SPECS[made.actions]
        spaced = jax.jit(jax.vmap(lambda numbers: self.history(made, numbers)))
        changed = [dict(numbers)] + [
            {**numbers, name: self.other(name, value)} for name, value in numbers.items()
        ]
        stacked = {name: jnp.array([row[name] for row in changed]) for name in numbers}
        histories = spaced(stacked)
        for index, name in enumerate(numbers, start=1):
            same = all(np.array_equal(leaf[0], leaf[index]) for leaf in leaves(histories))
            assert not same, name
        for name, value in self.shaping.items():
            if not hasattr(made, name):
                continue
            other = dataclasses.replace(made, **{name: value})
            updated = name in self.only_in_updates
            ours, theirs = (self.shape_of(each, spec, updated) for each in (made, other))
            assert ours != theirs, name

    def other(self, name: str, value: float) -> float:
        if name in ("target_period", "epsilon_updates"):
            return 3
        return value * 0.3 if value else 0.5

    def shape_of(self, made: Algorithm, spec: EnvSpec, updated: bool):
        """What fields that decide the form of things can change; an update only where needed."""
        learner, other = (made.init(jax.random.key(seed), spec) for seed in (0, 1))
        observation = random_batch(spec, 0).observation
        parts = [learner, made.distance(learner.policy, other.policy, observation)]
        if updated:
            mixed = other._replace(policy=learner.policy)
            batch = random_batch(spec, 0)
            guide = Guide(other.policy, jnp.float32(0.0))
            value, _ = jax.jit(made.value_step)(mixed, batch, jax.random.key(0))
            parts.append(jax.jit(made.policy_step)(value, batch, guide, jax.random.key(0)))
        return [leaf.tobytes() for leaf in leaves(parts)]

    def test_bad_values(self, algorithm):
        for fields, message in (
            ({"discount": 1.5}, "discount must be between 0 and 1"),
            ({"target_rate": -0.1}, "target_rate must be between"),
            ({"learning_rate": 0.0}, "learning_rate must be above 0"),
            ({"hidden_sizes": (0,)}, "hidden_sizes must be at least 1"),
            ({"batch_size": 0}, "batch_size must be at least 1"),
            ({"activation": "step"}, "activation must be one of relu, tanh"),
            ({"network": "none"}, "network 'none' is not known: import the module"),
        ):
            assert message in (ALGORITHMS[algorithm](**fields).problem() or "")
        assert ALGORITHMS[algorithm]().problem() is None


# ---------------------------------------------------------------------- probes

QUIET = {
    # An entropy bonus is part of a soft value: make it too small to be seen.
    "sac": {"initial_temperature": 1e-3, "target_entropy": -20.0},
    "sac_2018": {"temperature": 1e-3, "reward_scale": 1.0},
    "sac_discrete": {"initial_temperature": 1e-3, "target_entropy": 0.0},
    "dqn": {"target_rate": 0.05, "target_period": 1},
    "sql": {"target_rate": 0.05, "target_period": 1},
}
GAMMA = 0.5


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
            made = ALGORITHMS[algorithm](discount=GAMMA, **{**fields, **QUIET.get(algorithm, {})})
            programs[algorithm] = made, jax.jit(partial(learn_probe, made))
        return programs[algorithm]

    return program


def learn_probe(made: Algorithm, transitions: Transition):
    spec = EnvSpec(1, 2 if made.actions == "discrete" else 1, made.actions == "discrete")
    learner = made.init(jax.random.key(0), spec)

    def update(learner, key):
        row_key, value_key, policy_key = jax.random.split(key, 3)
        rows = jax.random.randint(row_key, (64,), 0, 256)
        batch = jax.tree.map(lambda column: column[rows], transitions)
        learner, _ = made.value_step(learner, batch, value_key)
        guide = Guide(learner.policy, jnp.float32(0.0))
        return made.policy_step(learner, batch, guide, policy_key)[0], None

    return jax.lax.scan(update, learner, jax.random.split(jax.random.key(1), 1500))[0]


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("algorithm", OFF_POLICY)
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
