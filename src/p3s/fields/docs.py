"""The docstrings of fields, which follow them in the code."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap


def field_docs(group: type) -> dict[str, str]:
    """What the docstrings of a dataclass and its bases say of each field, in one line."""
    found: dict[str, str] = {}
    for base in reversed(group.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (made,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(made, ast.ClassDef)
        for node, following in zip(made.body, made.body[1:], strict=False):
            match node, following:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
                case _:
                    pass
    return found
