"""Optional packages: imported when needed, or one line with the command that installs them."""

from __future__ import annotations

import importlib
from typing import Any

from p3s.errors import UserError


def needed(what: str, extra: str, *modules: str) -> Any:
    """The last of these modules of an extra; UserError says what needs them if one is missing."""
    try:
        return [importlib.import_module(module) for module in modules][-1]
    except ImportError as error:
        raise UserError(f"{what}: pip install 'p3s[{extra}]'") from error


def require_matplotlib() -> Any:
    """matplotlib, which draws figures."""
    what = "drawing figures requires matplotlib"
    return needed(what, "study", "matplotlib.figure", "matplotlib")


def require_polars() -> Any:
    """polars, which makes tables of results."""
    return needed("tables of results require polars", "study", "polars")


def require_optuna() -> Any:
    """optuna, which proposes what trials try."""
    optuna = needed("p3s tune requires optuna", "tune", "optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
