"""Masks of allowed actions: layout, adapter, targets by hand, whole runs, files, bad masks."""

from __future__ import annotations

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import p3s
from p3s.algorithms import DQN, SACDiscrete, dqn, sac_discrete
from p3s.config.run import resolve
from p3s.envs import Adapter, make_env, with_masks
from p3s.envs.masked_observations import join_mask, split_mask
from p3s.envs.masks import checked_mask
from p3s.errors import UserError
from p3s.experience.normalization import RunningMoments
from p3s.experience.replay import memory_needed
from p3s.policies.onnx_export import export_onnx
from p3s.policies.policy import Policy
from p3s.train import Training
from p3s.types import EnvSpec, ObservationSpec, Transition
from tests.helpers import assert_same_bits, call, small_config
from tests.helpers_losses import linear
from tests.masked_worlds import Corridor

MASKED = EnvSpec(ObservationSpec((3 + 4,)), 4, discrete=True, masked=True)


def training_of(make, **fields) -> Training:
    fields = {"algorithm": "dqn", "num_learners": 2, "evaluation_period": 0, **fields}
    return Training(small_config(None, "p3s", **fields), partial(make_env, make))


class TestLayout:
    @pytest.mark.parametrize("shape", [(3,), (4, 5, 2), (2, 4, 5)])
    def test_there_and_back(self, shape):
        mask = np.array([[True, False, True, True], [False, True, False, False]])
        seen = np.random.default_rng(0).integers(0, 9, (2, *shape)).astype(np.uint8)
        joined = join_mask(seen, mask, len(shape))
        features, found = split_mask(joined, shape)
        assert np.array_equal(features, seen)
        assert np.array_equal(found[:, :4], mask)
        assert split_mask(seen, shape)[1] is None
        spec = EnvSpec(ObservationSpec(joined.shape[1:], "uint8"), 4, discrete=True, masked=True)
        assert spec.features.shape == shape

    def test_memory(self):
        """None without masks; two masks of floats with them."""
        plain = EnvSpec.flat(3, 4, discrete=True)
        assert memory_needed(10, MASKED) - memory_needed(10, plain) == 10 * 2 * 4 * 4


class TestAdapter:
    @pytest.mark.parametrize("by_method", [False, True])
    def test_masks_follow_observations(self, by_method):
        env = with_masks(lambda: Adapter(Corridor(by_method)))()
        assert env.env_spec.masked
        assert env.env_spec.features.shape == (7,)
        seen, _ = env.reset(seed=0)
        place = int(seen[:7].argmax())
        assert np.flatnonzero(seen[7:]).tolist() == sorted([place % 4, (place + 1) % 4])
        seen, *_ = env.step(place % 4)
        assert np.flatnonzero(seen[7:]).tolist() == sorted([(place + 1) % 4, (place + 2) % 4])
        assert env.env.unwrapped.uses == 0

    def test_an_empty_mask_after_the_end_allows_all(self):
        env = with_masks(lambda: Adapter(Corridor()))()
        seen, _ = env.reset(seed=0)
        over = False
        while not over:
            seen, _, over, _, _ = env.step(int(seen[:7].argmax()) % 4)
        assert seen[7:].tolist() == [1, 1, 1, 1]

    def test_an_environment_without_masks_is_left_alone(self):
        make = partial(make_env, "CartPole-v1")
        assert with_masks(make) is make

    def test_normalization_leaves_masks_alone(self):
        moments = RunningMoments(MASKED)
        moments.see(np.random.default_rng(0).normal(5, 2, (9, 7)))
        np.testing.assert_allclose(moments.scaling.mean[3:], np.zeros(4))
        np.testing.assert_allclose(moments.scaling.scale[3:], np.ones(4))
        assert (moments.scaling.mean[:3] != 0).all()


class Given(gymnasium.Env):
    """Gives any mask, after its first step."""

    def __init__(self, later, space=None):
        self.later, self.action_space = later, space or spaces.Discrete(3)
        self.observation_space = spaces.Box(-1.0, 1.0, (2,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {"action_mask": np.ones(3, bool)}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {"action_mask": self.later}


class TestBadMasks:
    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            ([True, False], "an action mask is of 2, but there are 3 actions"),
            ([False, False, False], "an action mask forbids all actions"),
            ([0, 2, 1], "an action mask holds values other than true and false"),
            (True, "an action mask is not a vector, but there are 3 actions"),
            (None, "info has no 'action_mask', and there is no method"),
        ],
    )
    def test_of_environments(self, mask, message):
        training = training_of(lambda: Given(mask))
        with pytest.raises(UserError, match=message):
            training.run(10)
        training.close()

    def test_of_a_box(self):
        box = spaces.Box(-1.0, 1.0, (3,))
        with pytest.raises(UserError, match="masks actions, but its actions are a Box"):
            training_of(lambda: Given([True] * 3, box), algorithm="td3").run(10)

    def test_algorithms_that_cannot_keep_to_them(self):
        config = resolve(None, "rollout", "ppo")
        with pytest.raises(UserError, match="masks its actions, which ppo cannot keep to: choose"):
            Training(config, lambda: make_env(Corridor))

    def test_checked(self):
        assert checked_mask([[1, 0], [1, 1]], 2).dtype == bool


