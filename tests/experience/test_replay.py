"""The replay: rows stay whole, samples are fair, memory is checked."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.errors import UserError
from p3s.experience.replay import Replay, check_memory, memory_needed
from p3s.types import EnvSpec, Transition, pack, unpack

SPEC = EnvSpec.flat(2, 1)


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
    spec = EnvSpec.flat(1, 4, discrete=True)
    rows = np.empty((2, spec.row_size), np.float32)
    ones = np.ones((2, 1), np.float32)
    pack(spec, Transition(ones, np.array([3, 0]), ones[:, 0], ones[:, 0], ones), rows)
    action = unpack(spec, rows).action
    assert action.dtype == np.int32
    assert action.tolist() == [3, 0]


def test_memory_is_said_and_checked():
    assert memory_needed(1_000_000, EnvSpec.flat(17, 6)) == 1_000_000 * 42 * 4
    assert Replay(1000, EnvSpec.flat(17, 6)).rows.nbytes == memory_needed(1000, EnvSpec.flat(17, 6))
    assert "168 MB" in check_memory(1_000_000, EnvSpec.flat(17, 6))
    with pytest.raises(UserError, match=r"--buffer-size \d+ would fit"):
        check_memory(10**13, EnvSpec.flat(17, 6))


@pytest.mark.parametrize("added", [0, 5, 17, 20, 33])
def test_a_sample_is_drawn_as_if_the_rows_to_come_were_there(added):
    replay = Replay(20, EnvSpec.flat(1, 1))
    replay.rows[:] = np.arange(20)[:, None]
    found = set()
    for seed in range(60):
        replay.num_added = added
        before = replay.sample(np.random.default_rng(seed), (3,), coming=3)
        replay.num_added = added + 3
        after = replay.sample(np.random.default_rng(seed), (3,))
        new = {(added + index) % 20 for index in range(3)}
        if new & set(after[:, 0].astype(int).tolist()):
            assert before is None
        else:
            assert np.array_equal(before, after)
        found.add(before is None)
    assert found == ({True} if added == 0 else {True, False})
