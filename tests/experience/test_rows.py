"""Rows: whatever goes in comes out, in every layout, and stays together in the ring."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.experience.normalization import NoNormalizer
from p3s.experience.replay import Replay
from p3s.experience.rollouts import RolloutBuffer
from p3s.experience.rows import fields, pack, record, unpack_transitions
from p3s.types import EnvSpec, ObservationSpec, Transition

OBSERVATIONS = {
    "vector": ObservationSpec((3,)),
    "image": ObservationSpec((4, 5, 2), "uint8"),
    "odd image": ObservationSpec((3, 3, 1), "uint8"),  # its bytes are not a multiple of four
    "packed": ObservationSpec.packed(2, ((3, 3, 1), (2, 2, 2))),
}
SPECS = [
    pytest.param(EnvSpec(observation, size, discrete), id=f"{name}, {kind}")
    for name, observation in OBSERVATIONS.items()
    for kind, size, discrete in (("discrete", 5, True), ("continuous", 2, False))
]


def stamped(spec: EnvSpec, ids: np.ndarray) -> Transition:
    """Transitions whose every number follows from the transition's own number, below 250."""
    ones = np.ones((len(ids), *spec.observation.shape))
    seen = ones * ids.reshape(-1, *[1] * len(spec.observation.shape))
    action = ids % spec.action_size if spec.discrete else ids[:, None] + [0.25, 0.5]
    dtype = spec.observation.dtype
    return Transition(
        seen.astype(dtype),
        action if spec.discrete else action.astype(np.float32),
        np.float32(ids + 1 / 3),
        np.float32(ids % 2),
        (seen + 5).astype(dtype),
    )


def assert_whole(spec: EnvSpec, found: Transition, ids: np.ndarray) -> None:
    """Every field is that of the transition with this number, to the bit and in its own type."""
    for name, expected in stamped(spec, ids)._asdict().items():
        values = getattr(found, name)
        assert np.array_equal(values, expected), name
        integer = name == "action" and spec.discrete
        assert values.dtype == (np.int32 if integer else expected.dtype), name


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("compiled", [False, True], ids=["host", "device"])
def test_round_trip(spec, compiled):
    ids = np.arange(12)
    rows = pack(spec, stamped(spec, ids))
    assert rows.dtype == spec.observation.dtype
    assert rows.nbytes == 12 * record(spec).itemsize
    read = jax.jit(unpack_transitions, static_argnums=0) if compiled else unpack_transitions
    assert_whole(spec, read(spec, rows), ids)
    batches = read(spec, rows.reshape(3, 4, -1))
    assert batches.observation.shape == (3, 4, *spec.observation.shape)
    assert_whole(spec, jax.tree.map(lambda leaf: leaf.reshape(12, *leaf.shape[2:]), batches), ids)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_every_sampled_row_is_whole_across_the_wrap(spec, chunk):
    replay = Replay(10, spec, batch_size=100, seed=0, normalizer=NoNormalizer())
    for start in range(0, 24, chunk):
        replay.add(stamped(spec, np.arange(start, min(start + chunk, 24))), range(chunk), [])
    batch = replay.take(1, 5, num_pending=0)
    assert batch.rows.shape[:2] == (5, 100)
    found = replay.unpack(spec, batch.rows.reshape(500, -1))
    ids = np.rint(np.asarray(found.reward) - 1 / 3).astype(int)
    assert set(ids) == set(range(14, 24))
    assert_whole(spec, found, ids)


@pytest.mark.parametrize("spec", SPECS)
def test_rollouts_have_the_same_fields_and_two_more(spec):
    latest = RolloutBuffer(spec, padded_to=4, normalizer=NoNormalizer())
    for number in range(5):
        latest.add(stamped(spec, np.array([number])), [0], [0] if number == 2 else [])
        if number == 3:
            again = RolloutBuffer(spec, padded_to=4, normalizer=NoNormalizer())
            again.resume(latest.snapshot())
            latest = again
    (rows,) = latest.take(1, 1, num_pending=0).rows
    assert rows.dtype == spec.observation.dtype
    rollout = latest.unpack(spec, rows)
    assert rollout.ended.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert rollout.present.tolist() == [1] * 5 + [0] * 3
    assert_whole(spec, jax.tree.map(lambda leaf: leaf[:5], rollout.steps), np.arange(5))


@pytest.mark.parametrize("spec", SPECS)
def test_observations_for_the_chief_are_those_of_the_rows(spec):
    replay = Replay(30, spec, batch_size=16, seed=0, normalizer=NoNormalizer())
    replay.add(stamped(spec, np.arange(20)), range(20), [])
    observations = replay.observations(np.random.default_rng(0))
    assert observations.dtype == spec.observation.dtype
    assert observations.shape == (16, *spec.observation.shape)
    ids = observations.reshape(16, -1)[:, 0].astype(int)
    assert np.array_equal(observations, stamped(spec, ids).observation)


@pytest.mark.parametrize("spec", SPECS)
def test_fields_are_the_same_memory(spec):
    rows = pack(spec, stamped(spec, np.arange(3)))
    fields(rows, spec)["reward"][1] = 77
    assert unpack_transitions(spec, rows).reward.tolist() == pytest.approx([1 / 3, 77, 7 / 3])
