"""An interrupted run continues to the bit."""

from __future__ import annotations

import shutil
import signal
import subprocess
from functools import partial

import numpy as np
import pytest

from p3s.errors import UserError
from p3s.experience.rows import fields as row_fields
from p3s.population import Population
from p3s.runs import opening
from p3s.schemes import SCHEMES
from tests.helpers import (
    SMALL,
    Counter,
    Unpicklable,
    p3s_process,
    record,
    resume,
    run,
    small_config,
    wait_for,
)

FOR_FILES = ("p3s", "cem", "rollout")
"""A scheme of every kind."""


class TestExactResume:
    @pytest.mark.parametrize(
        ("env", "preset"), [("InvertedPendulum-v5", "paper"), ("Pendulum-v1", "authors")]
    )
    def test_interrupted_equals_uninterrupted(self, tmp_path, env, preset):
        run(tmp_path / "whole", env=env, preset=preset)
        # Stops between checkpoints: what was written after the last one must be written again.
        run(tmp_path / "parts", until=330, env=env, preset=preset)
        resume(tmp_path / "parts", until=570)
        resume(tmp_path / "parts")
        assert record(tmp_path / "parts") == record(tmp_path / "whole")

    @pytest.mark.parametrize(
        "scheme",
        [
            # All of them are resumed in ../test_train.py, without files.
            pytest.param(name, marks=[] if name in FOR_FILES else [pytest.mark.slow])
            for name in sorted(SCHEMES)
        ],
    )
    def test_every_scheme(self, tmp_path, scheme):
        fields = {"scheme": scheme}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "parts", until=330, **fields)
        resume(tmp_path / "parts")
        assert record(tmp_path / "parts") == record(tmp_path / "whole")

    @pytest.mark.slow
    def test_delayed_rewards_and_a_full_buffer(self, tmp_path):
        fields = {"env": "Delayed Ant-v1", "buffer_size": 300, "evaluation_episodes": 1}
        fields["evaluation_period"] = 800
        run(tmp_path / "whole", **fields)
        run(tmp_path / "parts", until=550, **fields)
        resume(tmp_path / "parts")
        assert record(tmp_path / "parts") == record(tmp_path / "whole")

    def test_before_the_first_checkpoint(self, tmp_path):
        run(tmp_path / "whole")
        training = opening.begin(small_config(steps=800, checkpoint_period=100), tmp_path / "parts")
        training.run(800, callback=lambda now: now.total_steps < 60)
        training.close()
        assert resume(tmp_path / "parts") == ["no checkpoint yet: starting from the beginning"]
        assert record(tmp_path / "parts") == record(tmp_path / "whole")

    def test_extended(self, tmp_path):
        run(tmp_path / "whole")
        config = small_config(steps=400, checkpoint_period=100)
        training = opening.begin(config, tmp_path / "parts")
        training.run(400)
        training.close()
        training, _ = opening.reopen(tmp_path / "parts", steps=800)
        assert training.options.steps == 800
        training.run(800)
        training.close()
        assert record(tmp_path / "parts") == record(tmp_path / "whole")
        assert opening.load_config(tmp_path / "parts").options.steps == 800

    def test_environment_that_cannot_be_captured_begins_new_episodes(self, tmp_path):
        population = Population(Unpicklable, **{**SMALL, "evaluation_period": 0})
        population.learn(160, progress_bar=False)
        assert not population.training.crew.environments.exact_resume
        population.save(tmp_path / "saved")
        with pytest.raises(UserError, match="callable"):
            Population.load(tmp_path / "saved")
        again = Population.load(tmp_path / "saved", env=Unpicklable)
        again.learn(40, progress_bar=False)
        assert again.num_steps == 200
        assert again.training.crew.environments.lengths.tolist() == [10] * 4

    def test_a_callable_keeps_its_delay(self, tmp_path):
        fields = {**SMALL, "evaluation_period": 0}
        population = Population(partial(Counter, length=50), delay=5, **fields)
        population.learn(40, progress_bar=False)
        population.save(tmp_path / "saved")
        again = Population.load(tmp_path / "saved", env=partial(Counter, length=50))
        again.learn(160, progress_bar=False)
        rows = again.training.experience.ring.rows[:200]
        rewards = row_fields(rows, again.training.spec)["reward"]
        assert np.count_nonzero(rewards[:40]) == np.count_nonzero(rewards[40:80]) == 8
        assert np.count_nonzero(rewards) == 40

    def test_a_population_saved_over_another_replaces_it(self, tmp_path):
        for steps in (400, 200):
            population = Population("InvertedPendulum-v5", **SMALL)
            population.learn(steps, progress_bar=False).save(tmp_path / "saved")
        assert Population.load(tmp_path / "saved").num_steps == 200

    def test_only_one_process_writes(self, tmp_path):
        first = opening.begin(small_config(steps=400), tmp_path / "run")
        first.run(200)
        first.checkpoint()
        with pytest.raises(UserError, match="another process trains this run"):
            opening.reopen(tmp_path / "run")
        being_written = tmp_path / "run" / "checkpoints" / ".tmp-step-000000000300"
        being_written.mkdir()
        assert Population.load(tmp_path / "run").num_steps == 200
        assert being_written.exists()
        first.close()
        again, _ = opening.reopen(tmp_path / "run")
        assert not being_written.exists()
        again.close()

    def test_a_complete_run_without_checkpoints_keeps_its_records(self, tmp_path):
        training = opening.begin(small_config(steps=400), tmp_path / "run")
        training.run(400)
        training.close()
        shutil.rmtree(tmp_path / "run" / "checkpoints")
        before = record(tmp_path / "run")
        with pytest.raises(UserError, match="complete and its checkpoints are gone"):
            opening.reopen(tmp_path / "run")
        assert record(tmp_path / "run") == before

    def test_records_that_lost_rows_are_not_filled_up(self, tmp_path):
        training = opening.begin(small_config(steps=400), tmp_path / "run")
        training.run(400)
        training.close()
        (tmp_path / "run" / "metrics.jsonl").unlink()
        with pytest.raises(UserError, match=r"metrics\.jsonl is shorter than at the checkpoint"):
            opening.reopen(tmp_path / "run", steps=800)
        assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == b""
        with pytest.raises(UserError, match="holds a run with its records"):
            Population("InvertedPendulum-v5", **SMALL).save(tmp_path / "run")

    def test_not_to_fewer_steps_than_there_are(self, tmp_path):
        training = opening.begin(small_config(steps=400), tmp_path / "run")
        training.run(200)
        training.checkpoint()
        training.close()
        with pytest.raises(UserError, match="has 200 steps already, not 100"):
            opening.reopen(tmp_path / "run", steps=100)
        assert opening.load_config(tmp_path / "run").options.steps == 400
        opening.reopen(tmp_path / "run", steps=300)[0].close()
        assert opening.load_config(tmp_path / "run").options.steps == 300

    def test_terminated(self, tmp_path, run_arguments):
        """SIGTERM writes a checkpoint where it stops, and says how to go on."""
        run_path = tmp_path / "run"
        process = p3s_process(
            "train", "InvertedPendulum-v5", "--steps", "1000000", *run_arguments,
            "--checkpoint-period", "0", "--out", run_path, stdout=subprocess.PIPE,
        )  # fmt: skip
        wait_for(run_path / "metrics.jsonl", process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM
        assert f"p3s resume {run_path}" in output
        (checkpoint,) = (run_path / "checkpoints").iterdir()
        training, _ = opening.reopen(run_path)
        training.close()
        assert f"step-{training.total_steps:012d}" == checkpoint.name
