"""Checkpoints: damaged ones, and replay segments that are linked instead of copied."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from p3s.errors import UserError
from p3s.experience.replay import Replay
from p3s.runs import opening
from p3s.runs.checkpoints import SEGMENT_ROWS, Checkpoints, Snapshot, _unchanged
from p3s.types import EnvSpec


def written_checkpoints(folder: Path) -> tuple[Checkpoints, Replay]:
    checkpoints, replay = Checkpoints(folder), Replay(1000, EnvSpec.flat(1, 1))
    for step in (100, 200):
        replay.add(np.full((100, 5), step, np.float32))
        arrays = {"counts": np.arange(5), "scalar": np.float32(step) * np.ones(())}
        checkpoints.write(step, Snapshot(arrays, [b"state"], {"total_steps": step}), replay)
    return checkpoints, replay


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


class TestIncrementalReplay:
    def test_unchanged_segments_are_links(self, tmp_path):
        spec = EnvSpec.flat(1, 1)
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
        spec = EnvSpec.flat(1, 1)
        replay, again = (Replay(2 * SEGMENT_ROWS, spec) for _ in range(2))
        replay.rows[:] = np.random.default_rng(0).random(replay.rows.shape)
        checkpoints = Checkpoints(tmp_path)
        for step in (1, 2):
            replay.num_added += SEGMENT_ROWS
            checkpoints.write(step, Snapshot({}, [], {}), replay)
        Checkpoints(tmp_path).read(again)
        assert np.array_equal(again.rows, replay.rows)

    def test_later_ones_are_of_a_history_that_was_left(self, tmp_path):
        replay, checkpoints = Replay(8, EnvSpec.flat(1, 1)), Checkpoints(tmp_path)
        for step in (10, 20, 30, 15):
            checkpoints.write(step, Snapshot({}, [], {"step": step}), replay)
        assert checkpoints.read(replay)[0].counters == {"step": 15}
        assert len(list(tmp_path.iterdir())) == 1

    def test_which_segments_changed(self):
        replay = Replay(30, EnvSpec.flat(1, 1))
        for before, added in [(35, 0), (35, 4), (35, 12), (58, 5), (29, 3), (40, 30), (12, 10)]:
            replay.num_added = before + added
            touched = {row % 30 for row in range(before, before + added)}
            touched |= set(range(before, 30))  # not yet filled then
            for start in (0, 10, 20):
                changed = bool(touched & set(range(start, start + 10)))
                last = {"replay": {"num_added": before}}
                assert _unchanged(last, replay, start, start + 10) is not changed
