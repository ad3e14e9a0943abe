"""Copies of an environment: what they hand to the replay, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.envs import Adapter
from p3s.envs.copies import Collector
from p3s.errors import TrainingStopped
from p3s.types import unpack
from tests.helpers import Counter


class TestCollector:
    @pytest.mark.parametrize("truncates", [False, True])
    def test_no_transition_crosses_a_reset(self, truncates: bool):
        collector = Collector(lambda: Adapter(Counter(3, truncates)), 2, seed=0)
        collector.start()
        rows, ended = [], []
        for _ in range(7):
            new, episodes = collector.step(np.zeros((2, 2), np.float32), np.arange(2))
            rows.append(new[0])
            ended += episodes
        batch = unpack(collector.spec, np.stack(rows))
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

        collector = Collector(lambda: Adapter(Counter()), 2, seed=0)
        if method == "step":
            collector.start()
            collector.envs[1].env.step = answer
        else:
            collector.envs[0].env.reset = answer
        with pytest.raises(TrainingStopped, match=message):
            collector.start() if method == "reset" else collector.step(
                np.zeros((2, 2)), np.arange(2)
            )
