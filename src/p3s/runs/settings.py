"""The settings of a run as people name them: by labels, and as a flat table of dotted names."""

from __future__ import annotations

from typing import Any

from p3s.config.presets import DEFAULT_PRESET
from p3s.envs.names import PAPER_DELAY, PAPER_ENVIRONMENTS, EnvName
from p3s.errors import printable
from p3s.fields.names import RENAMED

NOT_SETTINGS = ("environment", "scheme_fields", "algorithm_fields", "seed", "tensorboard",
                "log", "loggers", "versions", "commit", "machine", "signature")  # fmt: skip
"""Keys of config.json that are shown otherwise, or say nothing about what was run."""


def method_label(config: dict[str, Any]) -> str:
    """Scheme and algorithm, with the preset unless it is the default."""
    preset = "" if config["preset"] == DEFAULT_PRESET else f" ({config['preset']})"
    return printable(f"{config['scheme']}-{config['algorithm']}{preset}")


def environment_label(name: EnvName) -> str:
    """An environment's label: 'Hopper-v5', 'Delayed Ant-v5' or 'Pendulum-v1, delay 5, g 9.8'.

    Arguments that the paper's name implies are left out.
    """
    late = name.delay == PAPER_DELAY and name.family in PAPER_ENVIRONMENTS
    delay = {} if late or name.delay is None else {"delay": name.delay}
    implied = PAPER_ENVIRONMENTS.get(name.family, {})
    given = {key: value for key, value in name.kwargs.items() if implied.get(key) != value}
    words = [f"{key} {value}" for key, value in {**delay, **given}.items()]
    return printable(", ".join([f"Delayed {name.id}" if late else name.id, *words]))


def label_of(environment: dict[str, Any] | None) -> str:
    """The label of the environment in a configuration."""
    return "custom" if environment is None else environment_label(EnvName.from_json(environment))


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """Every setting of a run by its dotted name of today, without the seed and the provenance."""
    flat = {
        RENAMED.get(name, name): value for name, value in config.items() if name not in NOT_SETTINGS
    }
    if "environment" in config:
        kwargs = (config["environment"] or {}).get("kwargs", {})
        arguments = {f"environment.{name}": value for name, value in kwargs.items()}
        flat = {"environment": label_of(config["environment"]), **arguments, **flat}
    for group in ("scheme", "algorithm"):
        fields = config.get(f"{group}_fields", {})
        flat |= {f"{group}.{RENAMED.get(name, name)}": value for name, value in fields.items()}
    return flat
