"""The replay: rows stay whole, samples are fair, memory is checked."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.errors import UserError
from p3s.experience.normalization import NoNormalizer
from p3s.experience.replay import Replay, Ring, check_memory, memory_needed
from p3s.experience.rows import empty_rows, pack, unpack_transitions
from p3s.types import EnvSpec, ObservationSpec, Transition

SPEC = EnvSpec.flat(2, 1)
IMAGES = EnvSpec(ObservationSpec((84, 84, 4), "uint8"), 6, discrete=True)


def ring(capacity: int, spec: EnvSpec = SPEC) -> Ring:
    return Ring(empty_rows(capacity, spec))


def replay(capacity: int, spec: EnvSpec = SPEC, batch_size: int = 4) -> Replay:
    return Replay(capacity, spec, batch_size, seed=0, normalizer=NoNormalizer())


def stamped(ids: np.ndarray) -> Transition:
    """Transitions whose every field carries the transition's number."""
    column = ids[:, None].astype(np.float32)
    return Transition(
        np.hstack([column, column + 0.1]), column + 0.2, ids + 0.3, ids + 0.4,
        np.hstack([column + 0.5, column + 0.6]),
    )  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_rows_stay_together_across_the_wrap(chunk: int):
    filled = replay(10)
    for start in range(0, 24, chunk):
        filled.add(stamped(np.arange(start, min(start + chunk, 24))), range(chunk), [])
    assert filled.ring.size == 10
    batch = unpack_transitions(SPEC, filled.ring.sample(np.random.default_rng(0), (500,)))
    ids = batch.observation[:, 0]
    assert set(ids) == set(range(14, 24))
    for values, offset in (
        (batch.observation[:, 1], 0.1), (batch.action[:, 0], 0.2), (batch.reward, 0.3),
        (batch.discount, 0.4), (batch.next_observation[:, 0], 0.5),
        (batch.next_observation[:, 1], 0.6),
    ):  # fmt: skip
        np.testing.assert_allclose(values, ids + offset, atol=1e-5)


def test_samples_only_what_was_added_and_all_of_it():
    filled = ring(1000)
    filled.add(pack(SPEC, stamped(np.arange(5))))
    sample = filled.sample(np.random.default_rng(0), (3, 100))
    assert sample.shape == (3, 100, filled.rows.shape[1])
    assert set(sample[..., 0].ravel()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("steps", [3, 40])
@pytest.mark.parametrize("num_pending", [0, 3])
def test_own_rows_are_those_of_their_writer(steps: int, num_pending: int):
    """Row k is writer k modulo 3's; the ring of 50 wraps within a step."""
    filled = ring(50)
    filled.add(pack(SPEC, stamped(np.arange(3 * steps))))
    draws = [
        filled.draw(np.random.default_rng(seed), (3, 3), num_pending, num_own=2)
        for seed in range(2000)
    ]
    places = np.concatenate([draw for draw in draws if draw is not None], axis=1)
    ids = filled.rows[places, 0].reshape(3, -1, 3)
    kept = range(max(0, 3 * steps + num_pending - 50), 3 * steps)
    for writer, own in enumerate(ids[..., :2]):
        assert set(own.ravel()) == {k for k in kept if k % 3 == writer}
    assert set(ids[..., 2:].ravel()) == set(kept)


def test_an_update_draws_by_its_number_alone():
    ours, theirs = replay(100), replay(100)
    for index in range(0, 30, 5):
        ours.add(stamped(np.arange(index, index + 5)), range(5), [])
        theirs.add(stamped(np.arange(index, index + 5)), range(5), [3])
        ours.take(index, 2, num_pending=0)
    ours, theirs = (one.take(7, 3, num_pending=0) for one in (ours, theirs))
    assert ours.rows.shape[:2] == (3, 4)
    assert np.array_equal(ours.rows, theirs.rows)


def test_discrete_actions_come_back_as_integers():
    spec = EnvSpec.flat(1, 4, discrete=True)
    ones = np.ones((2, 1), np.float32)
    rows = pack(spec, Transition(ones, np.array([3, 0]), ones[:, 0], ones[:, 0], ones))
    action = unpack_transitions(spec, rows).action
    assert action.dtype == np.int32
    assert action.tolist() == [3, 0]


def test_memory_is_said_and_checked():
    spec = EnvSpec.flat(17, 6)
    assert memory_needed(1_000_000, spec) == 1_000_000 * 42 * 4
    assert replay(1000, spec).ring.rows.nbytes == memory_needed(1000, spec)
    assert "168 MB" in check_memory(1_000_000, spec)
    with pytest.raises(UserError, match=r"--buffer-size \d+ would fit"):
        check_memory(10**13, spec)


def test_memory_of_images_is_one_byte_a_pixel():
    # Two images, and action, reward and discount of 4 bytes each.
    assert memory_needed(1, IMAGES) == 2 * 84 * 84 * 4 + 3 * 4
    small = replay(1000, IMAGES)
    assert small.ring.rows.nbytes == memory_needed(1000, IMAGES)
    assert small.describe() == "replay: 1,000 transitions, up to 56 MB"


@pytest.mark.parametrize("added", [0, 5, 17, 20, 33])
def test_a_sample_is_drawn_as_if_the_rows_to_come_were_there(added):
    filled = ring(20, EnvSpec.flat(1, 1))
    filled.rows[:] = np.arange(20)[:, None]
    found = set()
    for seed in range(60):
        filled.num_added = added
        before = filled.sample(np.random.default_rng(seed), (3,), num_pending=3)
        filled.num_added = added + 3
        after = filled.sample(np.random.default_rng(seed), (3,))
        new = {(added + index) % 20 for index in range(3)}
        if new & set(after[:, 0].astype(int).tolist()):
            assert before is None
        else:
            assert np.array_equal(before, after)
        found.add(before is None)
    assert found == ({True} if added == 0 else {True, False})
