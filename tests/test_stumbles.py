"""What people stumble over who come from other libraries, or with environments of their own."""

from __future__ import annotations

import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

import p3s
from p3s import Population
from p3s.callbacks import Callback
from p3s.cli.train import parse_train
from p3s.config.environments import preset_of
from p3s.config.run import resolve
from p3s.config.run_file import run_file_text
from p3s.envs import make_env, parse_name
from p3s.errors import UserError
from p3s.policies.onnx_export import export_onnx
from p3s.runs import opening
from p3s.runs.loggers.scalars import scalars_of
from tests.helpers import SMALL, Counter, call, small_config
from tests.helpers_faults import MakeFault

FEW = {**SMALL, "evaluation_period": 0}


class Structured(gymnasium.Env):
    """Dict observations, and whole-number actions of two dimensions."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-1, 1, (2,), np.float32), "kind": spaces.Discrete(3)}
    )
    action_space = spaces.Box(0, 4, (2, 2), np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken, self.now = [], 0
        return self._observation(), {}

    def step(self, action):
        assert action.dtype == np.int64
        self.taken.append(action)
        self.now += 1
        return self._observation(), float(action.sum()), False, self.now == 10, {}

    def _observation(self):
        place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"place": place, "kind": int(self.np_random.integers(3))}


@pytest.fixture(scope="module")
def structured():
    return p3s.Population(Structured, **FEW).learn(200, progress_bar=False)


def test_whole_number_actions_reach_both_ends():
    env = make_env(Structured)
    env.reset(seed=0)
    for given, expected in ((-1.0, 0), (1.0, 4), (0.8, 4), (-0.8, 0), (0.0, 2)):
        env.step(np.full(4, given, np.float32))
        assert (env.unwrapped.taken[-1] == expected).all()


class TestObservationsOfSpaces:
    def test_dicts_one_and_many(self, structured, tmp_path):
        structured.policy.save(tmp_path / "policy.safetensors")
        for policy in (structured, p3s.load(tmp_path / "policy.safetensors")):
            seen = [{"place": [0.1 * i, -0.5], "kind": i % 3} for i in range(5)]
            single = np.stack([policy.predict(observation)[0] for observation in seen])
            batch = {name: np.stack([each[name] for each in seen]) for name in ("place", "kind")}
            together, _ = policy.predict(batch)
            assert single.dtype == together.dtype == np.int64
            assert together.shape == (5, 2, 2)
            np.testing.assert_array_equal(single, together)
            assert ((together >= 0) & (together <= 4)).all()

    def test_a_dict_that_does_not_fit(self, structured):
        with pytest.raises(UserError, match="its parts do not fit"):
            structured.predict({"place": [0.0, 0.0]})

    def test_a_dict_where_arrays_are_taken(self, population):
        with pytest.raises(UserError, match="its observations are arrays"):
            population.predict({"place": [0.0, 0.0]})

    def test_text_is_refused(self):
        class Speaks(Structured):
            observation_space = spaces.Dict({"words": spaces.Text(5)})

        with pytest.raises(UserError, match="Speaks hold text, which no network here reads"):
            make_env(Speaks)

    def test_a_space_of_ones_own_is_refused_in_one_line(self, capsys, monkeypatch):
        class Mission(spaces.Space):
            """A sentence, as MiniGrid has it: neither Gymnasium nor a network reads it."""

        class Told(Structured):
            observation_space = spaces.Dict(
                {"image": spaces.Box(0, 255, (7, 7, 3), np.uint8), "mission": Mission()}
            )

        monkeypatch.setitem(gymnasium.registry, "Told-v0", EnvSpec("Told-v0", Told))
        code, _, errors = call(capsys, "train", "Told-v0")
        assert (code, errors.count("\n")) == (2, 1)
        assert "Told-v0 hold a Mission (mission), which no network here reads: wrap it" in errors
        told = EnvSpec("MiniGrid-Told-v0", Told)
        monkeypatch.setitem(gymnasium.registry, "MiniGrid-Told-v0", told)
        with pytest.raises(UserError, match=r'--wrappers "gymnasium\.wrappers:FilterObservation\('):
            make_env("MiniGrid-Told-v0")
        with pytest.raises(UserError, match="hold a Sequence, which no network here reads"):
            make_env(lambda: Counter(observation_space=spaces.Sequence(spaces.Discrete(2))))

    def test_a_camera_is_scaled_and_said(self, tmp_path, capsys):
        space = spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (64, 64, 3), np.uint8),
                "joints": spaces.Box(-1, 1, (7,), np.float32),
            }
        )
        make = partial(Counter, observation_space=space)
        fields = {**FEW, "algorithm": "td3", "network": "mlp", "hidden_sizes": (64, 64)}
        camera, plain = (Population(make, **fields, **own) for own in ({}, {"scale_images": False}))
        camera.learn(8)
        assert (
            "observation: camera 64×64×3 (pixels / 255) and joints 7, flattened to 12,295 numbers "
            "(--network multi reads images as such)\n" in capsys.readouterr().out
        )
        seen = [space.sample() for _ in range(20)]
        for population, is_gentle in ((camera, True), (plain, False)):
            population.policy.save(tmp_path / "policy.safetensors")
            policy = p3s.load(tmp_path / "policy.safetensors")
            actions = np.stack([policy.predict(observation)[0] for observation in seen])
            assert bool(np.mean(np.abs(actions) > 0.99) < 0.05) is is_gentle
            env = policy.make_env(env=make)
            observation = env.reset(seed=0)[0]
            assert bool(observation.max() <= 1.0) is is_gentle

    def test_onnx_has_the_shape_and_whole_numbers(self, structured, tmp_path):
        onnxruntime = pytest.importorskip("onnxruntime")
        export_onnx(structured.policy, str(tmp_path / "policy.onnx"))
        session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
        flat = np.random.default_rng(0).uniform(-1, 1, (7, 5)).astype(np.float32)
        (found,) = session.run(None, {"observation": flat})
        assert found.shape == (7, 2, 2)
        np.testing.assert_array_equal(found, structured.policy.predict(flat)[0])


class TestPickles:
    def test_policies(self, population):
        again = pickle.loads(pickle.dumps(population.policy))
        observation = np.ones(3, np.float32)
        np.testing.assert_array_equal(
            again.predict(observation)[0], population.policy.predict(observation)[0]
        )

    def test_populations_go_on_to_the_bit(self, structured):
        again = pickle.loads(pickle.dumps(structured))
        assert again.num_steps == structured.num_steps
        for each in (structured, again):
            each.learn(40, progress_bar=False)
        assert again.policy.to_bytes() == structured.policy.to_bytes()


def test_a_loaded_population_knows_its_evaluations(population, tmp_path):
    population.save(tmp_path / "saved")
    loaded = p3s.Population.load(tmp_path / "saved")
    assert loaded.evaluations == population.evaluations
    assert [row["step"] for row in loaded.evaluations] == [200, 400, 600, 800, 900]


def test_representations_say_what_it_is(population):
    assert repr(population).startswith(
        "<Population p3s-td3, 4 learners on Pendulum-v1, seed 1: 900"
    )
    assert repr(population.policy).startswith("<Policy td3 for Pendulum-v1: float32 observations")


class TestWordsOfOtherLibraries:
    def test_total_timesteps(self):
        made = p3s.Population("Pendulum-v1", algorithm="TD3", **FEW)
        assert made.learn(total_timesteps=40, progress_bar=False).num_steps == 40
        with pytest.raises(UserError, match="say how many steps"):
            made.learn()

    @pytest.mark.parametrize(
        ("name", "ours"),
        [
            ("gamma", "discount_factor"),
            ("tau", "target_rate"),
            ("learning_starts", "initial_steps"),
        ],
    )
    def test_fields(self, name, ours, capsys):
        with pytest.raises(UserError, match=f"{name} is called {ours} here"):
            p3s.Population("Pendulum-v1", **{name: 1})
        flag, our_flag = (f"--{word.replace('_', '-')}" for word in (name, ours))
        code, _, errors = call(capsys, "train", "Pendulum-v1", flag, "1")
        assert code == 2
        assert f"{flag} is called {our_flag} here" in errors

    @pytest.mark.parametrize(
        ("theirs", "ours"),
        [
            ({"train_freq": 4}, "0.25"), ({"gradient_steps": 2}, "2"),
            ({"train_freq": 8, "gradient_steps": 2}, "0.25"), ({"gradient_steps": -1}, "N"),
            ({"train_freq": (1, "episode")}, "a number of updates per own step"),
        ],
    )  # fmt: skip
    def test_train_freq_is_the_inverse(self, theirs, ours, capsys):
        with pytest.raises(UserError, match=f"is updates_per_step {ours} here"):
            p3s.Population("Pendulum-v1", **theirs)
        flags = [str(word) for k, v in theirs.items() for word in (f"--{k.replace('_', '-')}", v)]
        code, _, errors = call(capsys, "train", "Pendulum-v1", *flags)
        assert code == 2
        assert f"{' '.join(flags)} is --updates-per-step {ours} here" in errors

    def test_vector_environments(self):
        vector = gymnasium.make_vec("Pendulum-v1", 2)
        with pytest.raises(UserError, match="a callable that makes one copy, not a SyncVectorEnv"):
            p3s.Population(vector)
        with pytest.raises(UserError, match="one environment, not a vector of them"):
            p3s.Population(lambda: gymnasium.make_vec("Pendulum-v1", 2))


def test_tags_mean_what_they_mean_elsewhere():
    row = {"step": 4, "score": 9.0, "mean": 5.0, "champion_return": 7.0, "learner_returns": [[7.0]]}
    assert scalars_of("evaluations", row) == {
        "eval/mean_reward": 7.0, "eval/max_mean_reward": 9.0, "eval/population_mean_reward": 5.0,
        "learner_0/eval_reward": 7.0,
    }  # fmt: skip
    row = {"step": 4, "steps_per_second": 1.0, "recent_returns": [1.0, None], "learners": {},
           "episodes": [[0, 1.0, 10], [1, 2.0, 30]]}  # fmt: skip
    assert scalars_of("metrics", row)["rollout/ep_len_mean"] == 20.0


WRAPPED = """
import gymnasium

