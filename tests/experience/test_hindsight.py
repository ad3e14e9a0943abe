"""Hindsight: which goals minibatches hold, what they pay, and what does not go together with it."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest

from p3s import Population
from p3s.config.run import resolve
from p3s.envs import make_env
from p3s.envs.goals import Goals
from p3s.errors import UserError
from p3s.experience.hindsight import Hindsight
from p3s.experience.normalization import NoNormalizer
from p3s.experience.replay import Replay
from p3s.experience.rows import fields
from p3s.types import EnvSpec, Transition
from tests.goal_worlds import Reach
from tests.helpers import assert_same_bits, call, record, resume, run, small_training

ENV = "test/Reach-v0"
SPEC = EnvSpec.flat(6, 2)
"""achieved_goal, desired_goal, observation: the order of gymnasium's flatten."""


def make_replay(new_goal="future", share=0.8, env=Reach, **fields) -> Replay:
    goals = Goals(make_env(partial(env, **fields)))
    bags = Hindsight(200, 0, SPEC, goals, new_goal, share)
    return Replay(200, SPEC, 20, 0, NoNormalizer(), bags=bags)


def play(replay: Replay, lengths: list[int], copies: int = 2) -> None:
    """Episodes in which step k of episode e achieves (e, k / 100), for a goal that nothing reaches.

    The last of each copy goes on.
    """
    episode, step = list(range(copies)), [0] * copies
    while any(number < len(lengths) for number in episode):
        seen, then = (
            np.array(
                [
                    [e, (k + late) / 100, 9, 9, e, k + late]
                    for e, k in zip(episode, step, strict=True)
                ]
            )
            for late in (0, 1)
        )
        ended = []
        for copy in range(copies):
            step[copy] += 1
            if episode[copy] < len(lengths) and step[copy] == lengths[episode[copy]]:
                ended.append(copy)
                episode[copy], step[copy] = episode[copy] + copies, 0
        ones = np.ones(copies, np.float32)
        replay.add(Transition(seen, np.zeros((copies, 2)), -ones, ones, then), range(copies), ended)


def drawn(replay: Replay, updates: int = 30) -> np.ndarray:
    batches = [replay.take(update, 2, 0) for update in range(updates)]
    rows = np.concatenate([batch.rows.reshape(-1, batch.rows.shape[-1]) for batch in batches])
    return fields(rows, SPEC)


LENGTHS = [5, 8, 3, 6]


class TestGoals:
    @pytest.mark.parametrize("new_goal", ["future", "final", "episode"])
    def test_new_goals_were_achieved_in_the_same_episode(self, new_goal):
        replay = make_replay(new_goal)
        play(replay, LENGTHS)
        rows = drawn(replay, 150)
        new = rows["observation"][:, 2] != 9
        episode, step = rows["observation"][:, 4].astype(int), rows["observation"][:, 5]
        assert set(episode) == {0, 1, 2, 3}, "complete episodes, and no others"
        goal_step = np.rint(100 * rows["observation"][:, 3])
        assert (rows["observation"][new, 2] == episode[new]).all()
        length = np.array(LENGTHS)[episode]
        earliest = {"future": step + 1, "final": length, "episode": np.ones_like(step)}[new_goal]
        assert ((goal_step >= earliest) & (goal_step <= length))[new].all()
        seen = set(zip(episode[new], step[new], goal_step[new], strict=True))
        possible = {
            (e, k, goal)
            for e, k, first, last in zip(episode, step, earliest, length, strict=True)
            for goal in range(int(first), int(last) + 1)
        }
        assert seen == possible, "all that may be drawn are drawn"
        assert (rows["next_observation"][:, 2:4] == rows["observation"][:, 2:4]).all()

    def test_later_goals_are_equally_likely(self):
        replay = make_replay(share=1.0)
        play(replay, [4, 4])
        rows = drawn(replay, 400)
        first = rows[rows["observation"][:, 5] == 0]
        counts = np.bincount(np.rint(100 * first["observation"][:, 3]).astype(int), minlength=5)
        assert counts[0] == 0
        assert counts[1:] / len(first) == pytest.approx([0.25] * 4, abs=0.02)

    def test_the_share_is_exact_in_every_minibatch(self):
        replay = make_replay()
        play(replay, LENGTHS)
        rows = replay.take(1, 2, 0).rows
        new = fields(rows, SPEC)["observation"][..., 2] != 9
        assert new.sum(axis=1).tolist() == [16, 16]

    def test_the_ring_keeps_what_happened(self):
        replay = make_replay()
        play(replay, LENGTHS)
        before = replay.ring.rows[: replay.ring.size].copy()
        drawn(replay)
        assert np.array_equal(replay.ring.rows[: replay.ring.size], before)

    def test_before_an_episode_is_complete_goals_are_the_own(self):
        replay = make_replay()
        step = np.full((1, 6), 9.0)
        replay.add(Transition(step, np.zeros((1, 2)), -np.ones(1), np.ones(1), step), [0], [])
        assert (drawn(replay, 2)["observation"] == 9).all()


