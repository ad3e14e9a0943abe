"""`p3s train ENV --explain`: the value of every field, and where it comes from."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from p3s.cli.console import table_console
from p3s.config.run import Config, field_values


def explain(config: Config) -> None:
    """Print a table; a field that has its own default has nothing in the last column."""
    table = Table("field", "value", "comes from", box=None)
    suited = config.sources.get("algorithm", "")
    groups: tuple[tuple[str, dict[str, Any]], ...] = (
        ("run", vars(config.options)),
        (f"scheme {config.scheme.name}", field_values(config.scheme)),
        (f"algorithm {config.algorithm.name} ({suited})", field_values(config.algorithm)),
    )
    for title, values in groups:
        table.add_row(Text(title, "bold"))
        for name, value in values.items():
            source = config.sources.get(name, "")
            style = "bold" if source else "dim"
            words = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            table.add_row(f"  {name}", Text(words, style), Text(source, style))
    print(f"{config.describe()}, preset {config.preset}")
    table_console().print(table)