class Shifted(gymnasium.RewardWrapper):
    def reward(self, reward):
        return float(reward) + 100.0

class Fails(gymnasium.Wrapper):
    def step(self, action):
        raise RuntimeError("a joint broke")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_wrappers.py").write_text(WRAPPED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


class TestCommands:
    def test_wrappers_and_arguments(self, module, tmp_path, capsys, run_arguments):
        words = ["Pendulum-v1", *run_arguments, "--steps", "200", "--out", "run", "--no-report"]
        code, _, errors = call(capsys, "train", *words, "--wrappers", "my_wrappers:Shifted")
        assert code == 0, errors
        asked = ("evaluate", "run", "--episodes", "2", "--env-kwargs", "max_episode_steps", "5")
        code, output, errors = call(capsys, *asked)
        assert code == 0, errors
        found = float(output.split("return ")[1].split()[0])
        assert 400 < found < 500  # 5 steps of at most 100 each

    def test_a_wrapper_that_is_none(self, capsys):
        for name, message in (("x", "is named module:Name"), ("json:nothing", "cannot be made")):
            code, _, errors = call(capsys, "train", "Pendulum-v1", "--wrappers", name)
            assert code == 2
            assert message in errors

    def test_the_traceback_of_an_environment_is_kept(self, module, tmp_path, capsys, run_arguments):
        words = ["Pendulum-v1", *run_arguments, "--steps", "200", "--out", "run"]
        fails = ("--wrappers", "my_wrappers:Fails")
        code, _, errors = call(capsys, "train", *words, *fails)
        assert code == 2
        assert errors.count("\n") == 1
        assert "traceback: run/traceback.txt" in errors
        assert "in step\n" in (tmp_path / "run" / "traceback.txt").read_text()
        code, _, errors = call(capsys, "train", *words[:-1], "other", *fails, "--debug")
        assert code == 2
        assert "Traceback (most recent call last)" in errors
        assert "a joint broke" in errors