class TestJudging:
    @pytest.mark.parametrize("ends", [False, True])
    def test_rewards_and_terminations_are_the_environments(self, ends):
        """Steps of two episodes are 0.01 apart, so that NEAR is reached at once."""
        replay = make_replay(ends=ends)
        play(replay, [5, 30])
        rows = drawn(replay)
        new = rows["observation"][:, 2] != 9
        apart = np.linalg.norm(
            np.subtract(rows["next_observation"][:, :2], rows["observation"][:, 2:4], dtype=float),
            axis=-1,
        )
        near = apart < Reach.NEAR
        assert new.any()
        assert (near & new).any()
        assert (~near & new).any()
        assert (rows["reward"] == np.where(near, 0, -1)).all()
        assert (rows["discount"] == np.where(near & ends, 0, 1)).all()

    def test_one_pair_at_a_time_gives_the_same_and_is_said_once(self, capsys):
        judged = []
        for batches in (True, False):
            replay = make_replay(batches=batches, ends=True)
            play(replay, [5, 30])
            judged.append(drawn(replay, 3))
        assert (judged[0]["reward"] == judged[1]["reward"]).all()
        assert (judged[0]["discount"] == judged[1]["discount"]).all()
        errors = capsys.readouterr().err
        for name in ("compute_reward", "compute_terminated"):
            assert errors.count(f"{name} of Reach takes one pair of goals at a time") == 1

    def test_without_compute_terminated_what_happened_counts(self):
        class Plain(gymnasium.Wrapper):
            def has_wrapper_attr(self, name):
                return name != "compute_terminated" and super().has_wrapper_attr(name)

        replay = make_replay(env=lambda: Plain(Reach(ends=True)))
        play(replay, [5, 30])
        assert (drawn(replay)["discount"] == 1).all()

    def test_errors_are_told_in_one_line(self):
        class Broken(Reach):
            def compute_reward(self, achieved, desired, info):
                raise ValueError("no such goal")

        class NotFinite(Reach):
            def compute_reward(self, achieved, desired, info):
                return np.full(achieved.shape[:-1], np.nan)

        for env, message in (
            (Broken, "compute_reward of Broken raised ValueError: no such goal"),
            (NotFinite, "compute_reward of NotFinite gave nan"),
        ):
            replay = make_replay(env=env)
            play(replay, LENGTHS)
            with pytest.raises(UserError, match=message):
                drawn(replay, 1)


RUN = {"env": ENV, "hindsight": "future", "evaluation_period": 0, "num_learners": 2}


class TestRuns:
    def test_killed_and_resumed_is_uninterrupted(self, tmp_path):
        fields = {"env": ENV, "hindsight": "future", "buffer_size": 350}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=330, **fields)
        resume(tmp_path / "killed", until=570)
        resume(tmp_path / "killed")
        assert record(tmp_path / "killed") == record(tmp_path / "whole")

    def test_running_ahead_changes_nothing(self):
        ours, theirs = (small_training(seed=1, updates_per_step=3, **RUN) for _ in range(2))
        theirs.crew.updater._overlap = False
        for training in (ours, theirs):
            training.run(400)
        assert_same_bits(ours, theirs)

    @pytest.mark.slow
    def test_one_shard_draws_what_a_whole_population_draws(self, tmp_path):
        run(tmp_path / "whole", **RUN)
        run(tmp_path / "sharded", shards=1, exchange_period=1, **RUN)
        ours, theirs = (record(tmp_path / name) for name in ("sharded", "whole"))
        assert ours["lineage"] == theirs["lineage"] != []
        assert ours["policy.safetensors"] == theirs["policy.safetensors"]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([ENV, "--hindsight", "future", "--credit", "ircr"], "leave credit out"),
            ([ENV, "--hindsight", "future", "--delay", "5"], "leave delay out"),
            ([ENV, "--hindsight", "future", "--n-step", "3"], "leave n_step out"),
            ([ENV, "--hindsight", "future", "--own-share", "0.5"], "leave own_share out"),
            ([ENV, "--hindsight", "future", "--scheme", "rollout"], "ppo keeps none"),
            (["Pendulum-v1", "--hindsight", "final"], "Pendulum-v1 has no goals"),
            ([ENV, "--her", "future"], "hindsight"),
        ],
    )
    def test_refused_in_one_line(self, capsys, words, message):
        code, _, errors = call(capsys, "train", *words, "--steps", "100")
        assert (code, message in errors) == (2, True), errors

    def test_in_python(self):
        population = Population(ENV, hindsight="final", hindsight_goals=8, hidden_sizes=(8, 8))
        assert population.training.options.hindsight_goals == 8
        with pytest.raises(UserError, match="hindsight_goals"):
            resolve(ENV, "p3s", hindsight_goals=0).check()


@pytest.mark.slow
def test_learns_where_nothing_else_does():
    """Most episodes never come near their goal; those that were reached by chance show the way."""
    common = {"steps": 20_000, "seed": 3, "evaluation_period": 0, "discount_factor": 0.95}
    scores = {}
    for hindsight in ("none", "future"):
        population = Population(ENV, hindsight=hindsight, hidden_sizes=(64, 64), **common)
        scores[hindsight] = population.learn(20_000).evaluate(50).mean()
    assert scores["future"] > -7
    assert scores["none"] < scores["future"]
