"""Folders published on the Hugging Face Hub, policies fetched from it, and its errors in one line.

    hub:USER/NAME            the policy of a model repository, as it is now
    hub:USER/NAME@REVISION   as it is on a branch, at a tag or at a commit

Only the policy's file is fetched, and reading it executes nothing. `huggingface_hub` has the
addresses, tokens and its cache as its users know them (HF_ENDPOINT, HF_TOKEN, HF_HOME, ...).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from p3s.errors import UserError, note
from p3s.machine import needed
from p3s.runs.best_policy import LAST

PREFIX = "hub:"
POLICY = LAST
"""The policy's name in a repository, where a run folder has it too."""


class HubName(NamedTuple):
    """A model repository, and which state of it."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return PREFIX + self.repository + (f"@{self.revision}" if self.revision else "")


def require_hub() -> Any:
    """huggingface_hub, which talks to the Hub."""
    what, library = "the Hugging Face Hub needs huggingface_hub", "huggingface_hub"
    hub = needed(what, "hub", f"{library}.errors", f"{library}.utils", library)
    hub.utils.logging.set_verbosity_error()
    return hub


def is_hub_name(path: str | Path) -> bool:
    """Whether this is a name on the Hub, not a path."""
    return str(path).startswith(PREFIX)


def parse_hub_name(name: str | Path) -> HubName:
    """The repository, and the revision if there is one, that a name stands for."""
    text = (name.as_posix() if isinstance(name, Path) else name).removeprefix(PREFIX)
    repository, at, revision = text.partition("@")
    hub = require_hub()
    try:
        hub.utils.validate_repo_id(repository)
        valid = repository.count("/") == 1 and bool(revision) == bool(at)
    except hub.errors.HFValidationError:
        valid = False
    if not valid:
        raise UserError(f"{text!r} is no name on the Hub: give USER/NAME, of letters, digits, -_.")
    return HubName(repository, revision or None)


def fetch_policy(name: HubName) -> Path:
    """The policy's file in the Hub's cache on this machine: the Hub's, or without it the last."""
    hub, (repository, revision) = require_hub(), name
    with _in_one_line(name):
        try:
            # Without a network this fails at once, and a download only after half a minute.
            hub.get_hf_file_metadata(hub.hf_hub_url(repository, POLICY, revision=revision))
        except (hub.errors.HTTPError, hub.errors.OfflineModeIsEnabled) as error:
            cached = hub.try_to_load_from_cache(repository, POLICY, revision=revision)
            if isinstance(error, hub.errors.HfHubHTTPError) or not isinstance(cached, str):
                raise
            note(f"{name}: the Hub cannot be reached: this is the policy that was fetched last")
            return Path(cached)
        return Path(hub.hf_hub_download(repository, POLICY, revision=revision))


def check_token(name: HubName) -> None:
    """Raise UserError if the Hub cannot be reached or does not know who this is."""
    with _in_one_line(name):
        require_hub().HfApi().whoami()


def publish(folder: Path, name: HubName, files: Iterable[str], private: bool) -> str:
    """Put a folder's files into a repository, by one commit: all of them or none; its address.

    The repository is made if there is none. Of these files it then holds those of the folder, and
    whatever else was in it.
    """
    hub, names = require_hub(), list(files)
    with _in_one_line(name):
        api = hub.HfApi()
        api.create_repo(name.repository, private=private or None, exist_ok=True)
        api.upload_folder(
            repo_id=name.repository,
            folder_path=folder,
            commit_message="Push a policy trained with p3s",
            allow_patterns=names,
            delete_patterns=names,
        )
        return f"{api.endpoint}/{name.repository}"


@contextlib.contextmanager
def _in_one_line(name: HubName) -> Iterator[None]:
    """Say what went wrong with the Hub, and what would be right."""
    errors = require_hub().errors
    known = (errors.HTTPError, errors.LocalTokenNotFoundError, errors.OfflineModeIsEnabled)
    try:
        yield
    except (*known, errors.FileMetadataError, ValueError) as error:
        raise UserError(_said(errors, error, name)) from error


def _said(errors: Any, error: Any, name: HubName) -> str:
    match error:
        case errors.LocalTokenNotFoundError():
            return "there is no token for the Hub: hf auth login, or set HF_TOKEN"
        case errors.GatedRepoError():
            return f"{name}: ask for access on its page on the Hub"
        case errors.RepositoryNotFoundError():
            return f"{name}: the Hub has no such repository, or your token may not read it"
        case errors.RevisionNotFoundError():
            return f"{name}: it has no such branch, tag or commit"
        case errors.RemoteEntryNotFoundError():
            return f"{name} holds no policy of p3s: there is no {POLICY} in it"
        case errors.HfHubHTTPError():
            status = error.response.status_code
            why = error.server_message or str(error).split("\n")[0]
            refused = status in (401, 403)
            return f"{name}: the Hub {'refuses' if refused else 'fails'} ({status}): {_line(why)}"
        case ValueError() if not isinstance(error, errors.LocalEntryNotFoundError):
            return f"{name}: the Hub refuses: {_line(error)}"
        case _:
            return f"{name}: the Hub cannot be reached ({type(error).__name__}: {_line(error)})"


def _line(text: Any) -> str:
    return " ".join(str(text).split())