class Choice(gymnasium.Env):
    """Three actions to choose from."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {}


class TestAlgorithmThatSuits:
    def test_by_the_actions(self):
        assert Population(Choice).training.config.algorithm.name == "dqn"
        assert Population("FrozenLake-v1").training.config.algorithm.name == "dqn"
        assert parse_train(["FrozenLake-v1"])[0].algorithm.name == "dqn"
        assert parse_train(["Pendulum-v1"])[0].algorithm.name == "td3"

    def test_arguments_of_the_environment_count(self):
        pytest.importorskip("Box2D")
        words = ["LunarLander-v3", "--env-kwargs", "continuous", "True"]
        assert parse_train(words)[0].algorithm.name == "td3"
        assert parse_train(words[:1])[0].algorithm.name == "dqn"

    def test_rollouts(self):
        assert parse_train(["Pendulum-v1", "--scheme", "rollout"])[0].algorithm.name == "ppo"

    def test_another_environment_of_the_same_name(self):
        assert preset_of(parse_name("mine/CartPole-v0")) is None
        assert preset_of(parse_name("p3s/DelayedHopper-v5")) is preset_of(parse_name("Hopper-v5"))


def test_whole_numbers_in_short():
    config, _ = parse_train(["Pendulum-v1", "--steps", "1e4", "--learning-rate", "1e-3"])
    assert (config.options.steps, config.algorithm.learning_rate) == (10_000, 1e-3)
    assert resolve("Pendulum-v1", hidden_sizes=np.array([8, 8])).algorithm.hidden_sizes == (8, 8)


@pytest.mark.parametrize("name", ["verbose", "device", "policy", "tensorboard_log"])
def test_what_is_elsewhere_here_gets_a_hint(name):
    with pytest.raises(UserError, match=f"^unknown field '{name}': .{{20}}"):
        resolve("Pendulum-v1", **{name: 1})


@pytest.mark.parametrize("callback", [Callback, "x", [None], [lambda _: True, 3]])
def test_what_is_no_callback(callback):
    with pytest.raises(UserError, match="a callback is a function or an instance of"):
        Population("Pendulum-v1", **SMALL).learn(100, callback)


def test_learn_says_why_it_stopped(capsys):
    fields = {**SMALL, "evaluation_period": 100, "evaluation_episodes": 1}
    population = Population("InvertedPendulum-v5", stop_at=-1e9, **fields).learn(1200)
    assert population.stop_reason is not None
    assert f"stopped at step {population.num_steps:,}: {population.stop_reason}" in (
        capsys.readouterr().out
    )


def test_a_function_that_ends_the_run_is_named(capsys):
    def half_way(population):
        return population.num_steps < 20

    population = Population("InvertedPendulum-v5", **FEW)
    assert population.learn(40, half_way).stop_reason == "half_way returned False"
    assert "stopped at step 20: half_way returned False" in capsys.readouterr().out
    population.learn(40, lambda _: False, progress_bar=False)
    assert (population.num_steps, population.stop_reason) == (24, "a function returned False")
    assert population.learn(4, progress_bar=False).stop_reason is None


def test_a_run_that_took_no_step_does_not_block_its_folder(tmp_path, capsys):
    config = small_config(None, steps=200)
    broken, path = MakeFault("raises", at=1), tmp_path / "run"
    training = opening.begin(config, path, broken)
    with pytest.raises(UserError):
        training.run(200)
    training.close()
    training = opening.begin(config, path, MakeFault("none", at=1000))
    training.run(200)
    training.close()
    with pytest.raises(UserError, match="holds a run already"):
        opening.begin(config, path, broken)


def test_a_population_of_another_environment_is_refused_by_its_shapes(tmp_path):
    population = Population(lambda: gymnasium.make("Pendulum-v1"), **FEW).learn(100)
    population.save(tmp_path)
    with pytest.raises(UserError, match=r"was saved with .* of 3 .* environment has .* of 2 "):
        Population.load(tmp_path, Choice)


def test_loggers_are_kept_in_a_run_file(tmp_path):
    file = tmp_path / "run.toml"
    text = run_file_text(resolve("Pendulum-v1"), ("csv",))
    for written in (text, text.replace("\nloggers = ", "\nlog = ")):  # its name in early p3s 0.2
        file.write_text(written)
        assert parse_train(["--config", str(file)])[1].loggers == ("csv",)


def test_numbers_that_are_not_there_are_not_logged():
    row = {"champion_return": None, "score": float("nan"), "mean": 1.0, "learner_returns": [[2.0]]}
    assert scalars_of("evaluations", row) == {
        "eval/population_mean_reward": 1.0, "learner_0/eval_reward": 2.0
    }  # fmt: skip
