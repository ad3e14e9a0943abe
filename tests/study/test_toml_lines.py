"""Lines of keys in a TOML file."""

from __future__ import annotations

import re
import tomllib

import pytest

from p3s.config.toml_lines import Positions
from p3s.study.catalog import catalog


class TestPositions:
    TEXT = '''# name = 1
name = "x"
environments = [
  "Hopper-v5",  # ] not the end
  {id = "Ant-v5", delay = 20},
]
title = """
[methods]
steps = 1
"""
"quoted key" = 1
a.b = 2

[[methods]]
label = "one"
[methods.grid]
d_min = [1]
[[ methods ]]  # two

scheme = "p3s"
[paper."P3S [x] = y"]
"Hopper-v5" = 3
[fields]'''

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            (("name",), 2),
            (("environments",), 3),
            (("environments", 1, "delay"), 5),
            (("title",), 7),
            (("quoted key",), 11),
            (("a", "b"), 12),
            (("methods", 0), 14),
            (("methods", 0, "label"), 15),
            (("methods", 0, "grid", "d_min"), 17),
            (("methods", 1), 18),
            (("methods", 1, "scheme"), 20),
            (("methods", 1, "label"), 18),
            (("paper", "P3S [x] = y"), 21),
            (("paper", "P3S [x] = y", "Hopper-v5"), 22),
            (("fields",), 23),
            (("nowhere",), 1),
        ],
    )
    def test_line_of_a_key(self, path, line):
        assert Positions(self.TEXT).line(path) == line

    @pytest.mark.parametrize("name", catalog())
    def test_every_key_of_a_real_file_is_found(self, name):
        text = catalog()[name].read_text()
        lines, positions, found = text.split("\n"), Positions(text), set()

        def look(table, path):
            for key, value in table.items():
                if isinstance(value, dict):
                    look(value, (*path, key))
                elif isinstance(value, list) and positions.span((*path, key)) is None:
                    for index, entry in enumerate(value):  # [[tables]], each with its own header
                        look(entry, (*path, key, index))
                else:
                    first, _ = positions.span((*path, key))
                    assert re.match(rf'"?{re.escape(key)}"? = ', lines[first - 1])
                    found.add(first)

        look(tomllib.loads(text), ())
        assert len(found) == len(re.findall(r'^["\w-]+.* = ', text, re.MULTILINE))

    def test_line_of_a_word_in_a_long_value(self):
        assert Positions(self.TEXT).line(("environments",), "Hopper-v5") == 4

    def test_span_of_a_long_value(self):
        assert Positions(self.TEXT).span(("environments",)) == (3, 6)
        assert Positions(self.TEXT).span(("title",)) == (7, 10)
