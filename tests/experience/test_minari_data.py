"""Datasets of Minari, made with its own collector; skipped where it is missing."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from p3s.envs import make_env
from p3s.errors import UserError
from p3s.experience.episode_links import NONE
from p3s.experience.minari_data import read_minari
from p3s.experience.recorded import as_data
from p3s.experience.rows import fields
from tests.goal_worlds import Reach
from tests.helpers import call


@pytest.fixture
def minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("minari")


def collect(minari, env: gymnasium.Env, name: str, episodes: int = 2) -> list[list]:
    """A dataset of random episodes; and their rewards."""
    collector = minari.DataCollector(env)
    collector.action_space.seed(0)
    paid = []
    for episode in range(episodes):
        collector.reset(seed=episode)
        over, rewards = False, []
        while not over:
            _, reward, terminated, truncated, _ = collector.step(collector.action_space.sample())
            rewards.append(reward)
            over = terminated or truncated
        paid.append(rewards)
    collector.create_dataset(name, author="nobody", author_email="nobody@example.org")
    return paid


@pytest.mark.filterwarnings("ignore")
class TestMinari:
    def test_episodes_one_after_another(self, minari):
        env = gymnasium.make("CartPole-v1")
        paid = collect(minari, env, "p3s/cartpole-v0", 3)
        data = as_data(read_minari("minari:p3s/cartpole-v0"), make_env("CartPole-v1"), "x")
        view, lengths = fields(data.rows, data.spec), [len(rewards) for rewards in paid]
        assert len(data) == sum(lengths)
        ends = np.cumsum(lengths) - 1
        assert np.flatnonzero(data.following == NONE).tolist() == ends.tolist()
        assert np.flatnonzero(view["discount"] == 0).tolist() == ends.tolist()
        assert view["reward"].tolist() == [reward for rewards in paid for reward in rewards]
        env.reset(seed=1)
        assert np.array_equal(view["observation"][ends[0] + 1], env.unwrapped.state.astype("f4"))

    def test_observations_of_several_parts(self, minari):
        collect(minari, gymnasium.make("test/Reach-v0"), "p3s/reach-v0")
        found = read_minari("minari:p3s/reach-v0")
        assert set(found.observations) == {"observation", "achieved_goal", "desired_goal"}
        data = as_data(found, make_env(Reach), "x")
        view = fields(data.rows, data.spec)
        assert (view["observation"][:, :2] == -view["observation"][:, 4:]).all()
        assert np.flatnonzero(data.following == NONE).tolist() == [19, 39]

    def test_a_run_learns_from_one(self, minari, tmp_path, capsys, run_arguments):
        collect(minari, gymnasium.make("Pendulum-v1"), "p3s/pendulum-v0")
        out = tmp_path / "run"
        words = ["--data", "minari:p3s/pendulum-v0", "--data-share", "0.5", "--out", out]
        code, printed, errors = call(
            capsys, "train", "Pendulum-v1", *run_arguments, *words, "--steps", "300"
        )
        assert code == 0, errors
        assert "4 of a minibatch from the 400 of minari:p3s/pendulum-v0" in printed
        assert call(capsys, "resume", out, "--steps", "400")[0] == 0

    def test_what_is_not_there(self, minari):
        for name in ("p3s/nothing-v0", "no name at all", ""):
            with pytest.raises(UserError, match=f"^minari:{name} cannot be read: ") as caught:
                read_minari(f"minari:{name}")
            assert "\n" not in str(caught.value)

    def test_data_of_another_environment(self, minari):
        collect(minari, gymnasium.make("CartPole-v1"), "p3s/cartpole-v0")
        with pytest.raises(UserError, match=r"^minari:p3s/cartpole-v0: observations are float32\["):
            as_data(
                read_minari("minari:p3s/cartpole-v0"),
                make_env("Pendulum-v1"),
                "minari:p3s/cartpole-v0",
            )


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(UserError, match=r"require minari: pip install 'p3s\[minari\]'"):
        read_minari("minari:D4RL/pen/human-v2")
