"""Environments that misbehave: each is found out and named, or harmless."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import Adapter, workers
from p3s.envs.copies import LocalCopies
from p3s.envs.workers import WorkerCopies
from p3s.errors import TrainingStopped, UserError
from p3s.train import Training
from tests.helpers import Counter, call, small_config
from tests.helpers_faults import MakeFault

ACTIONS = np.zeros((2, 2), np.float32)
BOTH = np.arange(2)


def play(copies, steps: int = 100) -> list:
    """What a group gives at each of its steps."""
    copies.start()
    return [copies.step(ACTIONS, BOTH) for _ in range(steps)]


class TestStops:
    """The run ends with one line that names the learner and what its environment did."""

    @pytest.mark.parametrize(
        ("kind", "line"),
        [
            ("raises", r"the environment of learner 0 raised at a step: RuntimeError: the wheels"),
            ("leaks", "the environment of learner 0 raised at a step: MemoryError"),
            ("wrong shape", r"learner 0 raised at a step: .* shape \(3,\), its space \(2,\)"),
            ("wrong dtype", "learner 0 raised at a step: ValueError: an observation has values of"),
            ("complex numbers", "raised at a step: ValueError: .* values of type complex64"),
            ("text as a reward", "raised at a step: TypeError: the reward is '1.5', not a number"),
            ("NaN observation", r"the observation of learner 0's environment is \[nan nan\]"),
            ("NaN reward", "the reward of learner 0's environment is nan"),
            ("infinite reward", "the reward of learner 0's environment is inf"),
            ("reward beyond float32", r"the reward of learner 0's environment is 1e\+39"),
            ("several rewards", "learner 0 raised at a step: TypeError"),
            ("no reward", "learner 0 raised at a step: TypeError"),
            ("changes its action space", "learner 0 raised at a reset: .* changed its space from"),
            ("changes its observation space", "raised at a reset: .* changed its space from"),
        ],
    )
    def test_line(self, kind, line):
        with pytest.raises(TrainingStopped, match=line):
            play(LocalCopies(MakeFault(kind), 2, seed=0))

    @pytest.mark.parametrize("kind", ["float", "negative", "too large"])
    def test_pixels_that_are_none(self, kind):
        """Cast to bytes, they would be another picture."""
        env = Counter(observation_space=spaces.Box(0, 255, (4, 4), np.uint8))
        wrong = {"float": 0.5, "negative": -1, "too large": 256}[kind]
        env._observe = lambda: np.full((4, 4), wrong)
        with pytest.raises(ValueError, match="is not of whole numbers from 0 to 255"):
            Adapter(env).reset(seed=0)
        env._observe = lambda: np.full((4, 4), 200)
        assert Adapter(env).reset(seed=0)[0].dtype == np.uint8

    def test_copies_that_differ(self):
        sizes = iter([2, 2, 2, 1])

        def make():
            space = spaces.Box(-1.0, 1.0, (next(sizes),), np.float32)
            return Adapter(Counter(observation_space=space))

        with pytest.raises(UserError, match=r"observations of 1 .* the first had .* of 2 "):
            Training(small_config("Pendulum-v1"), make)


class TestHarmless:
    def test_an_episode_that_ends_at_every_step(self):
        steps = play(LocalCopies(MakeFault("ends every step", at=1), 2, seed=0), 5)
        assert [episode.length for step in steps for episode in step.episodes] == [1] * 10
        assert all((step.transitions.discount == 0).all() for step in steps)

    def test_an_episode_that_never_ends(self):
        steps = play(LocalCopies(MakeFault("never ends", at=1), 2, seed=0), 100)
        assert not any(step.episodes for step in steps)

    def test_numbers_of_other_types(self):
        for step in play(LocalCopies(MakeFault("float64 and ints"), 2, seed=0), 40):
            assert step.transitions.next_observation.dtype == np.float32


class SameStep(gymnasium.Wrapper):
    """Begins the next episode in the step that ends one, as vector environments may."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "final_obs": observation}
            observation, _ = self.env.reset()
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", [gymnasium.wrappers.Autoreset, SameStep])
def test_autoreset(mode, truncates):
    """Transitions of an environment that resets itself are those of one that does not."""
    plain = play(LocalCopies(lambda: Adapter(Counter(3, truncates)), 2, seed=0), 10)
    own = play(LocalCopies(lambda: Adapter(mode(Counter(3, truncates))), 2, seed=0), 10)
    for ours, theirs in zip(own, plain, strict=True):
        assert ours.episodes == theirs.episodes
        for part, other in zip(ours.transitions, theirs.transitions, strict=True):
            np.testing.assert_array_equal(part, other)


