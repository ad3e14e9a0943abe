"""Figures and tables, and colors that everyone can tell apart."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from p3s.cli.report import Options as ReportOptions
from p3s.cli.report import run_report
from p3s.report.figures import COLORS
from p3s.report.page import TEMPLATES
from p3s.report.tables import Table, to_latex, to_markdown

# Colours as people see them who lack one kind of cone (Machado et al. 2009, severity 1).
SIGHT = {
    "usual": np.eye(3),
    "no M cones": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                   [-0.01182, 0.04294, 0.968881]],
    "no L cones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "no S cones": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.3039]],
}  # fmt: skip


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[index : index + 2], 16) for index in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b*, in which distances are about as large as they look."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(light, 0, 1) / [0.9505, 1.0, 1.089]
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("sight", sorted(SIGHT))
def test_colours_can_be_told_apart(sight):
    style = (TEMPLATES / "page.css").read_text()
    light, dark = np.reshape(re.findall(r"--c\d: (#\w{6});", style), (2, 8)).tolist()
    assert tuple(light) == COLORS
    for colours, ground in ((light, "#fdfdfc"), (dark, "#14171a")):
        seen = [lab(np.array(SIGHT[sight]) @ linear(colour)) for colour in colours]
        for one, other in combinations(range(8), 2):
            # Of the first four none has dashes; later ones differ in dashes from those.
            least = 14 if other < 4 else 8
            assert np.linalg.norm(seen[one] - seen[other]) > least
        for colour in colours:
            bright = sorted(
                linear(each) @ [0.2126, 0.7152, 0.0722] + 0.05 for each in (colour, ground)
            )
            assert bright[1] / bright[0] > 3


class TestFiguresAndTables:
    def test_every_figure_and_table(self, study, tmp_path):
        figures = tmp_path / "figures"
        written = run_report(
            ReportOptions(runs=(study,), out=tmp_path / "report.html", figures=figures)
        )
        assert all(path.stat().st_size > 50 for path in written)
        names = {path.name for path in figures.iterdir()}
        for name in ("curves", "profile", "iqm", "population-Hopper-v1", "population-Ant-v1"):
            assert {f"{name}.png", f"{name}.svg", f"{name}.pdf"} <= names
        for name in ("final", "aggregates", "improvement", "lottery"):
            assert {f"{name}.md", f"{name}.tex", f"{name}.csv"} <= names
        header, row, *_ = (figures / "final.csv").read_text().splitlines()
        values = dict(zip(header.split(","), row.split(","), strict=True))
        assert (values["environment"], values["method"]) == ("Hopper-v1", "P3S-TD3")
        assert float(values["score_low"]) < float(values["score"]) < float(values["score_high"])
        assert values["paper"] == "3705.92"
        assert "**" in (figures / "final.md").read_text()
        assert r"\textbf{" in (figures / "final.tex").read_text()

    def test_latex_and_markdown_by_hand(self):
        table = Table("t", ["a_b", "50 %"], [["x|y", "1 ± 2"], ["{z}", "–"]], frozenset({(0, 1)}))
        assert to_markdown(table).splitlines() == [
            "| a_b | 50 % |", "| --- | ---: |", "| x\\|y | **1 ± 2** |", "| {z} | – |",
        ]  # fmt: skip
        assert to_latex(table).splitlines() == [
            r"\begin{tabular}{lr}", r"\toprule", r"a\_b & 50 \% \\", r"\midrule",
            r"x|y & \textbf{1 $\pm$ 2} \\", r"\{z\} & -- \\", r"\bottomrule", r"\end{tabular}",
        ]  # fmt: skip
