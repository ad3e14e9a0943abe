"""Journals: those that are damaged, or none; what a killed process left is cut off."""

from __future__ import annotations

import pytest

from p3s.errors import UserError
from p3s.tuning.storage import JournalLock, open_storage

optuna = pytest.importorskip("optuna")


def new_study(path, name="mine"):
    return optuna.create_study(storage=open_storage(str(path)), study_name=name)


def test_a_journal_keeps_studies(tmp_path):
    path = tmp_path / "folder" / "journal.log"
    new_study(path).set_user_attr("key", [1, 2])
    study = optuna.load_study(study_name="mine", storage=open_storage(str(path)))
    assert study.user_attrs == {"key": [1, 2]}


@pytest.mark.parametrize("size", [1, 20])
def test_half_an_entry_is_cut_off(tmp_path, size):
    path = tmp_path / "journal.log"
    new_study(path)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:size])
    new_study(path, "other")
    assert path.read_bytes().startswith(whole + b'{"op_code":0')
    assert len(open_storage(str(path)).get_all_studies()) == 2


@pytest.mark.parametrize("size", [5, 30])
def test_half_of_the_first_entry_is_cut_off_too(tmp_path, size):
    path = tmp_path / "journal.log"
    new_study(path)
    path.write_bytes(path.read_bytes()[:size])
    new_study(path, "again")
    (study,) = open_storage(str(path)).get_all_studies()
    assert study.study_name == "again"


def test_a_file_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "results.json"
    path.write_text('{"mean_reward": 3}')
    with pytest.raises(UserError, match="not a journal of Optuna"):
        new_study(path)
    assert path.read_text() == '{"mean_reward": 3}'


def test_half_an_entry_is_cut_off_while_another_process_has_the_journal_open(tmp_path):
    path = tmp_path / "journal.log"
    study = new_study(path)
    with path.open("ab") as file:
        file.write(b'{"op_co')
    study.set_user_attr("key", 1)
    assert open_storage(str(path)).get_all_studies()[0].user_attrs == {"key": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\x00\xff\n", "the journal is damaged, or not one of Optuna"),
        (b"[1]\n", "the journal is damaged, or not one of Optuna"),
        (b'{"kind": 3}\n', "not an entry of a journal of Optuna 5"),
        (b'{"op_code": 4, "worker_id": 1}\n', "an entry of its journal has no 'study_id'"),
        (b'{"op_code": 99, "worker_id": "a"}\n', "a kind that Optuna 5 does not know, 99"),
    ],
)
def test_an_error_names_the_line(tmp_path, line, message):
    path = tmp_path / "journal.log"
    new_study(path)
    before = path.read_bytes() + line
    path.write_bytes(before)
    number = before.count(b"\n")
    with pytest.raises(UserError) as error:
        open_storage(str(path))
    if "no '" not in message:
        assert str(error.value).startswith(f"{path}:{number}: ")
    assert message in str(error.value)
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_not_touched(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("no newline")
    with pytest.raises(UserError, match="not a journal of Optuna"):
        open_storage(str(path))
    assert path.read_text() == "no newline"


@pytest.mark.parametrize(
    "storage", ["sqlite:////no/such/folder/x.db", "nothing://here", "sqlite://x:y/z"]
)
def test_a_database_that_cannot_be_opened(storage):
    with pytest.raises(UserError, match="cannot be opened: ") as error:
        open_storage(storage)
    assert "\n" not in str(error.value)


def test_a_folder_is_no_journal(tmp_path):
    with pytest.raises(UserError):
        open_storage(str(tmp_path))


def test_a_lock_can_be_taken_again(tmp_path):
    lock = JournalLock(tmp_path / "journal.log")
    for _ in range(2):
        assert lock.acquire()
        lock.release()
