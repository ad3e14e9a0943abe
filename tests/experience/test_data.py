"""Data from before the run: their share of minibatches, their order, and the replay they fill."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.errors import UserError
from p3s.experience.credit import Credit
from p3s.experience.data import Data
from p3s.experience.episode_links import NONE
from p3s.experience.normalization import NoNormalizer
from p3s.experience.replay import Replay
from p3s.experience.reward_scale import RewardScale
from p3s.experience.rows import fields, pack, unpack_transitions
from p3s.types import EnvSpec, Transition

SPEC = EnvSpec.flat(1, 1)


def steps(first: float, count: int, ends: bool = False) -> Transition:
    """Steps in order, each 1 on from the one before, paid what they began with."""
    seen = first + np.arange(count, dtype=np.float32)[:, None]
    discounts = np.ones(count, np.float32)
    discounts[-1] = not ends
    return Transition(seen, 0 * seen, seen[:, 0], discounts, seen + 1)


def make_data(*episodes: Transition) -> Data:
    rows = np.concatenate([pack(SPEC, episode) for episode in episodes])
    following = np.arange(1, len(rows) + 1)
    following[np.cumsum([len(episode.reward) for episode in episodes]) - 1] = NONE
    return Data(SPEC, rows, following, "demonstrations.npz")


def make_replay(data: Data | None = None, share: float = 0.5, **fields) -> Replay:
    replay = Replay(50, SPEC, 8, 0, NoNormalizer(), **fields, data=data, data_share=share)
    for k in range(6):  # two copies
        seen = np.array([[k], [k + 20]], np.float32)
        ones = np.ones(2, np.float32)
        replay.add(Transition(seen, 0 * seen, ones, ones, seen + 1), [0, 1], [])
    return replay


def taken(replay: Replay, update: int = 1, num_batches: int = 2) -> np.ndarray:
    return fields(replay.take(update, num_batches, 0).rows, SPEC)


class TestShare:
    @pytest.mark.parametrize(("share", "count"), [(0.5, 4), (0.25, 2), (0.8, 6), (1.0, 8)])
    def test_it_is_exact_in_every_minibatch(self, share, count):
        replay = make_replay(make_data(steps(100, 5)), share)
        for update in range(20):
            from_data = taken(replay, update)["observation"][..., 0] >= 100
            assert (from_data.sum(axis=1) == count).all()

    def test_all_are_drawn_and_none_is_overwritten(self):
        replay = make_replay(make_data(steps(100, 5)))
        for k in range(200):
            ones = np.ones(1, np.float32)
            replay.add(Transition([[k]], [[0]], ones, ones, [[k + 1]]), [0], [])
        drawn = {x for u in range(30) for x in taken(replay, u)["observation"].ravel().tolist()}
        assert {x for x in drawn if x < 105 and x >= 100} == {100, 101, 102, 103, 104}

    def test_learners_draw_the_same_wherever_they_are(self):
        data = make_data(steps(100, 9))
        whole = taken(make_replay(data), num_batches=4)
        part = taken(make_replay(data, own=slice(1, 3)), num_batches=4)
        assert np.array_equal(part, whole[1:3])

    def test_the_rest_may_come_from_learners_own_rows(self):
        rows = taken(make_replay(make_data(steps(100, 5)), own_share=1.0))
        seen = rows["observation"][..., 0]
        assert (seen[0, :4] < 20).all()
        assert ((seen[1, :4] >= 20) & (seen[1, :4] < 100)).all()
        assert (seen[:, 4:] >= 100).all()

    def test_pending_rows_matter_to_the_rest_only(self):
        data = make_data(steps(100, 5))
        ahead = [make_replay(data, 1.0).take(update, 2, num_pending=2) for update in range(9)]
        assert None not in ahead, "all of a minibatch from the data: no pending row is needed"
        some = [make_replay(data).take(update, 2, num_pending=2) for update in range(9)]
        assert None in some

    def test_rewards_are_scaled_like_the_others(self):
        scale = RewardScale(0.9)
        replay = make_replay(make_data(steps(100, 5)), reward_scale=scale)
        rows = taken(replay)
        paid = rows["observation"][:, 4:, 0] / scale.divisor(False)
        assert rows["reward"][:, 4:] == pytest.approx(paid)

    def test_the_largest_reward_may_be_among_them(self):
        assert make_replay(make_data(steps(100, 5))).largest_reward() == 104
        assert make_replay().largest_reward() == 1


class TestSeveralSteps:
    def test_returns_follow_the_order_of_the_data(self):
        data = make_data(steps(100, 3, ends=True), steps(200, 2))
        replay = make_replay(data, 1.0, num_steps=2)
        found = {}
        for update in range(20):
            batch = unpack_transitions(SPEC, replay.take(update, 1, 0).rows[0])
            for seen, *rest in zip(
                batch.observation[:, 0].tolist(),
                batch.reward.tolist(),
                batch.discount.tolist(),
                batch.next_observation[:, 0].tolist(),
                strict=True,
            ):
                found[seen] = rest
        assert found == {
            100: [[100, 101], [0, 1], 102],
            101: [[101, 102], [0, 0], 103],
            102: [[102, 0], [0, 0], 103],
            200: [[200, 201], [0, 1], 202],
            201: [[201, 0], [1, 0], 202],
        }


class TestFilling:
    def test_they_are_the_latest_rows(self):
        replay = make_replay()
        replay.fill(make_data(steps(100, 45)))
        seen = fields(replay.ring.rows, SPEC)["observation"][:, 0]
        assert replay.ring.num_added == 57
        assert seen[:7].tolist() == list(range(138, 145)), "around the end of the ring"
        assert seen[12:50].tolist() == list(range(100, 138))
        assert seen[7:12].tolist() == [23, 4, 24, 5, 25]

    def test_returns_of_several_steps_know_their_order(self):
        replay = Replay(50, SPEC, 8, 0, NoNormalizer(), num_steps=2)
        replay.fill(make_data(steps(100, 3), steps(200, 2)))
        ones = np.ones(1, np.float32)
        replay.add(Transition([[5]], [[0]], ones, ones, [[6]]), [0], [])
        batch = [unpack_transitions(SPEC, replay.take(u, 1, 0).rows[0]) for u in range(20)]
        pairs = {
            (seen, then)
            for each in batch
            for seen, then in zip(
                each.observation[:, 0].tolist(), each.next_observation[:, 0].tolist(), strict=True
            )
        }
        assert pairs == {(100, 102), (101, 103), (102, 103), (200, 202), (201, 202), (5, 6)}

    def test_credit_is_for_their_episodes(self):
        credit = Credit(50, None, 0)
        replay = Replay(50, SPEC, 8, 0, NoNormalizer(), bags=credit)
        replay.fill(make_data(steps(100, 3), steps(200, 2)))
        taken(replay)
        assert credit.credits[:5].tolist() == [101, 101, 101, 200.5, 200.5]


class TestResume:
    def test_the_same_go_on_and_others_are_refused(self):
        data = make_data(steps(100, 5))
        values = make_replay(data).snapshot()
        make_replay(make_data(steps(100, 5))).resume(values)
        for other in (steps(100, 4), steps(101, 5)):
            with pytest.raises(UserError, match=r"demonstrations\.npz is not what it was when"):
                make_replay(make_data(other)).resume(values)
        with pytest.raises(UserError, match="is not what it was"):
            make_replay(make_data(steps(100, 3), steps(103, 2))).resume(values)

    def test_a_run_without_data_keeps_no_more_than_before(self):
        assert make_replay().snapshot() == {}
