"""The replay, and what the collector puts into it."""

from __future__ import annotations

import numpy as np
import pytest

from p3s import keys
from p3s.envs import Adapter
from p3s.envs.copies import Collector
from p3s.errors import TrainingStopped, UserError
from p3s.experience.replay import Replay, check_memory, memory_needed
from p3s.types import EnvSpec, Transition, pack, unpack

from .test_envs import Counter

SPEC = EnvSpec(2, 1)


def stamped(ids: np.ndarray) -> np.ndarray:
    """Rows whose every field carries the row's number."""
    rows = np.empty((len(ids), SPEC.row_size), np.float32)
    column = ids[:, None].astype(np.float32)
    pack(SPEC, Transition(
        np.hstack([column, column + 0.1]), column + 0.2, ids + 0.3, ids + 0.4,
        np.hstack([column + 0.5, column + 0.6]),
    ), rows)  # fmt: skip
    return rows


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_rows_stay_together_across_the_wrap(chunk: int):
    replay = Replay(10, SPEC)
    for start in range(0, 24, chunk):
        replay.add(stamped(np.arange(start, min(start + chunk, 24))))
    assert replay.size == 10
    batch = unpack(SPEC, replay.sample(np.random.default_rng(0), (500,)))
    ids = batch.observation[:, 0]
    assert set(ids) == set(range(14, 24))
    for values, offset in (
        (batch.observation[:, 1], 0.1), (batch.action[:, 0], 0.2), (batch.reward, 0.3),
        (batch.discount, 0.4), (batch.next_observation[:, 0], 0.5),
        (batch.next_observation[:, 1], 0.6),
    ):  # fmt: skip
        np.testing.assert_allclose(values, ids + offset, atol=1e-5)


def test_samples_only_what_was_added_and_all_of_it():
    replay = Replay(1000, SPEC)
    replay.add(stamped(np.arange(5)))
    sample = replay.sample(np.random.default_rng(0), (3, 100))
    assert sample.shape == (3, 100, SPEC.row_size)
    assert set(sample[..., 0].ravel()) == {0, 1, 2, 3, 4}


def test_discrete_actions_come_back_as_integers():
    spec = EnvSpec(1, 4, discrete=True)
    rows = np.empty((2, spec.row_size), np.float32)
    ones = np.ones((2, 1), np.float32)
    pack(spec, Transition(ones, np.array([3, 0]), ones[:, 0], ones[:, 0], ones), rows)
    action = unpack(spec, rows).action
    assert action.dtype == np.int32
    assert action.tolist() == [3, 0]


def test_memory_is_said_and_checked():
    assert memory_needed(1_000_000, EnvSpec(17, 6)) == 1_000_000 * 42 * 4
    assert Replay(1000, EnvSpec(17, 6)).rows.nbytes == memory_needed(1000, EnvSpec(17, 6))
    assert "168 MB" in check_memory(1_000_000, EnvSpec(17, 6))
    with pytest.raises(UserError, match=r"--buffer-size \d+ would fit"):
        check_memory(10**13, EnvSpec(17, 6))


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


def test_streams_do_not_depend_on_call_order():
    first = keys.generator(1, "a", 5).random(3)
    keys.generator(1, "b", 5).random(3)
    assert (keys.generator(1, "a", 5).random(3) == first).all()
    for other in (keys.generator(2, "a", 5), keys.generator(1, "b", 5), keys.generator(1, "a", 6)):
        assert (other.random(3) != first).all()
