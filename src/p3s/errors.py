"""Errors that are part of the interface: one clear line, what was wrong and what would be right."""

from __future__ import annotations

import shlex
import sys
import traceback
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can fix; the command line prints it and exits with code 2.

    field: the field, or the name, that it is about, if it is about one.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ForeignModules(UserError):
    """Modules that someone else's file names and that the user has not imported."""

    def __init__(self, whose: str, modules: Iterable[str]) -> None:
        self.modules = list(dict.fromkeys(modules))
        named = " and ".join(map(repr, self.modules))
        kind = "a module" if len(self.modules) == 1 else "modules"
        self.found = f"{whose} names {kind} that you have not imported: {named}"
        knows = "import it, if you know it, or give trust=True, if you trust all of it"
        super().__init__(f"{self.found} ({knows})")

    def with_command(self, words: list[str]) -> str:
        """The same for a command line: the commands that go on."""
        imports = [word for module in self.modules for word in ("--import", str(module))]
        known, all_of_it = (
            shlex.join(["p3s", *options, *words]) for options in (imports, ["--trust"])
        )
        return f"{self.found}. If you know it: {known}. If you trust all of it: {all_of_it}"


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


def unknown(kind: str, name: str, known: Iterable[str], field: str | None = None) -> UserError:
    """An error for a name that does not exist, with similar names."""
    known = sorted(known)
    near = get_close_matches(name, known, n=3, cutoff=0.6)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif len(known) <= 20:
        hint = f"known: {', '.join(known)}"
    else:
        hint = f"none of the {len(known)} known names is similar"
    return UserError(f"unknown {kind} {name!r}: {hint}", field)


def in_words(error: Exception) -> str:
    """An exception in one phrase; without a message of its own, the line that raised it."""
    kind, text = type(error).__name__, " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    if text or not frames:
        return f"{kind}: {text}"
    last = frames[-1]
    return f"{kind} at {last.filename}:{last.lineno}: {last.line}"


def environment_error(when: str, learner: int, error: Exception) -> TrainingStopped:
    """The error for an exception that an environment raised."""
    text = str(error) if isinstance(error, UserError) else in_words(error)
    return TrainingStopped(f"the environment of learner {learner} raised {when}: {text}")
