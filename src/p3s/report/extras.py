"""Optional packages: imported when needed, with an install hint if they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from p3s.errors import UserError


def require_matplotlib() -> Any:
    """matplotlib, or an error that says how to install it."""
    try:
        importlib.import_module("matplotlib.figure")
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise UserError("drawing figures requires matplotlib: pip install 'p3s[study]'") from error


def require_polars() -> Any:
    """polars, or an error that says how to install it."""
    try:
        import polars
    except ImportError as error:
        raise UserError("tables of results require polars: pip install 'p3s[study]'") from error
    return polars
