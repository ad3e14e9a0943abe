"""Files from strangers, steered by coverage: atheris looks for bytes that take new paths.

    for each reader of a file: a process of its own, with the reader's own code instrumented
        begin with a sound file, change bytes, keep what reaches new code
        anything but a value or a UserError is a loss; libFuzzer keeps the bytes that did it

`strangers` changes values that are known to matter; this finds those that nobody thought of. A
reader that allocates more than `MEMORY` or takes longer than `LONGEST` for one file is a loss too.
Without atheris, which exists for Linux on x86-64 only, nothing is tried.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from campaign import Result
from campaign.mutations import header_of, with_header

SECONDS, SHORT_RUNS = 30, 200
"""How long each reader is fuzzed, and how often in the short form."""
LONGEST, MEMORY = 20, 4096
"""Seconds for one file, and megabytes of the process."""
COUNT = re.compile(r"^#(\d+)\s", re.MULTILINE)
"""libFuzzer numbers its lines by the files tried so far."""


def run(short: bool) -> Result:
    """Fuzz every reader."""
    name = "files fuzzed by coverage"
    if not find_spec("atheris"):
        return Result(name, 0, 0, ["atheris is not installed: nothing was tried"])
    tried, notes = 0, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        seeds = make_seeds(Path(folder))
        for reader in READERS:
            count, problem = fuzz(reader, seeds[reader], Path(folder), short)
            tried += count
            notes += [f"{reader}: {problem}"] if problem else []
    return Result(name, tried, len(notes), notes)


def make_seeds(folder: Path) -> dict[str, bytes]:
    """A sound file for each reader; without checksums, which would end every other one at once."""
    from tests.helpers import small_config

    from campaign.strangers import STUDY
    from p3s.config.run_file import run_file_text
    from p3s.runs import opening
    from p3s.runs.replays import save_replay

    config, path = small_config("Pendulum-v1", steps=200, evaluation_period=100), folder / "run"
    training = opening.begin(config, path)
    training.run(200)
    policy = training.policy().to_bytes()
    save_replay(training, folder / "replay.npz")
    training.close()
    rows = (path / "evaluations.jsonl").read_bytes().splitlines()
    header = header_of(policy)
    header["__metadata__"]["p3s"] = unchecked(header["__metadata__"]["p3s"]).decode()
    return {
        "policy": with_header(policy, header),
        "config": unchecked((path / "config.json").read_bytes()),
        "records": b"".join(unchecked(row) + b"\n" for row in rows),
        "transitions": (folder / "replay.npz").read_bytes(),
        "run_file": run_file_text(config).encode(),
        "study": STUDY.encode(),
        "journal": journal_of_trials(folder / "tuned"),
    }


def journal_of_trials(folder: Path) -> bytes:
    """The journal of a search with one finished trial."""
    from p3s.config.spec import RunSpec
    from p3s.tuning.asked import search_spaces
    from p3s.tuning.declaration import Declaration, Proposals
    from p3s.tuning.study import Tuning

    spec = RunSpec("Pendulum-v1", algorithm="td3", fields={"steps": 2000})
    tuning = Tuning(folder, str(folder / "journal.log"), "mine", Proposals())
    tuning.declare(Declaration(spec, search_spaces(spec, ["learning_rate"]), 1))
    claim = tuning.claim(1, 1)
    assert claim is not None
    tuning.study.tell(claim.number, 1.0)
    return (folder / "journal.log").read_bytes()


def unchecked(text: str | bytes) -> bytes:
    """A JSON object without its checksum."""
    from p3s.runs.checksums import CHECKSUM

    record = json.loads(text)
    del record[CHECKSUM]
    return json.dumps(record).encode()


def fuzz(reader: str, seed: bytes, folder: Path, short: bool) -> tuple[int, str | None]:
    """Files tried on a reader in a process of its own, and what went wrong."""
    corpus, work = folder / reader / "corpus", folder / reader / "work"
    corpus.mkdir(parents=True)
    work.mkdir()
    (corpus / "seed").write_bytes(seed)
    limit = f"-runs={SHORT_RUNS}" if short else f"-max_total_time={SECONDS}"
    kept = f"-artifact_prefix={corpus.parent}/"
    options = (f"-timeout={LONGEST}", f"-rss_limit_mb={MEMORY}", "-seed=1", kept, str(corpus))
    command = [sys.executable, "-m", "campaign.guided_fuzzing", reader, str(work), limit, *options]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    counts = [int(count) for count in COUNT.findall(done.stderr)]
    if done.returncode == 0:
        return max(counts, default=0), None
    found = [path.read_bytes()[:300] for path in corpus.parent.iterdir() if path.is_file()]
    return max(counts, default=0), f"{done.stderr[-2000:]}\n{found}"


# ---------------------------------------------------------------------- in the process


def read_policy(file: Path) -> None:
    """A policy's file."""
    from p3s.policies.policy import Policy

    Policy.load(file)


def read_config(file: Path) -> None:
    """A run's configuration, as `resume` and `watch` take it."""
    from p3s.report.results import read_run
    from p3s.runs import opening

    read_run(file.parent)
    opening.load_config(file.parent)


def read_records(file: Path) -> None:
    """A run's rows."""
    from p3s.runs.records import last_row, read_rows

    last_row(file)
    read_rows(file)


def read_transitions(file: Path) -> None:
    """A file of transitions, as `--data` takes it."""
    from p3s.runs.transitions import read_transitions

    read_transitions(file)


def read_run_file(file: Path) -> None:
    """A run's TOML file."""
    from p3s.config.run import resolve_spec
    from p3s.config.run_file import read_run_file

    resolve_spec(read_run_file(file))


def read_study(file: Path) -> None:
    """A study's TOML file."""
    from p3s.study.catalog import find_study
    from p3s.study.cells import make_cells

    make_cells(find_study(str(file)))


def read_journal(file: Path) -> None:
    """A journal of trials, as `tune` takes it."""
    from p3s.tuning.storage import open_storage

    open_storage(str(file))


READERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "policy": ("policy.safetensors", read_policy),
    "config": ("config.json", read_config),
    "records": ("evaluations.jsonl", read_records),
    "transitions": ("replay.npz", read_transitions),
    "run_file": ("run.toml", read_run_file),
    "study": ("study.toml", read_study),
    "journal": ("journal.log", read_journal),
}
"""By name: the file, and what opens it."""


MODULES = (
    "p3s.policies.policy",
    "p3s.config.run_file",
    "p3s.report.results",
    "p3s.runs.opening",
    "p3s.runs.transitions",
    "p3s.study.cells",
    "p3s.tuning.storage",
)
"""What the readers use, imported so that its paths are followed."""


def be_fuzzer(reader: str, folder: Path, options: list[str]) -> None:
    """Open whatever libFuzzer makes up, until it ends this process."""
    import atheris

    name, read = READERS[reader]
    file = folder / name
    with atheris.instrument_imports(include=["p3s"], enable_loader_override=False):
        for module in MODULES:
            importlib.import_module(module)
    from p3s.errors import UserError

    def open_one(data: bytes) -> None:
        file.write_bytes(data)
        with contextlib.suppress(UserError), contextlib.redirect_stderr(io.StringIO()):
            read(file)

    atheris.Setup([sys.argv[0], *options], open_one)
    atheris.Fuzz()


if __name__ == "__main__":
    be_fuzzer(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
