"""Checkpoints: damaged ones, and replay segments that are linked instead of copied."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from p3s.errors import UserError
from p3s.experience.replay import Ring
from p3s.experience.rows import empty_rows
from p3s.runs import opening
from p3s.runs.checkpoints import SEGMENT_ROWS, Checkpoints, _unchanged
from p3s.types import EnvSpec

SPEC = EnvSpec.flat(1, 1)


def make_ring(capacity: int) -> Ring:
    return Ring(empty_rows(capacity, SPEC))


def written_checkpoints(folder: Path) -> tuple[Checkpoints, Ring]:
    checkpoints, ring = Checkpoints(folder), make_ring(1000)
    for step in (100, 200):
        ring.add(np.full((100, 5), step, np.float32))
        arrays = {"counts": np.arange(5), "scalar": np.array(step, np.float32)}
        states = {"state_0": np.frombuffer(b"state", np.uint8)}
        values = {"counters": {"total_steps": step, "seconds": 0.5}, "records": {}}
        checkpoints.write(step, {"returns": arrays, "environments": states, **values}, ring)
    return checkpoints, ring


class TestDamage:
    @pytest.mark.parametrize("file", ["state.safetensors", "replay-00000.bin", "meta.json"])
    @pytest.mark.parametrize("how", ["truncated", "flipped", "missing"])
    def test_the_one_before_is_used(self, tmp_path, file, how):
        checkpoints, ring = written_checkpoints(tmp_path)
        victim = tmp_path / "step-000000000200" / file
        data = bytearray(victim.read_bytes())
        victim.unlink()
        if how == "truncated":
            victim.write_bytes(data[: len(data) // 2])
        elif how == "flipped":
            data[len(data) // 2] ^= 0xFF
            victim.write_bytes(data)
        snapshot, notes = checkpoints.read(ring)
        assert snapshot is not None
        assert snapshot["counters"] == {"total_steps": 100, "seconds": 0.5}
        assert len(notes) == 1
        assert "step-000000000200 is damaged" in notes[0]

    def test_none_is_intact(self, tmp_path):
        checkpoints, ring = written_checkpoints(tmp_path)
        for folder in tmp_path.iterdir():
            (folder / "meta.json").unlink()
        with pytest.raises(UserError, match=r"no checkpoint .* is intact"):
            checkpoints.read(ring)

    def test_interrupted_writing_leaves_the_others(self, tmp_path):
        checkpoints, ring = written_checkpoints(tmp_path)
        (tmp_path / ".tmp-step-000000000300").mkdir()
        snapshot, notes = checkpoints.read(ring)
        assert (snapshot["counters"]["total_steps"], notes) == (200, [])
        checkpoints.remove_leftovers()
        assert len(list(tmp_path.iterdir())) == 2

    def test_only_two_are_kept(self, tmp_path):
        checkpoints, ring = written_checkpoints(tmp_path)
        checkpoints.write(300, {}, ring)
        assert sorted(folder.name[-3:] for folder in tmp_path.iterdir()) == ["200", "300"]

    def test_no_run(self, tmp_path):
        with pytest.raises(UserError, match="is not a run"):
            opening.reopen(tmp_path)
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(UserError, match="not a run's configuration"):
            opening.reopen(tmp_path)


class TestContents:
    def test_arrays_and_values_come_back_as_they_were(self, tmp_path):
        _, ring = written_checkpoints(tmp_path)
        again = make_ring(1000)
        snapshot, notes = Checkpoints(tmp_path).read(again)
        assert notes == []
        assert snapshot["counters"] == {"total_steps": 200, "seconds": 0.5}
        assert snapshot["records"] == {}
        assert snapshot["environments"]["state_0"].tobytes() == b"state"
        counts, scalar = snapshot["returns"]["counts"], snapshot["returns"]["scalar"]
        assert (counts.dtype, counts.tolist()) == (np.int64, [0, 1, 2, 3, 4])
        assert (scalar.dtype, scalar.shape, scalar.item()) == (np.float32, (), 200)
        assert again.num_added == 200
        assert np.array_equal(again.rows[:200], ring.rows[:200])

    def test_a_run_without_a_replay(self, tmp_path):
        Checkpoints(tmp_path).write(7, {"experience": {"rows": np.ones((2, 3))}}, None)
        assert sorted(file.name for file in (tmp_path / "step-000000000007").iterdir()) == [
            "meta.json", "state.safetensors",
        ]  # fmt: skip
        snapshot, _ = Checkpoints(tmp_path).read(None)
        assert np.array_equal(snapshot["experience"]["rows"], np.ones((2, 3)))

    def test_a_replay_of_another_size_is_refused(self, tmp_path):
        checkpoints, _ = written_checkpoints(tmp_path)
        with pytest.raises(UserError, match="holds a replay of another size"):
            checkpoints.read(make_ring(999))


class TestIncrementalReplay:
    def test_unchanged_segments_are_links(self, tmp_path):
        ring, again = make_ring(3 * SEGMENT_ROWS), make_ring(3 * SEGMENT_ROWS)
        checkpoints = Checkpoints(tmp_path)
        draw = np.random.default_rng(0)
        for step, count in enumerate((SEGMENT_ROWS + 5, 7, SEGMENT_ROWS, 2 * SEGMENT_ROWS, 3)):
            rows = draw.random((count, ring.rows.shape[1])).astype(np.float32)
            start = ring.num_added % ring.capacity
            places = (start + np.arange(count)) % ring.capacity
            ring.rows[places] = rows
            ring.num_added += count
            checkpoints.write(step, {}, ring)
            Checkpoints(tmp_path).read(again)
            assert again.num_added == ring.num_added
            assert np.array_equal(again.rows[: again.size], ring.rows[: ring.size])
        links = [os.stat(path).st_nlink for path in sorted(tmp_path.glob("*4/replay-*"))]
        assert links == [2, 1, 2]  # the last three rows went into the middle segment

    def test_a_file_system_without_hard_links(self, tmp_path, monkeypatch):
        def refuse(source, target):
            raise OSError("no links here")

        monkeypatch.setattr(os, "link", refuse)
        ring, again = (make_ring(2 * SEGMENT_ROWS) for _ in range(2))
        ring.rows[:] = np.random.default_rng(0).random(ring.rows.shape)
        checkpoints = Checkpoints(tmp_path)
        for step in (1, 2):
            ring.num_added += SEGMENT_ROWS
            checkpoints.write(step, {}, ring)
        Checkpoints(tmp_path).read(again)
        assert np.array_equal(again.rows, ring.rows)

    def test_later_ones_are_of_a_history_that_was_left(self, tmp_path):
        ring, checkpoints = make_ring(8), Checkpoints(tmp_path)
        for step in (10, 20, 30, 15):
            checkpoints.write(step, {"counters": {"total_steps": step}}, ring)
        assert checkpoints.read(ring)[0] == {"counters": {"total_steps": 15}}
        assert len(list(tmp_path.iterdir())) == 1

    def test_which_segments_changed(self):
        ring = make_ring(30)
        for before, added in [(35, 0), (35, 4), (35, 12), (58, 5), (29, 3), (40, 30), (12, 10)]:
            ring.num_added = before + added
            touched = {row % 30 for row in range(before, before + added)}
            touched |= set(range(before, 30))  # not yet filled then
            for start in (0, 10, 20):
                changed = bool(touched & set(range(start, start + 10)))
                last = {"replay": {"num_added": before}}
                assert _unchanged(last, ring, start, start + 10) is not changed
