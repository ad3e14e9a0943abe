"""One run as a TOML file: `p3s train --config FILE.toml`.

    env = "Hopper-v5"
    scheme = "p3s"                  algorithm, preset, delay, wrappers, loggers: as in p3s train
    num_learners = 4                any field by its name
    hidden_sizes = [64, 64]
    [env_kwargs]                    arguments of the environment

An error names the file and the line of the key that it is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from p3s.config.run import Config, field_values
from p3s.config.spec import RunSpec
from p3s.config.toml_lines import Positions, parse_toml
from p3s.errors import UserError
from p3s.fields.names import RENAMED_WORDS
from p3s.fields.types import as_field

_NAMES = {field.name for field in fields(RunSpec)} - {"fields", "origins"}


def read_run_file(path: Path) -> RunSpec:
    """The run that a file declares; its fields are checked when it is resolved."""
    text = read_text(path)
    content, lines = parse_toml(text, str(path)), Positions(text)
    origins = {key: f"{path}:{lines.line((key,))}" for key in ("env", *content)}
    for old, new in RENAMED_WORDS.items():
        if old in content:
            content.setdefault(new, content.pop(old))
            origins.setdefault(new, origins.pop(old))
    names: dict[str, Any] = {key: value for key, value in content.items() if key in _NAMES}
    values = {key: value for key, value in content.items() if key not in _NAMES}
    spec = RunSpec(names.pop("env", ""), **names, fields=values, origins=origins)
    with spec.located():
        if "env" not in content:
            raise UserError('which environment? env = "Hopper-v5"', "env")
        as_field("env", spec.env, str)
        try:
            json.dumps(spec.env_kwargs)
        except TypeError as error:
            message = "env_kwargs: numbers, text, truth values and lists, no dates or times"
            raise UserError(message, "env_kwargs") from error
        return spec.typed()


def read_text(path: Path) -> str:
    """The text of a user's file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {what}") from error


def run_file_text(config: Config, loggers: Sequence[str] = ()) -> str:
    """The text of the file of a run: every value that it has, and where it is logged."""
    if config.env is None:
        raise UserError("the environment of this run is a Python callable: no file can name it")
    env = config.env
    top: dict[str, Any] = {
        "env": env.id,
        "scheme": config.scheme.name,
        "algorithm": config.algorithm.name,
        "preset": config.preset,
        "delay": env.delay,
        "wrappers": env.wrappers or None,
        "loggers": tuple(loggers) or None,
    }
    groups = {
        "run": vars(config.options),
        "scheme": field_values(config.scheme),
        "algorithm": field_values(config.algorithm),
    }
    lines = [_line(key, value) for key, value in top.items() if value is not None]
    for name, values in groups.items():
        lines += ["", f"# {name}"]
        lines += [_line(key, value) for key, value in values.items() if value is not None]
    if env.kwargs:
        lines += ["", "[env_kwargs]", *(_line(key, value) for key, value in env.kwargs.items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any) -> str:
    """A key and its value; numbers, text, truth values and lists are written as in JSON."""
    name = key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key)
    return f"{name} = {json.dumps(value)}"
