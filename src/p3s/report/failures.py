"""Why a run of a study failed: failures/<id>.json."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from p3s.fields.checks import is_whole
from p3s.runs.checksums import parse_json
from p3s.runs.files import read_bytes, write_text


@dataclass(frozen=True)
class Failure:
    """An error in one line, where it was raised, and the step if it is known."""

    error: str
    traceback: str = ""
    step: int | None = None


def read_failure(path: Path, read: Callable[[Path], bytes] = read_bytes) -> Failure | None:
    """What a failure record says; None if there is no record."""
    try:
        record = parse_json(read(path))
        step = record.get("step")
        told = str(record["error"]), str(record.get("traceback") or "")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Failure(f"{path} cannot be read")
    return Failure(*told, step if is_whole(step) else None)


def write_failure(path: Path, failure: Failure) -> None:
    """Record why a run failed."""
    record = {
        "error": failure.error.strip().split("\n")[0],
        "traceback": failure.traceback,
        "step": failure.step,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(record, indent=1) + "\n")
