"""Run folders: records, checkpoints, exact resume, and what happens to damaged files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from p3s.errors import TrainingStopped, UserError
from p3s.experience.replay import Replay
from p3s.population import Population
from p3s.runs import opening
from p3s.runs.checkpoints import SEGMENT_ROWS, Checkpoints, Snapshot, _unchanged
from p3s.runs.records import read_rows
from p3s.schemes import SCHEMES
from p3s.train import Training
from p3s.types import EnvSpec, unpack

from .conftest import SMALL, small_config, small_training
from .processes import p3s_process, wait_for
from .test_envs import Counter, Unpicklable

TIMES = ("seconds", "steps_per_second")


def record(path: Path) -> dict:
    """All that a run wrote, less its times."""
    rows = {
        stream: [
            {key: value for key, value in row.items() if key not in TIMES}
            for row in read_rows(path / f"{stream}.jsonl")
        ]
        for stream in ("metrics", "evaluations", "lineage")
    }
    return {**rows, "policy": (path / "policy.safetensors").read_bytes()}


# To break off at `until` is to be killed there: nothing is written on the way out.
def run(path: Path, until: int | None = None, **fields) -> None:
    config = small_config(steps=800, checkpoint_period=100, **fields)
    training = opening.begin(config, path)
    training.run(800, callback=lambda now: now.total_steps < (until or 800))
    training.close()


def resume(path: Path, until: int = 800) -> list[str]:
    training, notes = opening.reopen(path)
    training.run(800, callback=lambda now: now.total_steps < until)
    training.close()
    return notes


class TestRecords:
    def test_what_is_written(self, tmp_path):
        run(tmp_path / "run")
        config = json.loads((tmp_path / "run/config.json").read_text())
        assert config["environment"]["id"] == "InvertedPendulum-v5"
        assert {"python", "jax", "gymnasium", "mujoco", "p3s"} <= set(config["versions"])
        assert config["scheme_fields"]["beta_limit"] == "inf"
        written = record(tmp_path / "run")
        assert [row["step"] for row in written["evaluations"]] == [200, 400, 600, 800]
        assert [row["step"] for row in written["lineage"]] == list(range(100, 801, 100))
        assert [row["step"] for row in written["metrics"]] == list(range(100, 801, 100))
        last = written["evaluations"][-1]
        means = np.mean(last["learner_returns"], axis=1)
        assert last["score"] == pytest.approx(means.max())
        assert last["mean"] == pytest.approx(means.mean())
        assert last["updates"] == 4 * (800 // 4 - 20)
        assert set(last) == {
            "step", "updates", "learner_returns", "score", "mean", "champion", "champion_return",
        }  # fmt: skip
        assert {"step", "best", "beta", "spread", "change", "recent_returns"} == set(
            written["lineage"][-1]
        )

    def test_existing_run_is_not_overwritten(self, tmp_path):
        run(tmp_path / "run", until=100)
        with pytest.raises(UserError, match="p3s resume"):
            run(tmp_path / "run")
        (tmp_path / "full").mkdir()
        (tmp_path / "full/file").touch()
        with pytest.raises(UserError, match="not an empty folder"):
            run(tmp_path / "full")

    def test_nothing_is_written_for_a_bad_configuration(self, tmp_path):
        with pytest.raises(UserError):
            opening.begin(small_config(num_learners=0), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_tensorboard_tags(self, tmp_path):
        reader = pytest.importorskip("tensorboardX.proto.event_pb2")
        from tensorboardX.record_writer import masked_crc32c  # noqa: F401

        training = opening.begin(small_config(steps=400), tmp_path / "run", tensorboard=True)
        training.run(400)
        training.close()
        (events,) = (tmp_path / "run/tensorboard").iterdir()
        data, tags, position = events.read_bytes(), set(), 0
        while position < len(data):
            size = int.from_bytes(data[position : position + 8], "little")
            event = reader.Event.FromString(data[position + 12 : position + 12 + size])
            tags |= {value.tag for value in event.summary.value}
            position += 12 + size + 4
        assert {
            "rollout/ep_rew_mean", "eval/mean_reward", "time/fps", "train/critic_loss",
            "train/actor_loss", "population/beta", "population/spread", "population/change",
            "population/best", "learner_0/ep_rew_mean", "learner_3/value_loss",
        } <= tags  # fmt: skip


class TestExactResume:
    @pytest.mark.parametrize("preset", ["paper", "authors"])
    @pytest.mark.parametrize("env", ["InvertedPendulum-v5", "Pendulum-v1"])
    def test_interrupted_equals_uninterrupted(self, tmp_path, env, preset):
        run(tmp_path / "whole", env=env, preset=preset)
        # Stops between checkpoints: what was written after the last one must be written again.
        run(tmp_path / "parts", until=330, env=env, preset=preset)
        resume(tmp_path / "parts", until=570)
        resume(tmp_path / "parts")
        assert record(tmp_path / "parts") == record(tmp_path / "whole")

    @pytest.mark.parametrize("scheme", sorted(SCHEMES))
    def test_every_scheme(self, tmp_path, scheme):
        fields = {"scheme": scheme}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "parts", until=330, **fields)
        resume(tmp_path / "parts")
        assert record(tmp_path / "parts") == record(tmp_path / "whole")

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
        assert not population.training.collector.exact_resume
        population.save(tmp_path / "saved")
        with pytest.raises(UserError, match="callable"):
            Population.load(tmp_path / "saved")
        again = Population.load(tmp_path / "saved", env=Unpicklable)
        again.learn(40, progress_bar=False)
        assert again.num_steps == 200
        assert again.training.collector.lengths.tolist() == [10] * 4

    def test_a_callable_keeps_its_delay(self, tmp_path):
        fields = {**SMALL, "evaluation_period": 0}
        population = Population(partial(Counter, length=50), delay=5, **fields)
        population.learn(40, progress_bar=False)
        population.save(tmp_path / "saved")
        again = Population.load(tmp_path / "saved", env=partial(Counter, length=50))
        again.learn(160, progress_bar=False)
        rewards = unpack(again.training.spec, again.training.replay.rows[:200]).reward
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
        with pytest.raises(UserError, match="holds a run of 'p3s train'"):
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


class TestDamage:
    @pytest.mark.parametrize(
        "file", ["state.safetensors", "environments.bin", "replay-00000.bin", "meta.json"]
    )
    @pytest.mark.parametrize("how", ["truncated", "flipped", "missing"])
    def test_the_one_before_is_used(self, tmp_path, file, how):
        checkpoints, replay = written_checkpoints(tmp_path)
        victim = tmp_path / "step-000000000200" / file
        data = bytearray(victim.read_bytes())
        victim.unlink()
        if how == "truncated":
            victim.write_bytes(data[: len(data) // 2])
        elif how == "flipped":
            data[len(data) // 2] ^= 0xFF
            victim.write_bytes(data)
        snapshot, notes = checkpoints.read(replay)
        assert snapshot is not None
        assert snapshot.counters == {"total_steps": 100}
        assert len(notes) == 1
        assert "step-000000000200 is damaged" in notes[0]

    def test_none_is_intact(self, tmp_path):
        checkpoints, replay = written_checkpoints(tmp_path)
        for folder in tmp_path.iterdir():
            (folder / "meta.json").unlink()
        with pytest.raises(UserError, match=r"no checkpoint .* is intact"):
            checkpoints.read(replay)

    def test_interrupted_writing_leaves_the_others(self, tmp_path):
        checkpoints, replay = written_checkpoints(tmp_path)
        (tmp_path / ".tmp-step-000000000300").mkdir()
        snapshot, notes = checkpoints.read(replay)
        assert (snapshot.counters, notes) == ({"total_steps": 200}, [])
        checkpoints.remove_leftovers()
        assert len(list(tmp_path.iterdir())) == 2

    def test_only_two_are_kept(self, tmp_path):
        checkpoints, replay = written_checkpoints(tmp_path)
        checkpoints.write(300, Snapshot({}, [], {}), replay)
        assert sorted(folder.name[-3:] for folder in tmp_path.iterdir()) == ["200", "300"]

    def test_no_run(self, tmp_path):
        with pytest.raises(UserError, match="is not a run"):
            opening.reopen(tmp_path)
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(UserError, match="not a run's configuration"):
            opening.reopen(tmp_path)


def written_checkpoints(folder: Path) -> tuple[Checkpoints, Replay]:
    checkpoints, replay = Checkpoints(folder), Replay(1000, EnvSpec(1, 1))
    for step in (100, 200):
        replay.add(np.full((100, 5), step, np.float32))
        arrays = {"counts": np.arange(5), "scalar": np.float32(step) * np.ones(())}
        checkpoints.write(step, Snapshot(arrays, [b"state"], {"total_steps": step}), replay)
    return checkpoints, replay


class TestIncrementalReplay:
    def test_unchanged_segments_are_links(self, tmp_path):
        spec = EnvSpec(1, 1)
        replay, again = Replay(3 * SEGMENT_ROWS, spec), Replay(3 * SEGMENT_ROWS, spec)
        checkpoints = Checkpoints(tmp_path)
        draw = np.random.default_rng(0)
        for step, count in enumerate((SEGMENT_ROWS + 5, 7, SEGMENT_ROWS, 2 * SEGMENT_ROWS, 3)):
            rows = draw.random((count, spec.row_size)).astype(np.float32)
            start = replay.num_added % replay.capacity
            places = (start + np.arange(count)) % replay.capacity
            replay.rows[places] = rows
            replay.num_added += count
            checkpoints.write(step, Snapshot({}, [], {}), replay)
            Checkpoints(tmp_path).read(again)
            assert again.num_added == replay.num_added
            assert np.array_equal(again.rows[: again.size], replay.rows[: replay.size])
        links = [os.stat(path).st_nlink for path in sorted(tmp_path.glob("*4/replay-*"))]
        assert links == [2, 1, 2]  # the last three rows went into the middle segment

    def test_a_file_system_without_hard_links(self, tmp_path, monkeypatch):
        def refuse(source, target):
            raise OSError("no links here")

        monkeypatch.setattr(os, "link", refuse)
        spec = EnvSpec(1, 1)
        replay, again = (Replay(2 * SEGMENT_ROWS, spec) for _ in range(2))
        replay.rows[:] = np.random.default_rng(0).random(replay.rows.shape)
        checkpoints = Checkpoints(tmp_path)
        for step in (1, 2):
            replay.num_added += SEGMENT_ROWS
            checkpoints.write(step, Snapshot({}, [], {}), replay)
        Checkpoints(tmp_path).read(again)
        assert np.array_equal(again.rows, replay.rows)

    def test_later_ones_are_of_a_history_that_was_left(self, tmp_path):
        replay, checkpoints = Replay(8, EnvSpec(1, 1)), Checkpoints(tmp_path)
        for step in (10, 20, 30, 15):
            checkpoints.write(step, Snapshot({}, [], {"step": step}), replay)
        assert checkpoints.read(replay)[0].counters == {"step": 15}
        assert len(list(tmp_path.iterdir())) == 1

    def test_which_segments_changed(self):
        replay = Replay(30, EnvSpec(1, 1))
        for before, added in [(35, 0), (35, 4), (35, 12), (58, 5), (29, 3), (40, 30), (12, 10)]:
            replay.num_added = before + added
            touched = {row % 30 for row in range(before, before + added)}
            touched |= set(range(before, 30))  # not yet filled then
            for start in (0, 10, 20):
                changed = bool(touched & set(range(start, start + 10)))
                last = {"replay": {"num_added": before}}
                assert _unchanged(last, replay, start, start + 10) is not changed


class TestEarlyUpdates:
    """Updates and actions that are computed beside the step before them."""

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"updates_per_step": 3, "buffer_size": 300},
            {"algorithm": "sac", "normalise_observations": True},
        ],
        ids=str,
    )
    def test_give_what_waiting_gives(self, fields, monkeypatch):
        early, waiting = (small_training(steps=1200, batch_size=8, **fields) for _ in range(2))
        counts = []
        count_early = Training._update_early
        monkeypatch.setattr(
            Training,
            "_update_early",
            lambda self, coming: counts.append(count_early(self, coming)) or counts[-1],
        )
        acted = []

        def forget(training):
            acted.append(training._ahead is not None)
            training._ahead = None

        early.run(1200)
        monkeypatch.setattr(Training, "_update_early", lambda self, coming: 0)
        waiting.run(1200, forget)
        assert {0, fields.get("updates_per_step", 1)} <= set(counts)
        assert True not in acted if "algorithm" in fields else {True, False} == set(acted)
        assert early.updates == waiting.updates
        assert np.array_equal(early.replay.rows, waiting.replay.rows, equal_nan=True)
        pairs = zip(jax.tree.leaves(early.state), jax.tree.leaves(waiting.state), strict=True)
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)
        early.close()
        waiting.close()

    @pytest.mark.parametrize("added", [0, 5, 17, 20, 33])
    def test_a_sample_is_drawn_as_if_the_rows_to_come_were_there(self, added):
        replay = Replay(20, EnvSpec(1, 1))
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

    def test_a_value_update_does_not_touch_the_policies(self):
        training = small_training(steps=400)
        training.run(400)
        state = training.state
        rows = training.replay.sample(np.random.default_rng(0), (4, 16))
        stepped, _ = training.program.learn(state, rows, None, 1, with_policy=False)

        def touched(before, after):
            return {a is not b for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)}

        assert touched(state.learners.policy, stepped.learners.policy) == {False}
        assert touched(state.guide, stepped.guide) == {False}
        assert touched(state.learners.value, stepped.learners.value) == {True}
        moved, _ = training.program.learn(stepped, rows, None, 2, with_policy=True)
        assert touched(stepped.learners.policy, moved.learners.policy) == {True}
        assert touched(stepped.guide, moved.guide) == {False}
        training.close()


class TestTrouble:
    def test_not_a_number_in_a_loss_stops_the_run(self, tmp_path):
        path = tmp_path / "run"
        config = small_config(steps=800, checkpoint_period=100, learning_rate=1e30)
        training = opening.begin(config, path)
        with pytest.raises(TrainingStopped, match=r"at total step \d+: the \w+ of learner \d is"):
            training.run(800)
        training.close()

    def test_no_environment_gets_an_action_that_is_not_a_number(self):
        training = small_training(steps=800, learning_rate=1e30)
        seen = []
        for env in training.collector.envs:
            step = env.step
            env.step = lambda action, step=step: seen.append(action) or step(action)
        with pytest.raises(TrainingStopped):
            training.run(800)
        training.close()
        assert len(seen) > 20
        assert np.isfinite(seen).all()

    def test_an_evaluation_stops_at_an_action_that_is_not_a_number(self):
        training = small_training(steps=800)
        training.run(100)
        training.state = jax.tree.map(lambda x: jax.numpy.full_like(x, np.nan), training.state)
        with pytest.raises(UserError, match="the policy of learner 0 gives actions not finite"):
            training.evaluate()
        training.close()

    def test_environment_error_in_an_evaluation_stops_the_run(self):
        training = small_training(steps=800)
        training.run(100)
        training.evaluate()

        def fail(action):
            raise ValueError("the battery is empty")

        training.evaluator._envs[5].step = fail
        with pytest.raises(
            TrainingStopped, match=r"at total step 200: .*learner 2 raised at a step of an evalua"
        ):
            training.run(800)
        training.close()

    def test_an_evaluation_that_does_not_end_is_given_up(self, monkeypatch):
        monkeypatch.setattr("p3s.evaluation.LONGEST_EPISODE", 30)
        training = small_training("Pendulum-v1", steps=800)
        with pytest.raises(TrainingStopped, match="not ended after 30 steps: give the env"):
            training.run(800)
        training.close()

    def test_environment_error_keeps_the_last_checkpoint(self, tmp_path):
        config = small_config(steps=800, checkpoint_period=100)
        training = opening.begin(config, tmp_path / "run")
        training.run(240)

        def fail(action):
            raise ValueError("the battery is empty")

        training.collector.envs[2].env.step = fail
        with pytest.raises(
            TrainingStopped, match=r"at total step 240: .*learner 2 raised .*battery is empty"
        ):
            training.run(800)
        training.close()
        reopened, notes = opening.reopen(tmp_path / "run")
        reopened.close()
        assert (reopened.total_steps, notes) == (240, [])
