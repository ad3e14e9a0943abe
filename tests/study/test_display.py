"""What a study shows."""

from __future__ import annotations

from p3s.study.cells import make_cells
from p3s.study.display import status_table, summary
from p3s.study.folder import Progress
from tests.helpers_studies import GRID, study_of


class TestDisplay:
    def test_summary_and_a_table_that_fits(self):
        cells = make_cells(study_of(GRID))
        progress = {cell.id: Progress("waiting") for cell in cells}
        progress[cells[3].id] = Progress("running", 100, 1.0, 10.0)
        progress[cells[4].id] = Progress("complete", 500, 1.0, 10.0)
        text = summary(cells, progress).plain
        assert text == "12 cells: 1 running, 10 waiting, 1 complete, about 9 min left"
        table = status_table(cells, progress, 5)
        assert table.row_count == 5
        assert next(iter(table.columns[0].cells)) == cells[3].method.label
        assert list(table.columns[0].cells)[-1] == "... and 8 more"
        assert status_table(cells, progress).row_count == 12
