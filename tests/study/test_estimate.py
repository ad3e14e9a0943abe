"""How long a study will take: from its own records, from a timed training, or unknown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from jax import monitoring
from rich.console import Console

from p3s.runs.records import to_json_line, write_config
from p3s.study import estimate
from p3s.study.catalog import find_study
from p3s.study.cells import Cell, make_cells
from p3s.study.estimate import Pace, Stopwatch, cell_seconds
from p3s.study.folder import StudyFolder
from tests.helpers_studies import study_of

PACE = Pace(0.001, 0.0005, 1)


def cells_on(environments: str, seeds: int = 1) -> list[Cell]:
    return make_cells(study_of(f"steps = 10_000\nseeds = {seeds}\nenvironments = {environments}"))


def seconds_of(cells: list[Cell], path) -> tuple[dict[str, float], dict[str, int]]:
    seconds, sources = cell_seconds(cells, StudyFolder(path), 1, Console(quiet=True))
    return seconds, dict(sources)


def write_records(path, cell: Cell, rows: list[tuple[int, int, float]], **changes) -> None:
    run = StudyFolder(path).run(cell)
    run.mkdir(parents=True)
    write_config(run, {**cell.config.to_json(), **changes})
    names = ("step", "updates", "seconds")
    lines = [to_json_line(dict(zip(names, row, strict=True))) for row in rows]
    (run / "metrics.jsonl").write_text("".join(lines))


def test_evaluations_count_at_full_length():
    config = make_cells(find_study("figure5"))[0].config
    # 250 evaluations of 4 learners, then of the champion and the chief's pick, 10 episodes each.
    assert estimate.evaluation_steps(config, 4) == 250 * 6 * 10 * 1000


class TestWhereSpeedsComeFrom:
    def test_runs_of_the_study_are_believed_first(self, tmp_path, monkeypatch):
        monkeypatch.setattr(estimate, "pace_of", lambda *_: pytest.fail("timed"))
        cells = cells_on('["Pendulum-v1"]', seeds=2)
        # 30 seconds until the first updates were compiled; then 2 ms a step, evaluations included.
        write_records(tmp_path, cells[0], [(500, 0, 1.0), (1000, 4, 31.0), (3000, 8000, 35.0)])
        seconds, sources = seconds_of(cells, tmp_path)
        assert seconds == {cell.id: pytest.approx(20.0) for cell in cells}
        assert sources == {"from runs of this study": 1}

    @pytest.mark.parametrize("changes", [{"buffer_size": 5}, {}])
    def test_other_settings_and_runs_that_have_hardly_begun_say_nothing(
        self, tmp_path, monkeypatch, changes
    ):
        monkeypatch.setattr(estimate, "pace_of", lambda *_: PACE)
        (cell,) = cells_on('["Pendulum-v1"]')
        rows = [(1000, 4, 31.0), (3000, 8000, 35.0)]
        write_records(tmp_path, cell, rows if changes else rows[:1], **changes)
        assert seconds_of([cell], tmp_path)[1] == {"timed on this machine": 1}

    def test_each_environment_is_timed(self, tmp_path, monkeypatch):
        timed = []
        monkeypatch.setattr(
            estimate, "pace_of", lambda config, until: timed.append(config.env.id) or PACE
        )
        cells = cells_on('["Pendulum-v1", "CarRacing-v3", {id = "Pendulum-v1", delay = 5}]')
        assert seconds_of(cells, tmp_path)[1] == {"timed on this machine": 3}
        # Rewards that are paid late take no time.
        assert timed == ["Pendulum-v1", "CarRacing-v3"]

    def test_what_takes_too_long_is_unknown(self, tmp_path, monkeypatch):
        monkeypatch.setattr(estimate, "LONGEST", 0.0)
        cells = cells_on('["Pendulum-v1"]')
        assert seconds_of(cells, tmp_path) == ({}, {"unknown": 1})


class TestStopwatch:
    @pytest.fixture
    def play(self, monkeypatch):
        """A training made of laps: seconds, steps, updates, and whether something compiles."""

        def play(laps: list[tuple[float, int, int, bool]]) -> tuple[float, float] | None:
            clock = SimpleNamespace(now=0.0)
            clock.perf_counter = lambda: clock.now
            monkeypatch.setattr(estimate, "time", clock)
            counters = SimpleNamespace(total_steps=0, updates=0)
            crew = SimpleNamespace(stepping_seconds=0.0)
            training = SimpleNamespace(counters=counters, crew=crew)
            with Stopwatch(1000.0) as watch:
                for seconds, steps, updates, compiles in laps:
                    clock.now += seconds
                    counters.total_steps += steps
                    counters.updates += updates
                    crew.stepping_seconds += 0.01 * steps
                    if compiles:
                        event = "/jax/core/compile/backend_compile_duration"
                        monitoring.record_event_duration_secs(event, seconds)
                    if not watch.see(training):
                        break
            return watch.result

        return play

    def test_it_begins_after_the_last_of_three_compilations(self, play):
        first = [(0.1, 4, 0, False)] * 9
        compiling = [(30.0, 4, 1, True), (0.2, 4, 1, False)] * 3
        assert play(first + compiling + [(0.2, 4, 1, False)] * 20) == pytest.approx((0.05, 0.01))
        assert play(first + compiling) is None

    def test_it_times_whole_rounds(self, play):
        """Ten steps of a rollout, then an update that takes a second."""
        rollout = [(0.1, 1, 0, False)] * 9 + [(1.1, 1, 1, False)]
        assert play(rollout * 9) == pytest.approx((0.2, 0.01))
        """Episodes of ten steps, then as many updates between two steps."""
        episode = [(0.1, 1, 0, False)] * 10 + [(0.3, 0, 1, False)] * 10
        assert play(episode * 9) == pytest.approx((0.4, 0.01))


def test_a_short_training_is_timed(monkeypatch):
    monkeypatch.setattr(estimate, "TIMED_SECONDS", 0.2)
    (cell,) = make_cells(
        study_of(
            'steps = 1000\nseeds = 1\nenvironments = ["Pendulum-v1"]\n'
            "[fields]\nhidden_sizes = [8]\nbatch_size = 8\nnum_learners = 2"
        )
    )
    pace = estimate.pace_of(cell.config)
    assert pace.num_evaluated == 2
    assert 0 < pace.stepping < pace.step < 1
