"""Wrappers by name: 'module:Name', or with arguments 'module:Name(stack_size=4)'.

Arguments are literals: numbers, text, truth values, None, and lists, tuples and dicts of these.
They are read, not executed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from types import FunctionType
from typing import Any, NamedTuple

import gymnasium

from p3s.errors import UserError, in_words
from p3s.registry import search_current_folder

PATTERN = re.compile(r"([\w.]+):(\w+)(\(.*\))?", re.DOTALL)


class WrapperName(NamedTuple):
    """A wrapper as a user names it, taken apart."""

    module: str
    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012


def parse_wrapper(text: str) -> WrapperName:
    """Module, name and arguments of a wrapper; UserError if it is not written so."""
    match = PATTERN.fullmatch(text.strip())
    if match is None:
        raise UserError(
            f"a wrapper is named module:Name or module:Name(stack_size=4), not {text!r}", "wrappers"
        )
    module, name, arguments = match.groups()
    if arguments is None:
        return WrapperName(module, name)
    try:
        call = ast.parse(name + arguments, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise SyntaxError("not one pair of brackets")
        args = tuple(map(ast.literal_eval, call.args))
        kwargs = {word.arg or "**": ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise _not_literals(text) from error
    if "**" in kwargs or len(kwargs) < len(call.keywords):
        raise _not_literals(text)
    return WrapperName(module, name, args, kwargs)


def _not_literals(text: str) -> UserError:
    return UserError(
        f"the arguments of the wrapper {text} cannot be read: give numbers, text in quotes, True, "
        "False, None, lists or dicts of these, as in module:Name(stack_size=4)",
        "wrappers",
    )


def wrapped(env: gymnasium.Env, text: str) -> gymnasium.Env:
    """The environment in a wrapper that is named like this."""
    wrapper = parse_wrapper(text)
    search_current_folder()
    try:
        wrap = getattr(importlib.import_module(wrapper.module), wrapper.name)
        if not _can_wrap(wrap, wrapper.module):
            raise TypeError("it is neither a gymnasium.Wrapper nor a function of that module")
        _check_arguments(wrap, env, text, wrapper)
        made = wrap(env, *wrapper.args, **wrapper.kwargs)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the wrapper {text} cannot be made: {in_words(error)}") from error
    if not isinstance(made, gymnasium.Env):
        raise UserError(f"the wrapper {text} made a {type(made).__name__}, not a gymnasium.Env")
    return made


def _can_wrap(wrap: Any, module: str) -> bool:
    """Whether something is made to wrap environments: not everything that can be called is."""
    if isinstance(wrap, type):
        return issubclass(wrap, gymnasium.Wrapper)
    return isinstance(wrap, FunctionType) and wrap.__module__ == module


def _check_arguments(wrap: Any, env: gymnasium.Env, text: str, wrapper: WrapperName) -> None:
    """Refuse arguments that a wrapper does not take, and say which it does."""
    try:
        signature = inspect.signature(wrap)
    except ValueError:  # it does not say
        return
    names = [name for name in list(signature.parameters)[1:] if name not in ("args", "kwargs")]
    any_word = any(each.kind == each.VAR_KEYWORD for each in signature.parameters.values())
    strange = [word for word in wrapper.kwargs if word not in names and not any_word]
    try:
        signature.bind(env, *wrapper.args, **wrapper.kwargs)
    except TypeError as error:
        problem = f"it takes no argument {strange[0]!r}" if strange else str(error)
        takes = f"it takes {', '.join(names)}" if names else "it takes none"
        raise UserError(
            f"the wrapper {text} cannot be made: {problem} ({takes})", "wrappers"
        ) from error
