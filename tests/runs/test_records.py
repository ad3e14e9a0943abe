"""What a run writes, and where it refuses to write."""

from __future__ import annotations

import json

import numpy as np
import pytest

from p3s.errors import UserError
from p3s.runs import opening
from p3s.runs.records import last_row, read_config, read_rows, to_json_line, write_config
from tests.helpers import record, run, small_config


class TestRecords:
    def test_what_is_written(self, tmp_path):
        run(tmp_path / "run")
        config = json.loads((tmp_path / "run/config.json").read_text())
        assert config["environment"]["id"] == "InvertedPendulum-v5"
        assert {"python", "jax", "gymnasium", "mujoco", "p3s"} <= set(config["versions"])
        assert config["scheme_fields"]["beta_limit"] == 1e9
        written = record(tmp_path / "run")
        assert [row["step"] for row in written["evaluations"]] == [200, 400, 600, 800]
        assert [row["step"] for row in written["lineage"]] == list(range(100, 801, 100))
        assert [row["step"] for row in written["metrics"]] == list(range(100, 801, 100))
        last = written["evaluations"][-1]
        means = np.mean(last["learner_returns"], axis=1)
        assert last["score"] == pytest.approx(means.max())
        assert last["mean"] == pytest.approx(means.mean())
        assert last["updates"] == 4 * (800 // 4 - 19)  # the first follows own step 20
        assert set(last) == {
            "step", "updates", "learner_returns", "score", "mean", "champion", "champion_return",
            "chief_pick", "chief_return",
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

        training = opening.begin(small_config(steps=400), tmp_path / "run", loggers=["tensorboard"])
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


def test_last_row(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert last_row(path) is None
    path.write_text('{"step": 1')
    assert last_row(path) is None
    path.write_text('{"step": 1}\n{"st')
    assert last_row(path) == {"step": 1}
    long = json.dumps({"step": 2, "episodes": list(range(20_000))})
    path.write_text('{"step": 1}\n' + long + "\n")
    assert last_row(path) == json.loads(long)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_a_changed_digit_is_noticed(tmp_path, name):
    write_config(tmp_path, {"seed": 17, "steps": 400})
    (tmp_path / "metrics.jsonl").write_text(to_json_line({"step": 17, "x": [1.5, None]}))
    found = read_config(tmp_path)
    assert (found["seed"], found["steps"]) == (17, 400)
    assert read_rows(tmp_path / "metrics.jsonl") == [{"step": 17, "x": [1.5, None]}]
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes().replace(b"17", b"97"))
    with pytest.raises(UserError, match=f"{name} is damaged"):
        read_config(tmp_path) if name == "config.json" else read_rows(tmp_path / name)


def test_files_without_checksums_are_read(tmp_path):
    (tmp_path / "config.json").write_text('{"seed": 17}')
    (tmp_path / "metrics.jsonl").write_text('{"step": 17}\n')
    assert read_config(tmp_path) == {"seed": 17}
    assert read_rows(tmp_path / "metrics.jsonl") == [{"step": 17}]


def test_a_damaged_line_end_is_noticed(tmp_path):
    file = tmp_path / "metrics.jsonl"
    rows = [to_json_line({"step": step}) for step in (1, 2)]
    file.write_text("".join(rows)[:-5])
    assert read_rows(file) == [{"step": 1}]  # the second is still being written
    file.write_text("".join(rows)[:-1] + "\x1a")
    with pytest.raises(UserError, match="is damaged in line 2"):
        read_rows(file)
