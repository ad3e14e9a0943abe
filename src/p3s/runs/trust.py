"""Whether a run folder is this user's: checksums keyed with a secret.

Two things in a run folder can execute code: pickled environment states, and modules that
config.json names. Both carry a keyed checksum (HMAC-SHA256). If it was made with this user's key, a
run simply continues. Otherwise the folder is someone else's: pickled environments begin new
episodes, and modules must have been imported by the user. `trusting` makes an exception.

The key is in the user's configuration folder and nobody else may read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from p3s.envs.prefixes import has_prefix
from p3s.envs.state import needs_pickle
from p3s.errors import ForeignModules, UserError

SIGNATURE, ENVIRONMENTS = "signature", "environments"
Parts = dict[str, dict[str, Any]]
KEY_BYTES = 32
_trusting = False


@contextlib.contextmanager
def trusting(everything: bool = True) -> Iterator[None]:
    """Trust whatever is opened meanwhile."""
    global _trusting
    before, _trusting = _trusting, _trusting or everything
    try:
        yield
    finally:
        _trusting = before


def key_file() -> Path:
    """Where this user's key is kept."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "p3s" / "key"


def _key() -> bytes | None:
    """This user's key, made when it is first needed; None where it cannot be kept."""
    file = key_file()
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make_key(file)
        key = file.read_bytes()
    except OSError:
        return None
    return key if len(key) == KEY_BYTES else None


def _make_key(file: Path) -> None:
    """Write a new key whole or not at all; of two processes the first one wins."""
    temporary = file.with_name(f".key-{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(secrets.token_bytes(KEY_BYTES))
    try:
        os.link(temporary, file)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(temporary, file)
        return
    temporary.unlink()


def _signature(message: bytes) -> str | None:
    key = _key()
    return None if key is None else hmac.new(key, message, hashlib.sha256).hexdigest()


def _is_own(message: bytes, signature: Any) -> bool:
    expected = _signature(message)
    known = isinstance(signature, str) and signature.isascii()
    return known and expected is not None and hmac.compare_digest(expected, signature)


# ---------------------------------------------------------------------- configurations


def signed(record: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration with a signature; without one where there is no key."""
    bare = {name: value for name, value in record.items() if name != SIGNATURE}
    signature = _signature(_message(bare))
    return bare if signature is None else {**bare, SIGNATURE: signature}


def is_own_record(record: dict[str, Any]) -> bool:
    """Whether this user wrote a run's configuration."""
    bare = {name: value for name, value in record.items() if name != SIGNATURE}
    return _is_own(_message(bare), record.get(SIGNATURE))


def check_modules(record: dict[str, Any], path: Path) -> None:
    """Refuse modules that someone else's configuration would import."""
    if not is_own_record(record):
        named = [*as_list(record.get("modules")), *modules_in(record.get("environment"))]
        refuse_modules(named, str(path))


def refuse_links(path: Path) -> None:
    """Refuse links in someone else's folder: what is written there could end up elsewhere."""
    link = next((entry for entry in path.rglob("*") if entry.is_symlink()), None)
    if link is not None and not _trusting:
        raise UserError(f"{link} is a link in a run that you did not write: --trust follows it")


def refuse_cluster(address: Any) -> None:
    """Refuse to send someone else's run to the cluster that it names."""
    if not _trusting:
        raise UserError(
            f"a run that you did not write names a cluster ({address or 'on this machine'}): give "
            "one of yours (--address), or --trust"
        )


def refuse_sources(*sources: str | None) -> None:
    """Refuse to read what someone else's run names: files of this machine, or names to download."""
    found = next((source for source in sources if source is not None), None)
    if found is not None and not _trusting:
        raise UserError(f"a run that you did not write reads {found}: --trust lets it")


def _message(record: dict[str, Any]) -> bytes:
    return b"config" + json.dumps(record, sort_keys=True).encode()


def as_list(value: Any) -> list[Any]:
    """A list from a file, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def modules_in(environment: Any) -> list[str]:
    """The modules that an environment's id and arguments name: 'module:Env-v0'."""
    found, left = list[str](), [environment]
    while left:
        value = left.pop()
        if isinstance(value, str) and ":" in value and not has_prefix(value):
            found.append(value.partition(":")[0])
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
    return found


def refuse_modules(named: Iterable[Any], whose: str) -> None:
    """Refuse modules that a file names, unless they are imported already or it is trusted."""
    unknown = [module for module in named if not _is_imported(module)]
    if unknown and not _trusting:
        raise ForeignModules(whose, unknown)


def _is_imported(module: Any) -> bool:
    """Whether the user has imported a module; Python's own do not count."""
    if not isinstance(module, str) or module.partition(".")[0] in sys.stdlib_module_names:
        return False
    return module in sys.modules


# ---------------------------------------------------------------------- environment states


def sign_states(snapshot: Parts) -> Parts:
    """A snapshot with a signature on its environments, if restoring them would unpickle."""
    values = snapshot.get(ENVIRONMENTS, {})
    pickled = _pickled(values)
    signature = _signature(_digest(values, pickled)) if pickled else None
    if signature is None:
        return snapshot
    return {**snapshot, ENVIRONMENTS: {**values, SIGNATURE: signature}}


def without_foreign_states(snapshot: Parts) -> tuple[Parts, str | None]:
    """A snapshot without pickled states of other users; and a line if there were any."""
    values = dict(snapshot.get(ENVIRONMENTS, {}))
    signature, pickled = values.pop(SIGNATURE, None), _pickled(values)
    if not pickled:
        return snapshot, None
    line = None
    if not (_trusting or _is_own(_digest(values, pickled), signature)):
        values = {name: value for name, value in values.items() if name not in pickled}
        line = (
            "the environments' states are pickled and not signed with your key: "
            "new episodes begin (--trust goes on with the old ones)"
        )
    return {**snapshot, ENVIRONMENTS: values}, line


def _pickled(values: dict[str, Any]) -> list[str]:
    states = {name: value for name, value in values.items() if name.startswith("state_")}
    return sorted(name for name, value in states.items() if needs_pickle(bytes(value[:1])))


def _digest(values: dict[str, Any], names: list[str]) -> bytes:
    parts = [f"{name} {hashlib.sha256(bytes(values[name])).hexdigest()}" for name in names]
    return b"states" + "\n".join(parts).encode()
