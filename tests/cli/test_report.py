"""`p3s report`: where it writes, and what bad input gets."""

from __future__ import annotations

import shutil

import pytest

from p3s.cli import main
from p3s.cli.train import parse_train
from p3s.report.export import export_results, load_results, results_of
from p3s.report.page import build_report, render_report
from p3s.report.results import read_results
from tests.helpers import page_data
from tests.synthetic_runs import ENVS


class TestCommand:
    def test_no_report_arrives(self):
        for words, report in (([], True), (["--no-report"], False)):
            assert parse_train(["Pendulum-v1", *words])[1].report is report

    def call(self, capsys, *arguments) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["report", *map(str, arguments)])
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    def test_writes_where_told(self, capsys, study, tmp_path):
        page = tmp_path / "new/page.html"
        for runs in (study, study / "runs/td3-ant-v1-0"):
            code, output, _ = self.call(capsys, runs, "-o", page, "--title", "T & T")
            assert (code, output) == (0, f"wrote {page}\n")
            assert "<title>T &amp; T</title>" in page.read_text()

    @pytest.mark.parametrize("suffix", ["parquet", "csv"])
    def test_a_page_of_an_exported_table(self, capsys, own_study, tmp_path, monkeypatch, suffix):
        monkeypatch.chdir(tmp_path)
        table = export_results(own_study, tmp_path / f"mine.{suffix}")
        code, output, _ = self.call(capsys, table, "--figures", "pictures")
        assert code == 0
        assert output.startswith("wrote report.html\n")
        text = (tmp_path / "report.html").read_text()
        assert "<title>mine</title>" in text
        whole = render_report(build_report(read_results([own_study])))
        ours, theirs = page_data(text), page_data(whole)
        assert [panel["name"] for panel in ours["panels"]] == list(ENVS)
        assert ours["iqm"] == theirs["iqm"]
        assert ours["panels"][0]["series"][0]["x"] == theirs["panels"][0]["series"][0]["x"]

    def test_a_page_of_tables_and_folders(self, capsys, own_study, tmp_path):
        table = export_results(own_study, tmp_path / "there.csv")
        page = tmp_path / "page.html"
        for envs in ("hopper", "ant"):
            for run in (own_study / "runs").glob(f"*-{envs}-*-0"):
                shutil.rmtree(run)
        assert self.call(capsys, own_study, table, "-o", page)[0] == 0
        whole = render_report(build_report(results_of(load_results(table))))
        ours, theirs = (
            [(row["name"], round(row["value"], 9)) for row in page_data(text)["iqm"]]
            for text in (page.read_text(), whole)
        )
        assert ours == theirs

    def test_a_table_of_something_else(self, capsys, tmp_path):
        other = tmp_path / "other.csv"
        for text, message in (
            ("a,b\n1,2\n", "it has no column 'run'"),
            ("", f"{other} cannot be read"),
        ):
            other.write_text(text)
            code, _, errors = self.call(capsys, other)
            assert (code, errors.count("\n")) == (2, 1)
            assert message in errors

    def test_bad_input(self, capsys, study, tmp_path):
        for arguments, message in (
            ([], "give run folders"),
            ([tmp_path], "holds no run"),
            ([study, "-o", "report.pdf"], "the page is written as .html, not 'report.pdf'"),
        ):
            code, _, errors = self.call(capsys, *arguments)
            assert code == 2
            assert message in errors
