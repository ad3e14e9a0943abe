"""What a beginner is shown: the options that matter, and what there is to train on."""

from __future__ import annotations

import importlib
import shutil
import textwrap
from typing import Any

import gymnasium

from p3s.cli.envs import newest_versions
from p3s.config.environments import ENVIRONMENTS
from p3s.envs.names import parse_name
from p3s.envs.packages import PACKAGES, quoted
from p3s.envs.prefixes import PREFIXES
from p3s.fields.docs import field_docs

ESSENTIAL = (
    "scheme", "algorithm", "preset", "delay", "env_kwargs", "wrappers", "config", "out", "loggers",
    "seed", "steps", "evaluation_period", "env_workers", "stop_at",
    "num_learners", "envs_per_learner", "review_period", "updates_per_step",
    "hidden_sizes", "learning_rate", "batch_size",
)  # fmt: skip
"""The options of `p3s train --help`."""
FAMILIES = {
    "classic_control": ("classic control", None),
    "mujoco": ("MuJoCo", "mujoco"),
    "box2d": ("Box2D", "Box2D"),
    "toy_text": ("toy text", None),
}
"""Gymnasium's own families: by the last name of their package, with the module that they need."""
HANDFUL = 5
"""Ids that are shown of a family."""
COLUMN = 24
WIDEST = 100


def short_help(arguments: list[str]) -> int:
    """Print the options of `p3s train` that matter, with the values that this run would have."""
    from p3s.cli.train import Method, parse_train

    words = [word for word in arguments if word not in ("-h", "--help")]
    named = bool(words) and not words[0].startswith("-")
    config, output = parse_train(words if named else ["ENV", *words])
    env: Any = config.env
    method = {
        "scheme": config.scheme.name,
        "algorithm": config.algorithm.name,
        "preset": config.preset,
        "delay": env.delay,
        "env_kwargs": env.kwargs,
        "wrappers": env.wrappers,
    }
    groups = [(Method, method)] + [
        (type(group), {k: value for k, value in vars(group).items() if k not in method})
        for group in (output, config.options, config.scheme, config.algorithm)
    ]
    print(f"usage: p3s train {words[0] if named else 'ENV'} [options]\n")
    for group, values in groups:
        docs = field_docs(group)
        for name in [name for name in ESSENTIAL if name in values]:
            _print_option(name, values[name], docs[name])
    print("\np3s train ENV --help-all shows every option with all its choices.")
    return 0


def _print_option(name: str, value: Any, text: str) -> None:
    """A flag and what it does, side by side, with the value it has in brackets."""
    shown = " ".join(map(str, value)) if isinstance(value, tuple | dict) else str(value)
    text += f" [{shown}]" if shown not in ("", "None") else ""
    width = min(shutil.get_terminal_size().columns, WIDEST) - COLUMN - 2
    first, *others = textwrap.wrap(text, max(width, 30))
    print(f"  --{name.replace('_', '-'):<{COLUMN - 2}}{first}")
    for line in others:
        print(" " * (COLUMN + 2) + line)


def say_what_there_is() -> None:
    """Print what can be trained on here, family by family, and what others need."""
    print("Environments that are installed here (p3s envs lists them with their sizes):\n")
    missing = list[tuple[str, str]]()
    for title, module, ids in families():
        if module is None or _imports(module):
            print(f"  {title:<{COLUMN}}{', '.join(ids)}")
        else:
            missing.append((title, f"pip install 'p3s[{module.lower()}]'"))
    for package in PACKAGES:
        if package.is_installed:
            print(f"  {package.install:<{COLUMN}}{package.module}:{package.example}")
        else:
            missing.append((package.install, f"pip install {quoted(package.install)}"))
    for kind in PREFIXES.values():
        if kind.is_installed:
            print(f"  {kind.what:<{COLUMN}}{kind.example}")
        else:
            missing.append((kind.what, f"pip install {kind.install}"))
    own = "module:Name-v0, which the module registers, or module:make"
    print(f"  {'your own':<{COLUMN}}{own}")
    if missing:
        print("\nNot installed:\n")
        for title, install in missing:
            print(f"  {title:<{COLUMN}}{install}")
    print("\nTo begin with: p3s train CartPole-v1\n", flush=True)


def families() -> list[tuple[str, str | None, list[str]]]:
    """Families of Gymnasium's registry, what they need, and some of their ids."""
    known = list(ENVIRONMENTS)  # tried with p3s, so these come first, and alone

    found: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for env_id in newest_versions():
        module = str(gymnasium.registry[env_id].entry_point).partition(":")[0]
        name = module.removeprefix("gymnasium.envs.").partition(".")[0]
        if name in found:
            found[name].append(env_id)
    rows = list[tuple[str, str | None, list[str]]]()
    for name, ids in found.items():
        tried = [env_id for env_id in ids if parse_name(env_id).family in known]
        tried.sort(key=lambda env_id: known.index(parse_name(env_id).family))
        title, module = FAMILIES[name]
        rows.append((title, module, (tried or ids)[:HANDFUL]))
    return rows


def _imports(module: str) -> bool:
    try:
        importlib.import_module(module)
    except Exception:  # whatever a broken installation raises
        return False
    return True
