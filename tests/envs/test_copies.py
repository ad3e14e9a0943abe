"""Copies of an environment: what they hand to the replay, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.envs import Adapter
from p3s.envs.copies import LocalCopies
from p3s.errors import TrainingStopped
from p3s.types import Transition
from tests.helpers import Counter


class TestCopies:
    @pytest.mark.parametrize("truncates", [False, True])
    def test_no_transition_crosses_a_reset(self, truncates: bool):
        copies = LocalCopies(lambda: Adapter(Counter(3, truncates)), 2, seed=0)
        copies.start()
        steps, ended = [], []
        for _ in range(7):
            transitions, episodes = copies.step(np.zeros((2, 2), np.float32), np.arange(2))
            steps.append(Transition(*(values[0] for values in transitions)))
            ended += episodes
        batch = Transition(*map(np.stack, zip(*steps, strict=True)))
        assert batch.observation[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
        assert batch.next_observation[:, 0].tolist() == [1, 2, 3, 1, 2, 3, 1]
        last = 1.0 if truncates else 0.0
        assert batch.discount.tolist() == [1, 1, last, 1, 1, last, 1]
        assert [tuple(episode) for episode in ended] == [
            (0, 6.0, 3), (1, 6.0, 3), (0, 6.0, 3), (1, 6.0, 3),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("method", "value", "message"),
        [
            ("step", RuntimeError("wheels fell off"), "learner 1 raised at a step: .*wheels"),
            ("step", (np.array([np.nan]), 0.0, False, False, {}), "the observation of learner 1's"),
            (
                "step",
                (np.zeros(1), float("inf"), False, False, {}),
                "the reward of learner 1",
            ),
            ("reset", (np.array([np.inf]), {}), "the observation of learner 0's"),
        ],
    )
    def test_trouble_names_the_learner(self, method, value, message):
        def answer(*_, **__):
            if isinstance(value, Exception):
                raise value
            return value

        copies = LocalCopies(lambda: Adapter(Counter()), 2, seed=0)
        if method == "step":
            copies.start()
            copies.envs[1].env.step = answer
        else:
            copies.envs[0].env.reset = answer
        with pytest.raises(TrainingStopped, match=message):
            copies.start() if method == "reset" else copies.step(np.zeros((2, 2)), np.arange(2))

    def test_only_active_copies_step(self):
        copies = LocalCopies(lambda: Adapter(Counter(3)), 3, seed=0)
        copies.start()
        actions = np.zeros((3, 2), np.float32)
        copies.step(actions, np.arange(3))
        transitions, episodes = copies.step(actions, np.array([0, 2]))
        assert transitions.observation.shape == (2, 1)
        assert transitions.reward.tolist() == [2, 2]
        assert copies.observations[:, 0].tolist() == [2, 1, 2]
        assert copies.lengths.tolist() == [2, 1, 2]
        assert episodes == []
        _, episodes = copies.step(actions, np.array([2]))
        assert [episode.copy for episode in episodes] == [2]
        assert copies.observations[:, 0].tolist() == [2, 1, 0]

    def test_transitions_keep_the_final_observation_after_the_reset(self):
        copies = LocalCopies(lambda: Adapter(Counter(1)), 2, seed=0)
        copies.start()
        transitions, episodes = copies.step(np.zeros((2, 2), np.float32), np.arange(2))
        assert len(episodes) == 2
        assert transitions.next_observation[:, 0].tolist() == [1, 1]
        assert copies.observations[:, 0].tolist() == [0, 0]
