"""Who acts when, and what is due after a step."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.learning.rhythm import Due, EveryStep, WholeEpisodes


class TestEveryStep:
    def test_updates_begin_with_step_t_initial(self):
        rhythm = EveryStep(num_envs=3, initial_steps=2, updates=4, review_period=5)
        everyone = rhythm.active(1)
        assert everyone.tolist() == [0, 1, 2]
        assert [rhythm.updates_after(step) for step in (1, 2, 3, 4)] == [0, 4, 4, 4]
        due = [rhythm.after(step, everyone, []) for step in range(1, 6)]
        assert due == [Due(), Due(4), Due(4), Due(4), Due(4, review=True)]

    def test_first_review_is_at_t_initial_when_that_is_a_multiple_of_the_period(self):
        rhythm = EveryStep(num_envs=1, initial_steps=6, updates=1, review_period=3)
        due = [rhythm.after(step, rhythm.active(1), []) for step in range(1, 10)]
        assert [step for step, now in enumerate(due, start=1) if now.review] == [6, 9]

    @pytest.mark.parametrize("share", [0.25, 0.1, 1 / 3, 0.75])
    def test_less_than_one_update_per_step_is_exact(self, share):
        rhythm = EveryStep(num_envs=2, initial_steps=6, updates=share, review_period=5)
        due = [rhythm.after(step, rhythm.active(1), []) for step in range(1, 30_001)]
        assert [now.updates for now in due] == [rhythm.updates_after(s) for s in range(1, 30_001)]
        first = int(5 * share)  # those that would have come before T_initial
        assert sum(now.updates for now in due) == round(30_000 * share) - first
        assert {now.updates for now in due} == {0, 1}
        assert [step for step, now in enumerate(due[:20], start=1) if now.review] == [10, 15, 20]
        if share == 0.25:
            assert [step for step in range(1, 17) if due[step - 1].updates] == [8, 12, 16]


class TestWholeEpisodes:
    def test_copies_wait_for_the_others(self):
        rhythm = WholeEpisodes(np.array([1, 2]), initial_total_steps=0, updates_per_step=1)
        assert rhythm.active(100).tolist() == [0, 1]
        assert rhythm.after(1, np.array([0, 1]), [0]) == Due()
        assert rhythm.active(100).tolist() == [1]
        assert rhythm.after(2, np.array([1]), [1]) == Due()
        assert rhythm.active(100).tolist() == [1]
        assert rhythm.after(3, np.array([1]), [1]) == Due(review=True, backlog=4)
        assert rhythm.active(100).tolist() == [0, 1]
        assert rhythm.active(1).tolist() == [0]

    def test_nothing_is_learned_before_the_initial_steps(self):
        rhythm = WholeEpisodes(np.array([1, 1]), initial_total_steps=4, updates_per_step=2)
        both = np.array([0, 1])
        assert rhythm.after(1, both, [0, 1]) == Due(review=True)
        assert rhythm.after(2, both, [0, 1]) == Due(review=True)
        assert rhythm.after(3, both, [0, 1]) == Due(review=True, backlog=4)

    def test_goes_on_from_a_snapshot(self):
        ours, theirs = (WholeEpisodes(np.array([2, 1]), 3, 1) for _ in range(2))
        ours.after(1, np.array([0, 1]), [1])
        theirs.resume({name: array.copy() for name, array in ours.snapshot().items()})
        for step in range(2, 9):
            active = ours.active(9)
            assert active.tolist() == theirs.active(9).tolist()
            ended = active.tolist() if step % 2 else []
            assert ours.after(step, active, ended) == theirs.after(step, active, ended)
