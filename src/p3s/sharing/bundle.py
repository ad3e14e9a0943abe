"""What a run shares: a folder with its policy, configuration, results, curve, film and card.

    policy.safetensors   the best policy, or the last one; safe to open
    config.json          the run's configuration, less its signature and its cluster's address
    results.json         the returns of fresh noiseless episodes, and their mean
    curve.png            the report's learning curve, where matplotlib is there
    replay.mp4           an episode, where a film can be made
    README.md            the card, see card.py

The card is written last: a folder that has one is whole.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p3s.errors import UserError, in_words, note
from p3s.policies.film import film
from p3s.policies.hub import POLICY, HubName
from p3s.policies.policy import Policy
from p3s.policies.trained import evaluate, load
from p3s.report.curves import method_curve
from p3s.report.figures import save_curves
from p3s.report.results import Results, read_run
from p3s.runs.checksums import with_checksum
from p3s.runs.files import make_folder, remove, write_text
from p3s.runs.provenance import version_of
from p3s.runs.records import read_config
from p3s.runs.trust import SIGNATURE
from p3s.sharing.card import card_text

CARD, CONFIG, RESULTS, CURVE, FILM = (
    "README.md", "config.json", "results.json", "curve.png", "replay.mp4",
)  # fmt: skip
FILES = (POLICY, CONFIG, RESULTS, CURVE, FILM, CARD)
"""All that is shared."""


@dataclass(frozen=True)
class Bundle:
    """What of a run is shared, and how it is evaluated."""

    run: Path
    name: HubName
    last: bool = False
    """The last policy in place of the best."""
    episodes: int = 10
    seed: int = 0
    video: bool = True


def write_bundle(bundle: Bundle, folder: Path) -> dict[str, Any]:
    """Write the folder; its results."""
    record, policy = _read(bundle)
    _check_empty(folder)
    returns = evaluate(policy, None, bundle.episodes, bundle.seed)
    results = _results(policy, returns, bundle.seed)
    make_folder(folder)
    for name in (CARD, CURVE, FILM):
        remove(folder / name)
    policy.save(folder / POLICY)
    write_text(folder / CONFIG, json.dumps(with_checksum(_shared(record)), indent=2) + "\n")
    write_text(folder / RESULTS, json.dumps(results, indent=2) + "\n")
    _draw_curve(bundle.run, folder / CURVE)
    if bundle.video:
        _film(policy, folder / FILM, bundle.seed)
    has_curve = (folder / CURVE).exists()
    write_text(folder / CARD, card_text(bundle.name, record, results, has_curve))
    return results


def _read(bundle: Bundle) -> tuple[dict[str, Any], Policy]:
    """The configuration of the run and its policy, if it names an environment to play on."""
    record = read_config(bundle.run)
    policy = load(bundle.run, last=bundle.last)
    if policy.about.get("environment") is None:
        raise UserError(
            f"{bundle.run} was trained on a Python callable, which nobody else has: register the "
            "environment with Gymnasium, and train on its id"
        )
    return record, policy


def _check_empty(folder: Path) -> None:
    """Refuse a folder with anything in it that is not shared."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: give a folder to write")
    for found in folder.iterdir() if folder.exists() else ():
        if found.name not in FILES:
            raise UserError(f"{folder} holds {found.name}: give an empty folder")


def _shared(record: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what is of use to its owner alone."""
    bare = {key: value for key, value in record.items() if key != SIGNATURE}
    return {**bare, "address": None}


def _results(policy: Policy, returns: np.ndarray, seed: int) -> dict[str, Any]:
    """The results, by the names that Stable-Baselines3's users know, and more."""
    return {
        "mean_reward": float(returns.mean()),
        "std_reward": float(returns.std(ddof=1)) if len(returns) > 1 else 0.0,
        "is_deterministic": True,
        "n_eval_episodes": len(returns),
        "eval_datetime": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "returns": returns.tolist(),
        "seed": seed,
        "environment": policy.about["environment"],
        "policy": policy.about.get("run"),
        "p3s": version_of("p3s"),
    }


def _draw_curve(run: Path, path: Path) -> None:
    """The run's learning curve; without one a line says why."""
    try:
        found, _ = read_run(run)
        if not found.evaluations:
            raise UserError(f"{run} has no evaluations")
        curve = method_curve([found], np.random.default_rng(0))
        save_curves(Results("", [found]), [curve], path)
    except UserError as error:
        note(f"no learning curve: {error}")


def _film(policy: Policy, path: Path, seed: int) -> None:
    """A film of one episode; without one a line says why."""
    try:
        film(policy, path, partial(policy.make_env, "rgb_array"), seed)
    except UserError as error:
        note(f"no film: {error}")
    except Exception as error:  # whatever a renderer raises
        note(f"no film: {in_words(error)}")
