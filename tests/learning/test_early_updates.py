"""Updates and actions that are computed while the environments step."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.envs import make_env
from p3s.experience import Batches
from p3s.learning.updater import Updater
from p3s.train import Training
from tests.helpers import assert_same_bits, leaves, small_config, small_training


class Watch:
    """Notes which updates were done early, and whether the next actions were too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.early: set[tuple[int, int]] = set()
        self.acted: set[bool] = set()
        run_ahead, update = Updater.run_ahead, Updater.update

        def watched_run_ahead(updater: Updater, due: int, num_pending: int) -> None:
            run_ahead(updater, due, num_pending)
            self.early.add((due, updater._done_early))

        def watched_update(updater: Updater, due: int, observations: np.ndarray) -> None:
            update(updater, due, observations)
            if due:
                self.acted.add(updater._acted_ahead is not None)

        monkeypatch.setattr(Updater, "run_ahead", watched_run_ahead)
        monkeypatch.setattr(Updater, "update", watched_update)


def finished(overlap: bool, steps: int = 1200, **fields) -> Training:
    """A run without a folder, at its end."""
    config = small_config(**{"steps": steps, "evaluation_period": 0, **fields})
    training = Training(config, lambda: make_env(config.env), overlap=overlap)
    training.run(steps)
    training.close()
    return training


class TestEarlyUpdates:
    """Updates and actions that are computed beside the step before them."""

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            pytest.param({"updates_per_step": 3, "buffer_size": 300}, marks=pytest.mark.slow),
            {"updates_per_step": "N"},
            pytest.param({"n_step": 3}, marks=pytest.mark.slow),
            pytest.param(
                {"algorithm": "sac", "normalize_observations": True}, marks=pytest.mark.slow
            ),
            {"buffer_size": 40, "batch_size": 32},
        ],
        ids=str,
    )
    def test_give_what_waiting_gives(self, fields, monkeypatch):
        watch = Watch(monkeypatch)
        early = finished(True, **fields)
        due = {"N": 4}.get(fields.get("updates_per_step"), fields.get("updates_per_step", 1))
        crowded = fields.get("batch_size") == 32  # every minibatch needs one of the pending rows
        assert watch.early == {(0, 0), (due, 0), *(() if crowded else {(due, due)})}
        # Normalized observations have to be counted first, and policy updates change the policies.
        assert watch.acted == ({False} if due > 1 or "algorithm" in fields else {True, False})
        watch = Watch(monkeypatch)
        waiting = finished(False, **fields)
        assert watch.early == {(0, 0), (due, 0)}
        assert watch.acted == {False}
        assert early.counters.updates == due * (300 - 19)
        assert_same_bits(early, waiting)

    def test_long_patterns_are_worked_off_in_runs(self):
        """Nine value updates and one with a policy step: two programs, and the same bits."""
        fields = {"updates_per_step": 10, "policy_period": 10, "steps": 300}
        early, waiting = (finished(overlap, **fields) for overlap in (True, False))
        assert early.counters.updates == 10 * (75 - 19)
        patterns = set(early.crew.updater.program._compiled.stretches)
        assert {pattern for pattern, *_ in patterns} == {(False,) * 9, (True,)}
        assert_same_bits(early, waiting)

    @pytest.mark.parametrize(
        ("scheme", "fields"),
        [
            ("p3s", {"preset": "authors"}),
            pytest.param("cem", {}, marks=pytest.mark.slow),
            pytest.param("rollout", {}, marks=pytest.mark.slow),
        ],
    )
    def test_every_kind_of_scheme(self, scheme, fields):
        early, waiting = (finished(overlap, scheme=scheme, **fields) for overlap in (True, False))
        assert early.counters.updates > 0
        assert_same_bits(early, waiting)

    def test_a_value_update_does_not_touch_the_policies(self):
        training = small_training(steps=400)
        training.run(400)
        program, state = training.crew.updater.program, training.crew.updater.state
        rows = training.experience.ring.sample(np.random.default_rng(0), (4, 16))
        stepped, _ = program.learn(state, [Batches(rows, None)], 1, (False,))

        def touched(before, after):
            return {a is not b for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)}

        assert touched(state.learners.policy, stepped.learners.policy) == {False}
        assert touched(state.guide, stepped.guide) == {False}
        assert touched(state.learners.value, stepped.learners.value) == {True}
        moved, _ = program.learn(stepped, [Batches(rows, None)], 2, (True,))
        assert touched(stepped.learners.policy, moved.learners.policy) == {True}
        assert touched(stepped.guide, moved.guide) == {False}
        training.close()

    def test_a_stretch_of_updates_is_as_many_single_ones(self):
        """Patterns that repeat are looped over; the numbers are those of one call each."""
        pattern = (False, True, False, True)
        results = []
        for stretches in ([4], [2, 2], [1, 1, 1, 1]):
            training = small_training(steps=200)
            training.run(200)
            program, state = training.crew.updater.program, training.crew.updater.state
            first = 1001
            for count in stretches:
                batches = [training.experience.take(first + i, 4, 0) for i in range(count)]
                start = first - 1001
                own = pattern[start : start + count]
                state, _ = program.learn(state, batches, first, own)
                first += count
            results.append(leaves(state))
            training.close()
        for other in results[1:]:
            for ours, theirs in zip(results[0], other, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
