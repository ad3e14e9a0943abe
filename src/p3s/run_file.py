"""One run as a TOML file: `p3s train --config FILE.toml`.

    env = "Hopper-v5"
    scheme = "p3s"                  algorithm, preset, delay, wrappers, log: as on the command line
    num_learners = 4                any field by its name
    hidden_sizes = [64, 64]
    [env_kwargs]                    arguments of the environment

An error names the file and the line of the key that it is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p3s.config import Config, field_values, resolve
from p3s.envs import EnvName, parse_name
from p3s.errors import UserError
from p3s.field_types import Mismatch, convert
from p3s.presets import DEFAULT_PRESET
from p3s.toml_lines import Positions, parse_toml

_METHOD = {
    "env": str,
    "scheme": str,
    "algorithm": str,
    "preset": str,
    "delay": int | str,
    "wrappers": tuple[str, ...],
    "log": tuple[str, ...],
    "env_kwargs": dict,
}


@dataclass(frozen=True)
class RunFile:
    """What a file says of a run."""

    file: str = ""
    text: str = ""
    env: str = ""
    scheme: str = "p3s"
    algorithm: str | None = None
    preset: str = DEFAULT_PRESET
    delay: Any = None
    wrappers: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def environment(self) -> EnvName:
        """The environment with its arguments."""
        return parse_name(self.env, self.delay, self.env_kwargs, self.wrappers)

    def resolve(self) -> Config:
        """The configuration of the run; an error names the line."""
        try:
            config = resolve(
                self.environment, self.scheme, self.algorithm, self.preset, **self.fields
            )
            config.check()
        except UserError as error:
            words = re.findall(r"\w+", str(error))
            keys = [*self.fields, *_METHOD]
            blamed = next((key for key in keys if key in words), None)
            names = {"scheme": self.scheme, "algorithm": self.algorithm, "preset": self.preset}
            named = next((key for key, name in names.items() if name in words), "env")
            raise self.problem(blamed or named, str(error)) from error
        return config

    def problem(self, key: str, message: str) -> UserError:
        """An error that names the file and the line of a key."""
        return UserError(f"{self.file}:{Positions(self.text).line((key,))}: {message}")


def read_run_file(path: Path) -> RunFile:
    """Read a file; names and fields are checked when it is resolved."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        ) from error
    content = parse_toml(text, str(path))
    blank = RunFile(str(path), text)
    method = {key: value for key, value in content.items() if key in _METHOD}
    for key, value in method.items():
        try:
            method[key] = convert(value, _METHOD[key])
        except Mismatch as error:
            raise blank.problem(key, f"{key}: {error}") from error
    try:
        json.dumps(method.get("env_kwargs", {}))
    except TypeError as error:
        message = "env_kwargs: numbers, text, truth values and lists, no dates or times"
        raise blank.problem("env_kwargs", message) from error
    if "env" not in method:
        raise blank.problem("env", 'which environment? env = "Hopper-v5"')
    fields = {key: value for key, value in content.items() if key not in _METHOD}
    return RunFile(str(path), text, fields=fields, **method)


def run_file_text(config: Config, log: Sequence[str] = ()) -> str:
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
        "log": tuple(log) or None,
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
