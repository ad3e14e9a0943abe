"""Every on-policy algorithm of the registry: contract, resume, fields, files, known values."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import p3s
from p3s.algorithms import ALGORITHMS
from p3s.config.run import Config, resolve
from p3s.envs import make_env
from p3s.errors import UserError
from p3s.evaluation import Evaluator
from p3s.experience.normalization import Scaling
from p3s.experience.rollouts import RolloutBuffer
from p3s.policies.onnx_export import export_onnx
from p3s.policies.policy import Policy
from p3s.runs import opening
from p3s.schemes import SCHEMES
from p3s.train import Training
from p3s.types import EnvSpec, Rollout, Transition
from tests.helpers import leaves, record
from tests.helpers_losses import SPECS

SMALL = {
    "hidden_sizes": (8, 7), "evaluation_period": 200, "evaluation_episodes": 2,
    "metrics_period": 100, "checkpoint_period": 100, "steps": 500,
}  # fmt: skip

OWN = {
    "ppo": {"rollout_steps": 64, "minibatch_size": 16, "epochs": 2},
    "acktr": {"rollout_steps": 40, "value_steps": 3},
}
"""Small values of the fields that decide how much is computed."""
ENVS = {"continuous": "InvertedPendulum-v5", "discrete": "CartPole-v1"}

CASES = [
    (name, kind)
    for name, algorithm in ALGORITHMS.items()
    for kind in ENVS
    if algorithm.on_policy and algorithm.actions in (kind, "both")
]

ON_POLICY = sorted({name for name, _ in CASES})


def small_config(algorithm: str, kind: str = "continuous", **fields) -> Config:
    values = {**SMALL, **OWN[algorithm], **fields}
    return resolve(ENVS[kind], "rollout", algorithm, **values)


def begin(path: Path, algorithm: str, kind: str, **fields) -> Training:
    return opening.begin(small_config(algorithm, kind, **fields), path)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def whole(request, tmp_path_factory):
    """A finished run in a folder, for each algorithm and kind of actions."""
    path = tmp_path_factory.mktemp("whole") / "run"
    training = begin(path, *request.param, seed=3)
    start = [leaf.copy() for leaf in leaves(training.crew.updater.state.learners.policy)]
    training.run(500)
    training.close()
    return request.param, path, training, start


class TestRun:
    def test_learns_and_records(self, whole):
        _, path, training, start = whole
        assert training.counters.updates >= 4
        assert training.counters.total_updates == training.counters.updates
        for leaf in leaves(training.crew.updater.state.learners):
            assert leaf.dtype in (np.float32, np.int32)
            assert np.isfinite(leaf).all()
        moved = zip(leaves(training.crew.updater.state.learners.policy), start, strict=True)
        assert not any(np.array_equal(ours, theirs) for ours, theirs in moved)
        assert training.experience.ring is None  # no replay
        row = record(path)["evaluations"][-1]
        assert row["step"] == 500
        assert row["score"] == np.mean(row["learner_returns"])
        assert row["deterministic_score"] == np.mean(row["deterministic_returns"])
        assert row["learner_returns"] != row["deterministic_returns"]
        learned = [entry["learners"] for entry in record(path)["metrics"] if entry["learners"]]
        assert {"policy_loss", "value_loss", "entropy", "divergence"} <= set(learned[-1])

    def test_one_program_for_all_rollouts(self, whole):
        (algorithm, _), _, training, _ = whole
        assert training.crew.updater.program.num_compiled[1] == 1
        # Rollouts of whole episodes may need a second multiple of rollout_steps.
        assert training.crew.updater.program.num_compiled[0] <= (1 if algorithm == "ppo" else 2)

    def test_resumes_to_the_bit(self, whole, tmp_path):
        case, path, _, _ = whole
        training = begin(tmp_path / "run", *case, seed=3)
        training.run(500, callback=lambda now: now.total_steps < 330)
        training.close()
        for until in (370, 500):
            training, _ = opening.reopen(tmp_path / "run")
            training.run(500, callback=lambda now, last=until: now.total_steps < last)
            training.close()
        assert record(tmp_path / "run") == record(path)

    def test_other_seed_other_policy(self, whole):
        case, path, _, _ = whole
        config = small_config(*case, seed=4, evaluation_period=0)
        training = Training(config, lambda: make_env(config.env))
        training.run(200)
        ours, theirs = leaves(training.policy().params), leaves(p3s.load(path).params)
        assert not any(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))

    def test_policy_file_and_export(self, whole, tmp_path):
        (_, kind), path, training, _ = whole
        policy, loaded = training.policy(), p3s.load(path, last=True)
        assert np.array_equal(loaded.scaling.mean, training.crew.normalizer.scaling.mean)
        draw = np.random.default_rng(0)
        size = (50, policy.spec.observation_size)
        observations = draw.normal(size=size).astype(np.float32) * 3
        expected = policy.predict(observations)[0]
        assert np.array_equal(loaded.predict(observations)[0], expected)
        noisy = loaded.predict(observations, deterministic=False)[0]
        assert not np.array_equal(noisy, expected)
        bare = Policy(policy.algorithm, policy.params, policy.spec, policy.about)
        if kind == "continuous":
            assert np.abs(noisy).max() <= 3  # the environment's own range
            assert not np.allclose(bare.predict(observations)[0], expected)
        loaded.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (path / "policy.safetensors").read_bytes()
        runtime = pytest.importorskip("onnxruntime")
        export_onnx(loaded, tmp_path / "policy.onnx")
        session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
        (actions,) = session.run(None, {"observation": observations})
        np.testing.assert_allclose(actions, expected, atol=1e-5)


def test_clipped_means_are_exported_clipped(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    made, spec = ALGORITHMS["ppo"](hidden_sizes=(4,)), SPECS["continuous"]
    params = made.init(jax.random.key(0), spec).policy
    layers = params["layers"].params
    layers[-1] = {**layers[-1], "bias": jnp.array([2.0, 0.3])}
    about = {"action_low": [-2.0, 0.0], "action_high": [2.0, 1.0], "action_shape": [2]}
    policy = Policy(made, params, spec, about, Scaling(*np.full((2, 3), 0.5, np.float32)))
    export_onnx(policy, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    observations = np.full((1, 3), 1e6, np.float32)
    (actions,) = session.run(None, {"observation": observations})
    np.testing.assert_allclose(actions, policy.predict(observations)[0], atol=1e-5)
    assert actions[0, 0] == 2.0
    assert actions[0, 1] == pytest.approx(0.65, abs=0.05)


def test_stochastic_evaluation_depends_on_seed_and_step_only():
    made = ALGORITHMS["ppo"](hidden_sizes=(4,))
    policy = jax.tree.map(
        lambda leaf: leaf[None], made.init(jax.random.key(0), EnvSpec.flat(4, 1)).policy
    )
    first, again = (Evaluator(lambda: make_env(ENVS["continuous"]), made, 0) for _ in range(2))
    one = first.play(policy, 3, 5, explore=True)
    assert np.array_equal(one, again.play(policy, 3, 5, explore=True))
    assert not np.array_equal(one, again.play(policy, 3, 6, explore=True))


@pytest.mark.parametrize("algorithm", ON_POLICY)
def test_only_rollout(algorithm):
    for scheme in set(SCHEMES) - {"rollout"}:
        with pytest.raises(UserError, match="cannot share a replay: choose --scheme rollout"):
            resolve("Pendulum-v1", scheme, algorithm)
    with pytest.raises(UserError, match="scheme rollout has one learner, not 2"):
        small_config(algorithm, num_learners=2).check()
    with pytest.raises(UserError, match="keeps no replay: leave buffer_size out"):
        small_config(algorithm, buffer_size=10).check()
    for field in ("batch_size", "initial_steps", "updates_per_step", "review_period"):
        with pytest.raises(UserError, match=f"{field} is a field of .*, not of scheme rollout"):
            small_config(algorithm, **{field: 9})
    config = small_config(algorithm)
    assert Config.from_json(config.to_json()) == config


def test_wrong_kind_of_actions():
    config = resolve("CartPole-v1", "rollout", "acktr")
    with pytest.raises(UserError, match=r"acktr cannot learn: choose .* ppo"):
        Training(config, lambda: make_env("CartPole-v1"))


def random_rollout() -> Rollout:
    draw = np.random.default_rng(0)
    ended = np.zeros(24)
    ended[[9, 23]] = 1
    steps = Transition(
        draw.normal(size=(24, 3)), draw.normal(size=(24, 2)), 3 * draw.normal(size=24), 1 - ended,
        draw.normal(size=(24, 3)),
    )  # fmt: skip
    return jax.tree.map(jnp.float32, Rollout(steps, ended, np.ones(24)))


class TestFields:
    """A hyper-parameter changes something; a number may be a traced one."""

    shaping = {  # noqa: RUF012
        "hidden_sizes": (8, 6), "minibatch_size": 6, "epochs": 1, "value_steps": 4,
        "normalize_rewards": False,
    }  # fmt: skip
    elsewhere = ("normalize_observations", "rollout_steps", "scale_images", "learning_rate_steps")
    """Used by the loop, see below; by a schedule, see test_schedules."""

    def history(self, made, numbers):
        traced = dataclasses.replace(made, **numbers)
        learner, rollout = traced.init(jax.random.key(0), SPECS["continuous"]), random_rollout()

        def update(learner, key):
            return traced.improve(learner, rollout, key)[0], None

        # The second update sees the step size and the statistics that the first one left.
        return jax.lax.scan(update, learner, jax.random.split(jax.random.key(1), 2))[0]

    @pytest.mark.parametrize("algorithm", ON_POLICY)
    def test_none_is_dead(self, algorithm):
        own = {**OWN[algorithm], "rollout_steps": 24, "hidden_sizes": (5,)}
        if algorithm == "ppo":
            # Steps so large that the clips are reached.
            own |= {"minibatch_size": 12, "entropy_weight": 0.1, "learning_rate": 0.05}
        else:
            # Bounds that bind, and no more cold steps than there are steps.
            own |= {"value_cold_iterations": 2, "value_clip_kl": 1e-6}
            own |= {"initial_step_size": 0.5, "target_kl": 1e-4}
        made = ALGORITHMS[algorithm](**own)
        values = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
        numbers = {k: v for k, v in values.items() if k not in (*self.shaping, *self.elsewhere)}
        changed = [numbers] + [{**numbers, name: 0.3 * numbers[name]} for name in numbers]
        stacked = {name: jnp.array([row[name] for row in changed]) for name in numbers}
        histories = jax.jit(jax.vmap(partial(self.history, made)))(stacked)
        for index, name in enumerate(numbers, start=1):
            pairs = [(leaf[0], leaf[index]) for leaf in leaves(histories)]
            assert not all(np.array_equal(ours, theirs) for ours, theirs in pairs), name
        for name in self.shaping.keys() & values.keys():
            other = dataclasses.replace(made, **{name: self.shaping[name]})
            programs = {
                str(jax.make_jaxpr(partial(self.history, one))({})) for one in (made, other)
            }
            assert len(programs) == 2, name

    @pytest.mark.parametrize("algorithm", ON_POLICY)
    def test_those_of_the_loop(self, algorithm):
        def rows(**fields):
            config = small_config(algorithm, evaluation_period=0, **fields)
            training = Training(config, lambda: make_env(config.env))
            training.run(20)
            return training.experience.snapshot()["rows"]

        seen, plain = rows(), rows(normalize_observations=False)
        assert len(seen) == len(plain) == 20
        assert not np.array_equal(seen, plain)
        made = small_config(algorithm).algorithm
        full = [dataclasses.replace(made, rollout_steps=n).rollout_full(50, True) for n in (40, 60)]
        assert full == [True, False]


def test_rollouts_of_several_lengths_are_learned_from(monkeypatch):
    """Whole episodes, padded to a multiple of rollout_steps: one program for each length."""
    lengths, take = set(), RolloutBuffer.take

    def watched(self, *arguments):
        taken = take(self, *arguments)
        if taken is not None:
            lengths.add(taken.rows.shape[1])
        return taken

    monkeypatch.setattr(RolloutBuffer, "take", watched)
    fields = {"rollout_steps": 8, "evaluation_period": 0}
    training = Training(small_config("acktr", **fields), lambda: make_env(ENVS["continuous"]))
    training.run(400)
    assert len(lengths) > 1
    assert all(np.isfinite(leaf).all() for leaf in leaves(training.crew.updater.state))
    training.close()
