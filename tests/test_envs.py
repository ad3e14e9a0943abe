"""Environments as the learners see them."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import Adapter, DelayedReward, make_env, parse_name
from p3s.envs.state import can_capture
from p3s.errors import UserError


class Counter(gymnasium.Env):
    """Pays 1, 2, 3, ... and ends after `length` steps, terminated or truncated."""

    def __init__(self, length=7, truncates=False, low=-1.0, high=1.0, observation_space=None):
        self.length, self.truncates = length, truncates
        self.action_space = spaces.Box(np.float32(low), np.float32(high), (2,), np.float32)
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (1,))
        self.actions = []

    def _observe(self):
        if self.observation_space.shape == (1,):
            return np.array([self.count], np.float64)
        return self.observation_space.sample()

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action):
        self.count += 1
        self.actions.append(np.array(action))
        over = self.count == self.length
        return self._observe(), float(self.count), over and not self.truncates, (
            over and self.truncates
        ), {}  # fmt: skip


def rewards_of(env) -> list[float]:
    env.reset()
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
        rewards.append(reward)
        over = terminated or truncated
    return rewards


class TestDelay:
    @pytest.mark.parametrize("truncates", [False, True])
    def test_pays_every_third_step_and_at_the_end(self, truncates):
        env = DelayedReward(Counter(7, truncates), 3)
        for _ in range(2):
            assert rewards_of(env) == [0, 0, 6, 0, 0, 15, 7]

    @pytest.mark.parametrize("truncates", [False, True])
    def test_pays_only_at_the_end(self, truncates):
        assert rewards_of(DelayedReward(Counter(4, truncates), "end")) == [0, 0, 0, 10]

    def test_reset_clears(self):
        env = DelayedReward(Counter(7), 5)
        env.reset()
        env.step(np.zeros(2))
        assert sum(rewards_of(env)) == 28

    def test_truncation_by_a_time_limit_pays(self):
        env = make_env("Pendulum-v1", delay="end")
        env.reset(seed=0)
        rewards = [env.step(np.zeros(1))[1] for _ in range(200)]
        assert not any(rewards[:-1])
        assert rewards[-1] < -1

    def test_registered(self):
        env = gymnasium.make("p3s/DelayedHopper-v5")
        plain = gymnasium.make("Hopper-v5")
        env.reset(seed=0)
        plain.reset(seed=0)
        late, now, over = [], [], False
        while not over:
            late.append(env.step(np.zeros(3, np.float32))[1])
            _, reward, terminated, truncated, _ = plain.step(np.zeros(3, np.float32))
            now.append(reward)
            over = terminated or truncated
        assert sum(late) == pytest.approx(sum(now))
        assert np.count_nonzero(late) == -(-len(late) // 20)


class TestNames:
    def test_paper_names(self):
        assert parse_name("Hopper-v1").id == "Hopper-v5"
        walker = parse_name("Walker2d-v1")
        assert (walker.id, walker.kwargs) == ("Walker2d-v5", {"xml_file": "walker2d.xml"})
        assert parse_name("Walker2d-v1", None, {"frame_skip": 2}).kwargs.keys() == {
            "xml_file", "frame_skip",
        }  # fmt: skip
        ant = parse_name("Delayed Ant-v1")
        assert (ant.id, ant.delay, ant.family, ant.is_delayed) == ("Ant-v5", 20, "Ant", True)
        assert "Ant-v5" in ant.note

    def test_others_are_left_alone(self):
        assert parse_name("Pendulum-v1").id == "Pendulum-v1"
        assert parse_name("Pendulum-v1").note is None
        registered = parse_name("p3s/DelayedAnt-v5")
        assert (registered.family, registered.is_delayed) == ("Ant", True)

    @pytest.mark.parametrize("name", ["Hopper-v1", "Delayed HalfCheetah-v1", "p3s/DelayedAnt-v5"])
    def test_made(self, name):
        env = make_env(name)
        observation, _ = env.reset(seed=0)
        assert observation.dtype == np.float32


class TestAdapter:
    def test_actions_are_affine(self):
        inner = Counter(low=-3.0, high=5.0)
        env = Adapter(inner)
        env.reset()
        for action in ([-1, -1], [1, 1], [0, 0.5], [-2, 2]):
            env.step(np.array(action, np.float32))
        assert np.array(inner.actions).tolist() == [[-3, -3], [5, 5], [1, 3], [-3, 5]]
        assert env.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)

    @pytest.mark.parametrize(
        ("space", "size"),
        [
            (spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(0, 1, (2, 2))}), 7),
            (spaces.Tuple([spaces.Box(0, 1, (2,)), spaces.MultiBinary(3)]), 5),
            (spaces.Box(0, 255, (2, 3), np.uint8), 6),
        ],
    )
    def test_observations_are_flattened(self, space, size):
        env = Adapter(Counter(observation_space=space))
        observation, _ = env.reset(seed=0)
        assert (observation.shape, observation.dtype) == ((size,), np.float32)
        assert env.env_spec.observation_size == size

    def test_unbounded_actions(self):
        with pytest.raises(UserError, match="no finite bounds"):
            Adapter(Counter(low=-np.inf, high=np.inf))

    def test_callable(self):
        assert make_env(lambda: Counter()).env_spec.action_size == 2
        with pytest.raises(UserError, match="not a gymnasium"):
            make_env(lambda: 3)  # type: ignore[arg-type, return-value]

    def test_module_id(self):
        assert make_env("gymnasium:Pendulum-v1").env_spec.observation_size == 3


class Unpicklable(Counter):
    """Keeps part of its state where nobody can capture it."""

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        state = {"count": 0}
        self.next = lambda: state.update(count=state["count"] + 1) or state["count"]
        return np.zeros(1), {}

    def step(self, action):
        return np.array([float(self.next())]), 0.0, False, False, {}


class TestMujocoWarnings:
    def test_go_to_the_stream_once_and_survive_its_end(self):
        """In a process of its own: an error in a callback from C would abort it."""
        code = """if True:
            import io, sys
            import mujoco
            from p3s.envs.mujoco_setup import warn_once
            out = io.StringIO()
            warn_once(out)
            model = "<mujoco><compiler settotalmass='1'/></mujoco>"
            for _ in range(3):
                mujoco.MjModel.from_xml_string(model)
            print(out.getvalue())
            out.close()
            data = mujoco.MjData(
                mujoco.MjModel.from_xml_string(
                    "<mujoco><worldbody><body><joint name='j' axis='0 0 1'/><geom size='1'/></body>"
                    "</worldbody><actuator><motor joint='j'/></actuator></mujoco>"
                )
            )
            data.ctrl[:] = float("nan")
            mujoco.mj_step(data.model, data)
            print("went on after", data.warning[mujoco.mjtWarning.mjWARN_BADCTRL].number)
        """
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("MuJoCo: ") == 1
        assert "went on after 1" in done.stdout

    def test_a_population_says_them_once_and_leaves_no_file(self, tmp_path):
        code = """if True:
            from p3s.envs import make_env
            for _ in range(3):
                make_env("HalfCheetah-v5").close()
        """
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("settotalmass") <= 1
        assert not list(tmp_path.iterdir())

    def test_a_handler_of_ones_own_stays(self):
        code = """if True:
            import mujoco
            said = []
            mujoco.set_mju_user_warning(said.append)
            from p3s.envs import make_env
            make_env("HalfCheetah-v5").close()
            mujoco.MjModel.from_xml_string("<mujoco><compiler settotalmass='1'/></mujoco>")
            print(len(said))
        """
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) >= 1
        assert "MuJoCo: " not in done.stderr


class TestWrongEnvironments:
    def test_observations_that_do_not_fit_their_space(self):
        class Wrong(Counter):
            def _observe(self):
                return np.zeros(1, np.float32)

        env = make_env(partial(Wrong, observation_space=spaces.Box(-1, 1, (2,), np.float32)))
        with pytest.raises(ValueError, match=r"shape \(1,\), its space \(2,\)"):
            env.reset(seed=0)

    def test_an_instance_instead_of_a_callable(self):
        with pytest.raises(UserError, match="give a callable"):
            make_env(Counter())


class TestStateCapture:
    @pytest.mark.parametrize(
        "name",
        ["Hopper-v5", "Walker2d-v5", "HalfCheetah-v5", "Ant-v5", "Swimmer-v5", "Humanoid-v5",
         "Pendulum-v1", "CartPole-v1", "Delayed Ant-v1"],
    )  # fmt: skip
    def test_exact(self, name):
        assert can_capture(lambda: make_env(name), seed=5)

    def test_one_that_cannot_be_captured_is_found_out(self):
        assert not can_capture(lambda: Adapter(Unpicklable()), seed=5)
