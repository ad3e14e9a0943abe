"""Errors that are part of the interface: one clear line, what was wrong and what would be right."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can fix; the command line prints it and exits with code 2."""


class TrainingStopped(UserError):
    """A training that cannot continue: its environment raised, or a number is not finite."""


class ShardLost(TrainingStopped):
    """A part of a run is gone, with its process or its machine."""


def note(text: str) -> None:
    """Tell the user something that does not end the run, in one line."""
    print(f"note: {text}", file=sys.stderr)


def printable(text: str) -> str:
    """A text from a file or a user without what would steer a terminal."""
    steering = (unicodedata.category(sign) == "Cc" and sign not in "\n\t" for sign in text)
    return "".join("�" if steers else sign for sign, steers in zip(text, steering, strict=True))


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """An error for a name that does not exist, with similar names."""
    known = sorted(known)
    near = get_close_matches(name, known, n=3, cutoff=0.6)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif len(known) <= 20:
        hint = f"known: {', '.join(known)}"
    else:
        hint = f"none of the {len(known)} known names is similar"
    return UserError(f"unknown {kind} {name!r}: {hint}")


def environment_error(when: str, learner: int, error: Exception) -> TrainingStopped:
    """The error for an exception that an environment raised."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return TrainingStopped(f"the environment of learner {learner} raised {when}: {text}")