class TestTargets:
    """Q = (1, 2, 3, 4) online and (8, 7, 6, 5) in the target; of s' only 1 and 2 are allowed."""

    zero = np.zeros((3, 4))
    online, target = linear(zero, [1.0, 2, 3, 4]), linear(zero, [8.0, 7, 6, 5])
    seen = np.array([[0, 0, 0, 1, 1, 1, 1]], np.float32)
    following = np.array([[0, 0, 0, 0, 1, 1, 0]], np.float32)
    one = np.ones(1, np.float32)
    batch = Transition(seen, np.array([3], np.int32), one, one, following)

    def test_dqn(self):
        """Double: the online network chooses 2, the target values it 6; plain: the largest is 7."""
        for double, ahead in ((True, 6.0), (False, 7.0)):
            found = dqn.q_target(self.online, self.target, self.batch, 0.5, double, False)
            assert float(found[0]) == pytest.approx(1 + 0.5 * ahead)

    def test_soft_value(self):
        """Two equal logits are allowed: the mean of 7 and 6, plus alpha log 2."""
        policy = linear(self.zero, [1.0, 1, 1, 9])
        logits = sac_discrete.policy_logits(policy, self.following)
        value, entropy = sac_discrete.soft_state_value(
            logits, jnp.array([[8.0, 7, 6, 5]]), jnp.float32(0.5)
        )
        assert float(entropy[0]) == pytest.approx(np.log(2))
        assert float(value[0]) == pytest.approx(6.5 + 0.5 * np.log(2))

    @pytest.mark.parametrize("made", [DQN(hidden_sizes=(4,)), SACDiscrete(hidden_sizes=(4,))])
    def test_distance(self, made):
        """Policies that differ in forbidden actions alone are the same."""
        policy = made.init(jax.random.key(0), MASKED).policy
        other = jax.tree.map(lambda leaf: leaf, policy)
        model = other["layers"] if made.name == "dqn" else other
        model.params[-1]["bias"] = model.params[-1]["bias"].at[0].add(5.0)
        assert float(made.distance_between(policy, other, self.following)[0]) == pytest.approx(
            0, abs=1e-6
        )
        assert float(made.distance_between(policy, other, self.seen)[0]) > 0.01

    @pytest.mark.parametrize("made", [DQN(hidden_sizes=(4,)), SACDiscrete(hidden_sizes=(4,))])
    def test_actions(self, made):
        """Also where epsilon is 1, as at DQN's start, and where only one is allowed."""
        policy = made.init(jax.random.key(0), MASKED).policy
        seen = np.repeat(self.following, 500, axis=0)
        seen[0, 3:] = [0, 0, 0, 1]
        for explore in (False, True):
            actions = np.asarray(made.act(policy, seen, jax.random.key(1), explore=explore))
            assert actions[0] == 3
            assert set(actions[1:].tolist()) <= {1, 2}
        assert set(actions[1:].tolist()) == {1, 2}

    def test_target_entropy_counts_allowed_actions(self):
        made = SACDiscrete(hidden_sizes=(4,), target_entropy=0.5)
        learner = made.init(jax.random.key(0), MASKED)
        batch = self.batch._replace(observation=np.concatenate([self.seen, self.following]))
        expected = 0.5 * (np.log(4) + np.log(2)) / 2
        assert float(made.entropy_goal(learner, batch)) == pytest.approx(expected)


def uses(training: Training) -> int:
    return sum(env.env.unwrapped.uses for env in training.crew.environments.envs)


@pytest.mark.parametrize("algorithm", ["dqn", pytest.param("sac_discrete", marks=pytest.mark.slow)])
def test_forbidden_actions_are_never_taken(algorithm):
    """In the random phase, exploring, and in evaluations."""
    fields = {"algorithm": algorithm, "evaluation_period": 100, "n_step": 2}
    training = training_of(partial(Corridor, start=3), **fields)
    training.run(300)
    assert uses(training) == 0
    assert sum(env.env.unwrapped.uses for env in training.evaluations.evaluator.player.envs) == 0
    stored = training.experience.ring.rows[:300]
    assert np.isin(stored[:, 7:11], (0, 1)).all()
    training.close()