class TestWorkers:
    """A worker that dies or hangs is replaced as often as is allowed; its episodes are lost."""

    @pytest.mark.parametrize(
        ("kind", "line"),
        [
            ("SIGSEGV", "killed by SIGSEGV"),
            pytest.param("SIGKILL", "killed by SIGKILL", marks=pytest.mark.slow),
            pytest.param("exits", "exit code 3", marks=pytest.mark.slow),
            ("hangs", "longer than the limit for a step"),
            ("leaves a child", "killed by SIGKILL"),
        ],
    )
    def test_a_worker_is_replaced(self, tmp_path, capsys, kind, line):
        make = MakeFault(kind, tmp_path / "mark")
        limit = 0.5 if kind == "hangs" else None
        copies = WorkerCopies(make, 2, 0, 2, restarts=1, step_limit=limit)
        steps = play(copies)
        (lost,) = copies.lost
        snapshot = copies.snapshot()
        copies.close()
        said = capsys.readouterr().err
        assert f"environments of learner {lost} died" in said
        assert line in said
        assert "0 restarts left" in said
        lengths = [[e.length for s in steps for e in s.episodes if e.copy == i] for i in BOTH]
        assert lengths[1 - lost] == [20] * 5
        assert lengths[lost] == [20] * 4  # 29 steps, of which 9 are lost; then 71
        assert snapshot["num_episodes"].tolist() == [6, 6]
        self.check_rows(steps)

    def test_a_replacement_that_hangs_at_its_reset(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(workers, "START_SECONDS", 5.0)
        make = MakeFault("hangs from now on", tmp_path / "mark")
        copies = WorkerCopies(make, 2, 0, 1, restarts=1, step_limit=0.5)
        with pytest.raises(TrainingStopped, match=r"longer than the limit"):
            play(copies)
        assert capsys.readouterr().err.count("restarted") == 1
        copies.close()

    @staticmethod
    def check_rows(steps):
        """Each transition counts its episode's steps one up: none crosses a reset."""
        for step in steps:
            before, after = step.transitions.observation, step.transitions.next_observation
            np.testing.assert_array_equal(after[:, 0], before[:, 0] + 1)

    @pytest.mark.slow
    def test_several_copies_in_one_worker(self, tmp_path, capsys):
        copies = WorkerCopies(MakeFault("SIGSEGV", tmp_path / "mark"), 2, 0, 1, restarts=1)
        self.check_rows(play(copies))
        assert copies.lost == [0, 1]
        assert "environments of learners 0 to 1 died" in capsys.readouterr().err
        copies.close()

    @pytest.mark.slow
    def test_a_worker_that_dies_between_steps(self, capsys):
        copies = WorkerCopies(MakeFault("none", at=1000), 2, 0, 2, restarts=2)
        self.check_rows(play(copies, 5))
        copies.workers[1].kill()
        assert copies.snapshot()["lengths"].tolist() == [5, 0]
        copies.workers[0].kill()
        self.check_rows([copies.step(ACTIONS, BOTH)])
        assert copies.lost == [1, 0]
        assert copies.snapshot()["lengths"].tolist() == [1, 1]
        copies.close()

    def test_no_more_than_is_allowed(self, capsys):
        copies = WorkerCopies(MakeFault("SIGABRT"), 2, 0, 1, restarts=1)
        with pytest.raises(TrainingStopped, match=r"died \(killed by SIGABRT\)$"):
            play(copies)
        assert capsys.readouterr().err.count("restarted") == 1
        copies.close()


class TestRuns:
    @pytest.mark.slow
    def test_a_run_goes_on_and_marks_the_lost_episode(self, tmp_path, capsys):
        rows = []
        config = small_config(
            None, steps=400, env_workers=2, env_restarts=1, num_learners=2, evaluation_period=0
        )
        training = Training(config, MakeFault("SIGSEGV", tmp_path / "mark", at=45))
        training.folder.append = lambda stream, row: rows.append((stream, row))
        training.run(400)
        training.close()
        found = [row["lost_episodes"] for stream, row in rows if "lost_episodes" in row]
        assert found in ([[0]], [[1]])
        assert training.experience.ring.num_added == 400

    @pytest.mark.slow
    def test_an_on_policy_rollout_is_cut_where_an_episode_was_lost(self, tmp_path, capsys):
        config = small_config(
            None, "rollout", steps=60, env_workers=1, env_restarts=1, evaluation_period=0
        )
        training = Training(config, MakeFault("SIGSEGV", tmp_path / "mark"))
        training.run(60)
        training.close()
        rows = training.experience.unpack(training.spec, training.experience.snapshot()["rows"])
        assert np.flatnonzero(rows.ended).tolist() == [19, 28, 48]

    def test_options_need_workers(self, capsys):
        for option in (["--env-restarts", 1], ["--env-step-limit", 2.0]):
            code, _, error = call(capsys, "train", "Pendulum-v1", *option)
            assert code == 2
            assert "env_restarts and env_step_limit need processes" in error
