"""Every hyper-parameter has a docstring in the code and a line in the documentation."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap

import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config.options import RunOptions
from p3s.schemes import SCHEMES
from tests.helpers import ROOT

GROUPS = (RunOptions, *SCHEMES.values(), *ALGORITHMS.values())
NO_HYPER_PARAMETER = {"algorithm"}
"""A field of schemes that holds another group of fields."""


def fields_with_docs(source: str) -> dict[str, bool]:
    """The annotated fields of a class, and whether a docstring directly follows each of them."""
    (made,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for node, following in zip(made.body, [*made.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if "ClassVar" not in ast.unparse(node.annotation):
            found[node.target.id] = (
                isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            )
    return found


def undocumented(*sources: str) -> set[str]:
    """The fields without a docstring; the sources are those of a class and its bases, bases first.

    A field may go without one only if a base documents it.
    """
    documented, missing = set(), set()
    for source in sources:
        for name, has_docs in fields_with_docs(source).items():
            if has_docs:
                documented.add(name)
            elif name not in documented:
                missing.add(name)
    return missing


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_every_field_has_a_docstring(group):
    bases = [base for base in reversed(group.__mro__) if dataclasses.is_dataclass(base)]
    sources = [inspect.getsource(base) for base in bases]
    seen = {name for source in sources for name in fields_with_docs(source)}
    assert seen >= {field.name for field in dataclasses.fields(group)}
    assert undocumented(*sources) - NO_HYPER_PARAMETER == set()


class TestTheCheckItself:
    base = '''
    class Base:
        """Mentions rate: float = 1.0, which documents nothing."""

        kind: ClassVar[str] = "base"
        rate: float = 1.0
        """Said here."""
        period: int = 2
        size: int = 3  # a comment is not a docstring

        def problem(self):
            """Follows a field at a distance."""
    '''

    def test_a_field_without_a_docstring_is_found(self):
        assert undocumented(self.base) == {"period", "size"}

    def test_an_override_needs_one_only_if_no_base_has_it(self):
        override = "class Derived(Base):\n    rate: float = 2.0\n    size: int = 4"
        assert undocumented(self.base, override) == {"period", "size"}
        assert undocumented(override) == {"rate", "size"}

    def test_a_docstring_below_does_not_mend_a_base_without_one(self):
        derived = 'class Derived(Base):\n    period: int = 4\n    """Said too late."""'
        assert "period" in undocumented(self.base, derived)


@pytest.mark.parametrize("name", SCHEMES)
def test_page_names_every_field(name):
    pages = ROOT / "docs" / "schemes"
    text = (pages / f"{name}.md").read_text() + (pages / "README.md").read_text()
    fields = {field.name for field in dataclasses.fields(SCHEMES[name])} - NO_HYPER_PARAMETER
    missing = {field for field in fields if f"`--{field.replace('_', '-')}`" not in text}
    assert not missing
