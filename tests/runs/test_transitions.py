"""Files of transitions: written, read, and everything that is none."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p3s.errors import UserError
from p3s.experience.recorded import Recorded
from p3s.runs import transitions
from p3s.runs.transitions import read_transitions, write_transitions


def arrays(count: int = 4) -> dict[str, np.ndarray]:
    return {
        "observations": np.arange(3 * count, dtype=np.float32).reshape(count, 3),
        "actions": np.ones((count, 1), np.float32),
        "rewards": np.arange(count, dtype=np.float32),
        "next_observations": np.zeros((count, 3), np.float32),
        "terminations": np.zeros(count, bool),
        "truncations": np.arange(count) == count - 1,
    }


def saved(path, **other) -> bytes:
    np.savez(path, **{**arrays(), **other})
    return path.read_bytes()


def member(header: bytes, data: bytes = b"") -> bytes:
    """An array's file with this header, which may say anything."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def archive(path, **members: bytes) -> None:
    """A file of these members, the others as they should be."""
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays().items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array)
            file.writestr(f"{name}.npy", members.get(name, buffer.getvalue()))


def assert_refused(path, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_transitions(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_there_and_back(tmp_path):
    file = tmp_path / "x.npz"
    write_transitions(file, Recorded(**arrays()))
    found = read_transitions(file)
    for name, array in arrays().items():
        assert np.array_equal(getattr(found, name), array), name
        assert getattr(found, name).dtype == array.dtype
    with np.load(file) as opened:  # as anybody reads it
        assert set(opened) == set(arrays())


def test_a_compressed_file_is_one_too(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", **arrays())
    assert np.array_equal(read_transitions(tmp_path / "x.npz").rewards, arrays()["rewards"])


class TestRefused:
    def test_what_is_no_archive(self, tmp_path):
        file = tmp_path / "x.npz"
        assert_refused(file, "there is no file")
        for content in (b"", b"hello", b"\x93NUMPY" + bytes(100)):
            file.write_bytes(content)
            assert_refused(file, "is damaged or no npz file")
        assert_refused(tmp_path, "cannot be read")

    def test_what_is_no_file(self, tmp_path):
        os.mkfifo(tmp_path / "x.npz")
        assert_refused(tmp_path / "x.npz", "cannot be read: .*not a regular file")

    def test_other_arrays(self, tmp_path):
        file = tmp_path / "x.npz"
        saved(file, infos=np.zeros(4))
        assert_refused(file, "holds infos too: it should hold observations, actions, rewards")
        np.savez(file, **{name: array for name, array in arrays().items() if name != "actions"})
        assert_refused(file, "misses actions")

    def test_objects_are_not_unpickled(self, tmp_path):
        class Harm:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "harm"),)

        file = tmp_path / "x.npz"
        saved(file, rewards=np.array([Harm()] * 4, object))
        assert_refused(file, "rewards are of type object, not numbers")
        assert not (tmp_path / "harm").exists()

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            ({"rewards": np.zeros(4, "datetime64[s]")}, "rewards are of type datetime64"),
            ({"rewards": np.zeros(4, [("a", float)])}, "rewards are of type"),
            ({"rewards": np.array(["x"] * 4)}, "rewards are of type <U1"),
            ({"rewards": np.zeros(4, complex)}, "rewards are of type complex128"),
        ],
    )
    def test_what_is_no_number(self, other, message, tmp_path):
        saved(tmp_path / "x.npz", **other)
        assert_refused(tmp_path / "x.npz", message)

    @pytest.mark.parametrize(
        ("header", "message"),
        [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", "as large as"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,)}", "negative size"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "as large as"),
            ("{'descr': '<f4', 'shape': (4,)}", "cannot be read"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (4,)}", "of type object"),
            ("[" * 300, "cannot be read"),
            ("", "cannot be read"),
        ],
    )
    def test_a_header_that_is_wrong(self, header, message, tmp_path):
        archive(tmp_path / "x.npz", rewards=member(header.encode(), bytes(16)))
        assert_refused(tmp_path / "x.npz", message)

    def test_more_than_fits_into_memory(self, tmp_path, monkeypatch):
        saved(tmp_path / "x.npz")
        monkeypatch.setattr(transitions, "available_memory", lambda: 1000)
        assert_refused(tmp_path / "x.npz", r"takes 0\.0 GB of memory, but 0\.0 GB are free")

    def test_an_array_that_unpacks_to_more_than_it_says(self, tmp_path):
        file = tmp_path / "x.npz"
        np.savez_compressed(file, **arrays(100_000))
        data = bytearray(file.read_bytes())
        with zipfile.ZipFile(file) as opened:
            size = opened.getinfo("rewards.npy").file_size
        small = (528).to_bytes(4, "little")
        file.write_bytes(bytes(data).replace(size.to_bytes(4, "little"), small))
        assert_refused(file, "is damaged or no npz file")


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_is_one_line_or_does_not_matter(tmp_path, data):
    file = tmp_path / "x.npz"
    content = bytearray(saved(file))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(UserError):
        read_transitions(file)
