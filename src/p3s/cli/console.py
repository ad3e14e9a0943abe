"""Where tables are printed."""

from __future__ import annotations

from rich.console import Console

WIDTH_OF_A_FILE = 200


def table_console() -> Console:
    """As wide as the terminal; in a pipe or a file wide enough that no table is cut."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH_OF_A_FILE)
    return console
