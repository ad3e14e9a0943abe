"""What `Population.learn` is given: steps, and who listens; words of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from p3s.callbacks import Callback
from p3s.errors import UserError
from p3s.fields.names import IN_LEARN

Function = Callable[..., Any]


def whole_steps(steps: Any) -> int:
    """A number of steps; UserError for what is none."""
    if steps is None:
        raise UserError("say how many steps to learn: learn(100_000)")
    if isinstance(steps, np.number):
        steps = steps.item()
    whole = isinstance(steps, int | float) and not isinstance(steps, bool)
    if not whole or steps % 1 != 0:
        raise UserError(f"steps must be a whole number, not {steps!r}")
    if steps < 1:
        raise UserError(f"steps must be at least 1, not {steps}")
    return int(steps)


def sorted_listeners(
    given: Callback | Function | Sequence[Callback | Function] | None,
) -> tuple[list[Callback], list[Function]]:
    """The callbacks and the functions among those who listen."""
    one = callable(given) or isinstance(given, Callback)
    listeners: list[Any] = [given] if one else list(given or ())  # type: ignore[reportArgumentType]
    for each in listeners:
        if isinstance(each, type) or not (callable(each) or isinstance(each, Callback)):
            known = "a function or an instance of p3s.callbacks.Callback"
            raise UserError(f"a callback is {known}, not {each!r}")
    own = [each for each in listeners if isinstance(each, Callback)]
    return own, [each for each in listeners if not isinstance(each, Callback)]


def name_of(function: Function) -> str:
    """What a function is called in messages."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return "a function" if "<lambda>" in name else name.split("<locals>.")[-1]


def refuse_words_of_others(names: Iterable[str]) -> None:
    """Answer an argument of another library's `learn` with what it is here."""
    for name in names:
        if name in IN_LEARN:
            raise UserError(f"learn takes no {name}: {IN_LEARN[name]}", name)
        raise TypeError(f"learn() got an unexpected keyword argument {name!r}")