@pytest.mark.slow
def test_workers_and_resume_are_exact():
    whole, stopped, resumed = (training_of(Corridor, seed=4, n_step=3) for _ in range(3))
    spread = training_of(Corridor, seed=4, n_step=3, env_workers=2)
    for training in (whole, spread):
        training.run(400)
    stopped.run(201)
    resumed.experience.ring.rows[:] = stopped.experience.ring.rows
    resumed.experience.ring.num_added = stopped.experience.ring.num_added
    resumed.resume(stopped.snapshot())
    resumed.run(400)
    assert whole.exact_resume
    assert_same_bits(whole, spread)
    assert_same_bits(whole, resumed)
    for training in (whole, stopped, resumed, spread):
        training.close()


class TestPolicies:
    made = DQN(hidden_sizes=(4,))
    policy = Policy(
        made, jax.device_get(made.init(jax.random.key(0), MASKED).policy), MASKED,
        {"action_start": 5},
    )  # fmt: skip
    seen = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)

    def test_predict(self):
        """Masks beside observations, or after them; without any, all actions are allowed."""
        one = np.array([False, True, False, False])
        assert (self.policy.predict(self.seen, action_masks=one)[0] == 6).all()
        joined = join_mask(self.seen, np.tile(one, (9, 1)), 1)
        assert (self.policy.predict(joined)[0] == 6).all()
        free, _ = self.policy.predict(self.seen)
        masks = np.ones((9, 4), bool)
        masks[np.arange(9), free - 5] = False
        assert (self.policy.predict(self.seen, action_masks=masks)[0] != free).all()
        assert self.policy.predict(self.seen[0], action_masks=one)[0] == 6

    def test_a_policy_trained_without_masks_keeps_to_them_too(self):
        spec = EnvSpec.flat(3, 4, discrete=True)
        params = self.made.init(jax.random.key(0), spec).policy
        policy = Policy(self.made, params, spec, {"action_start": 0})
        masks = np.eye(4, dtype=bool)[[2] * 9]
        assert (policy.predict(self.seen, action_masks=masks)[0] == 2).all()

    def test_bad_masks(self):
        for mask, message in (
            (np.ones(3), "action_masks do not fit: an action mask is of 3"),
            (np.zeros(4), "action_masks do not fit: an action mask forbids all actions"),
            (np.ones((2, 4)), "action_masks do not fit"),
        ):
            with pytest.raises(UserError, match=message):
                self.policy.predict(self.seen, action_masks=mask)

    def test_file_and_export(self, tmp_path):
        self.policy.save(tmp_path / "policy.safetensors")
        loaded = p3s.load(tmp_path / "policy.safetensors")
        assert loaded.spec == MASKED
        masks = np.random.default_rng(1).random((9, 4)) < 0.5
        masks[:, 2] = True
        expected = self.policy.predict(self.seen, action_masks=masks)[0]
        assert np.array_equal(loaded.predict(self.seen, action_masks=masks)[0], expected)
        export_onnx(loaded, tmp_path / "policy.onnx")
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
        (actions,) = session.run(None, {"observation": self.seen, "action_mask": masks})
        assert np.array_equal(actions, expected)


@pytest.mark.slow
@pytest.mark.parametrize("image", [False, True])
def test_learns_to_the_end_of_the_corridor(image):
    """Six right steps earn 1 less 0.06; any forbidden one would have ended the episode."""
    fields = {"hidden_sizes": (32,), "learning_rate": 2e-3, "epsilon_updates": 1000}
    network = {"network": "mlp"} if image else {}
    population = p3s.Population(
        partial(Corridor, image=image), scheme="single", algorithm="dqn", preset="paper",
        initial_steps=100, evaluation_period=0, **fields, **network,
    )  # fmt: skip
    population.learn(3000, progress_bar=False)
    assert p3s.evaluate(population, episodes=10).mean() > 0.9


def test_commands(tmp_path, capsys):
    """`train`, `evaluate` and the policy's own environments."""
    words = "--algorithm dqn --scheme single --steps 60 --hidden-sizes 4 --initial-steps 20"
    code, _, errors = call(
        capsys, "train", "test/Corridor-v0", *words.split(), "--evaluation-period", "0",
        "--no-report", "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 0, errors
    code, output, errors = call(capsys, "evaluate", tmp_path / "run", "--episodes", "1")
    assert code == 0, errors
    assert "over 1 episodes" in output
    policy = p3s.load(tmp_path / "run")
    env = policy.make_env()
    seen, info = env.reset(seed=1)
    assert info["action_mask"][policy.predict(seen)[0]]
