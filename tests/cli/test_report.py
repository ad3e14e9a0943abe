"""`p3s report`: where it writes, and what bad input gets."""

from __future__ import annotations

import pytest

from p3s.cli import main
from p3s.cli.train import parse_train


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

    def test_bad_input(self, capsys, study, tmp_path):
        for arguments, message in (
            ([], "give run folders"),
            ([tmp_path], "holds no run"),
            ([study, "-o", "report.pdf"], "the page is written as .html, not 'report.pdf'"),
        ):
            code, _, errors = self.call(capsys, *arguments)
            assert code == 2
            assert message in errors
