"""Learners that diverge: named within a period; the run stops, or they are replaced."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from p3s.errors import TrainingStopped, UserError
from p3s.learning.divergence import diverged_learners
from p3s.runs import opening
from p3s.train import Training
from p3s.trees import trained
from tests.helpers import assert_same_bits, call, leaves, record, small_config, small_training
from tests.helpers_faults import learner_leaves, poison


def collect_rows(training: Training) -> list[dict]:
    rows: list[dict] = []
    training.folder.append = lambda stream, row: rows.append(row) if stream == "lineage" else None
    return rows


class TestStop:
    @pytest.mark.parametrize("part", ["policy", "value"])
    def test_the_learner_is_named_within_a_period(self, part):
        training = small_training(evaluation_period=0)
        training.run(200)
        poison(training, 2, part)
        with pytest.raises(TrainingStopped, match="learner 2"):
            training.run(200 + 4 * training.scheme.review_period)

    def test_the_last_checkpoint_is_one_to_go_on_from(self, tmp_path, capsys):
        """Parameters that the last update spoiled are not written."""
        config = small_config(steps=400, checkpoint_period=100, evaluation_period=0)
        training = opening.begin(config, tmp_path / "run")
        training.run(400, callback=lambda now: now.total_steps < 280)
        poison(training, 1, "value")
        with pytest.raises(TrainingStopped, match="parameters of learner 1 are not finite"):
            training.checkpoint()
        training.close()
        assert call(capsys, "resume", tmp_path / "run", "--no-report")[0] == 0


class TestReplace:
    @pytest.fixture(scope="class")
    def training(self):
        training = small_training(on_divergence="replace", evaluation_period=0, num_learners=3)
        training.run(300)
        return training

    def test_the_others_are_untouched_to_the_bit(self, training, capsys):
        before = [learner_leaves(training, learner) for learner in range(3)]
        training.returns.values[:] = np.array([1.0, 2.0, 9.0])[:, None]
        poison(training, 2)
        rows = collect_rows(training)
        training.check_learners()
        assert rows == [{"step": 300, "replaced": [2], "source": 1}]
        assert "learner 2 diverged at total step 300: replaced by" in capsys.readouterr().err
        for learner in (0, 1):
            for leaf, old in zip(learner_leaves(training, learner), before[learner], strict=True):
                np.testing.assert_array_equal(leaf, old)
        learners = training.crew.updater.state.learners
        for leaf in leaves(learners.value):
            np.testing.assert_array_equal(leaf[2], leaf[1])
        for leaf in leaves(trained(learners.policy)):
            assert np.isfinite(leaf).all()
            assert not np.array_equal(leaf[2], leaf[1])
            np.testing.assert_allclose(leaf[2], leaf[1], atol=0.2 * np.abs(leaf[1]).max() + 1e-6)
        assert np.isnan(training.returns.values[2]).all()

    def test_the_run_goes_on_and_the_lineage_says_so(self, training, capsys):
        rows = collect_rows(training)
        poison(training, 0)
        training.run(training.total_steps + 3 * training.scheme.review_period)
        (found,) = [row for row in rows if "replaced" in row]
        assert found["replaced"] == [0]
        assert diverged_learners(training.scheme, training.crew.updater.state) == []

    def test_a_value_function(self, training, capsys):
        rows = collect_rows(training)
        poison(training, 1, "value", jnp.inf)
        training.run(training.total_steps + 3 * training.scheme.review_period)
        assert [row["replaced"] for row in rows if "replaced" in row] == [[1]]

    def test_all_of_them(self, training, capsys):
        for learner in range(3):
            poison(training, learner)
        with pytest.raises(TrainingStopped, match="of all learners are not finite"):
            training.run(training.total_steps + 3 * training.scheme.review_period)

    def test_needs_others(self):
        for fields in ({"scheme": "single"}, {"num_learners": 1}, {"scheme": "cem"}):
            with pytest.raises(UserError, match="needs several learners"):
                small_training(on_divergence="replace", **fields)


@pytest.mark.parametrize("scheme", ["p3s", pytest.param("pbt", marks=pytest.mark.slow)])
def test_a_replacement_does_not_depend_on_what_overlaps(scheme, capsys):
    runs = []
    for overlap in (True, False):
        config = small_config(scheme=scheme, on_divergence="replace", evaluation_period=0)
        made = opening.env_maker(config)
        training = Training(config, made, overlap=overlap)
        training.run(200)
        poison(training, 3, "value")
        training.run(500)
        runs.append(training)
    assert_same_bits(*runs)


def test_killed_after_a_replacement_and_resumed(tmp_path, capsys):
    fields = {"steps": 600, "checkpoint_period": 100, "on_divergence": "replace"}
    for name, until in (("whole", 600), ("parts", 450)):
        training = opening.begin(small_config(**fields), tmp_path / name)
        training.run(600, callback=lambda now: now.total_steps < 250)
        poison(training, 1)
        training.run(600, callback=lambda now, until=until: now.total_steps < until)
        training.close()
    assert call(capsys, "resume", tmp_path / "parts", "--no-report")[0] == 0
    found = record(tmp_path / "whole")
    assert any(row.get("replaced") == [1] for row in found["lineage"])
    assert record(tmp_path / "parts") == found
    assert call(capsys, "watch", tmp_path / "whole", "--once")[0] == 0


def test_a_replacement_is_not_taken_for_a_review_on_resume(tmp_path, capsys):
    fields = {"review_period": 50, "checkpoint_period": 100, "on_divergence": "replace"}
    fields["evaluation_period"] = 300  # where it is replaced
    training = opening.begin(small_config(steps=600, **fields), tmp_path / "run")
    training.run(600, callback=lambda now: now.total_steps < 250)
    poison(training, 1)
    training.run(600, callback=lambda now: now.total_steps < 300)
    training.close()
    again, _ = opening.reopen(tmp_path / "run")
    again.close()
    assert again.total_steps == 300
    assert "replaced" in record(tmp_path / "run")["lineage"][-1]
    assert again.last_review["step"] == training.last_review["step"] == 200
    assert again.last_review["best"] == training.last_review["best"]
