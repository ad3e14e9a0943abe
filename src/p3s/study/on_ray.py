"""The cells of a study as Ray actors, wherever the cluster has room for them; so are trials.

    the study's folder is seen there     the cell runs in it, as on this machine
    it is not                            the cell runs in a folder of that machine, which is sent
                                         here when it has ended

An actor that is lost with its process or machine is replaced: the cell continues from its last
checkpoint in the first case, and starts again in the second. Trials of a search need a folder that
is seen there.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import signal
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from p3s.cluster.ray_library import RayError, connect, ray
from p3s.errors import UserError
from p3s.machine import available_cores
from p3s.study.launching import WORKER, start_worker

MOST_LOSSES = 3
"""A cell whose actors were lost this often has failed."""
LOST = -int(signal.SIGKILL)


class CellActor:
    """Runs one cell in a process of its own."""

    def place(self) -> tuple[str, list[int]]:
        """The machine, and the cores that this process may use."""
        return ray.get_runtime_context().get_node_id(), available_cores()

    def start(
        self, order: dict[str, Any], log: str, token: str, cores: list[int], module: str
    ) -> int | None:
        """Begin; None if that needs the study's folder, and it is not seen here.

        token: a file that exists where it is. module: what runs in the process.
        """
        self._away: Path | None = None
        if not Path(token).exists():
            if "run" not in order:
                return None
            self._away = Path(tempfile.mkdtemp(prefix="p3s-cell-"))
            log = str(self._away / "log")
            order = {
                **order,
                "run": str(self._away / "run"),
                "failure": str(self._away / "failure.json"),
            }
        with open(log, "ab") as printed:
            order = {**order, "scheduler": os.getpid()}
            self._process = start_worker(order, cores, printed.fileno(), [], module)
        return self._process.pid

    def poll(self) -> tuple[int | None, bytes | None]:
        """The exit code, and with it the folder of a cell that ran elsewhere."""
        code = self._process.poll()
        if code is None or self._away is None:
            return code, None
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(self._away, ".")
        return code, packed.getvalue()

    def stop(self, number: int) -> None:
        """Send a signal to the cell."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


class RayLauncher:
    """Cells on a cluster; as many at a time as it has room for, unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        address: str | None,
        cpus: int,
        gpus: int,
        jobs: int | None,
        module: str = WORKER,
    ) -> None:
        if min(cpus, gpus + 1) < 1:
            raise UserError("a process asks for at least 1 CPU, and for 0 GPUs or more")
        connect(address)
        self.folder, self.module = folder, module
        self._cpus, self._gpus = cpus, gpus
        there = ray.cluster_resources()
        room = int(there.get("CPU", 0) // cpus)
        if gpus:
            room = min(room, int(there.get("GPU", 0) // gpus))
        if room == 0:
            raise UserError(
                f"a process asks for {cpus} CPUs and {gpus} GPUs; the cluster has "
                f"{there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs in all"
            )
        self.shares: list[int] = list(range(min(room, jobs or room)))
        self._busy: dict[str, list[int]] = {}
        self.token = folder / "locks" / f".seen-{secrets.token_hex(8)}"
        self.token.touch()

    def launch(self, order: dict[str, Any], share: int, lock: int, log: Path) -> RayCell:
        """Start a cell; this process holds its lock."""
        return RayCell(self, order, os.dup(lock), log)

    def new_actor(self) -> tuple[Any, str, list[int]]:
        """An actor, its machine, and cores there that no other cell of this study uses."""
        actor: Any = ray.remote(CellActor)
        made = actor.options(num_cpus=self._cpus, num_gpus=self._gpus).remote()
        node, cores = ray.get(made.place.remote())
        busy = self._busy.setdefault(node, [])
        free = sorted(cores, key=lambda core: (busy.count(core), core))[: self._cpus]
        busy += free
        return made, node, free

    def give_back(self, node: str, cores: list[int]) -> None:
        """A cell has ended there."""
        for core in cores:
            self._busy[node].remove(core)

    def close(self) -> None:
        """The study is over: no actor looks for the folder now."""
        self.token.unlink(missing_ok=True)


class RayCell:
    """A cell on the cluster, as the scheduler sees it."""

    def __init__(self, launcher: RayLauncher, order: dict[str, Any], lock: int, log: Path) -> None:
        self._launcher, self._order, self._lock, self._log = launcher, order, lock, log
        self._losses = 0
        self._code: int | None = None
        self.pid: int = -1
        self._start()

    def _start(self) -> None:
        self._actor, self._node, self._cores = self._launcher.new_actor()
        token = str(self._launcher.token.resolve())
        order = {name: _absolute(name, value) for name, value in self._order.items()}
        log = str(self._log.resolve())
        start = self._actor.start.remote(order, log, token, self._cores, self._launcher.module)
        pid: Any = ray.get(start)
        if pid is None:
            folder = self._launcher.folder
            raise UserError(f"{folder} is not seen on every machine of the cluster: choose --out")
        self.pid = int(pid)

    def poll(self) -> int | None:
        """The exit code; None while it runs, or runs again after a loss."""
        if self._code is not None:
            return self._code
        try:
            code, packed = ray.get(self._actor.poll.remote())
        except RayError as error:
            return self._lost(error)
        if code is not None:
            if packed is not None:
                self._unpack(packed)
            self._end(code)
        return code

    def _lost(self, error: RayError) -> int | None:
        self._losses += 1
        reason = str(error).strip().split("\n")[0]
        with self._log.open("a") as log:
            log.write(f"the process of this cell is lost: {reason}\n")
        self._launcher.give_back(self._node, self._cores)
        if self._losses >= MOST_LOSSES:
            self._end(LOST, give_back=False)
            return LOST
        self._start()
        return None

    def _unpack(self, packed: bytes) -> None:
        """Put what a cell left on another machine into the study's folder."""
        run, failure = Path(self._order["run"]), Path(self._order["failure"])
        with (
            tempfile.TemporaryDirectory(dir=run.parent.parent) as folder,
            tarfile.open(fileobj=io.BytesIO(packed)) as archive,
        ):
            archive.extractall(folder, filter="data")
            left = Path(folder)
            with self._log.open("ab") as log:
                log.write((left / "log").read_bytes())
            if (left / "failure.json").exists():
                (left / "failure.json").replace(failure)
            if (left / "run").exists():
                shutil.rmtree(run, ignore_errors=True)
                (left / "run").rename(run)

    def _end(self, code: int, give_back: bool = True) -> None:
        self._code = code
        ray.kill(self._actor)
        os.close(self._lock)
        if give_back:
            self._launcher.give_back(self._node, self._cores)

    def send_signal(self, number: int) -> None:
        """Tell the cell to stop."""
        if self._code is None:
            with contextlib.suppress(RayError):
                ray.get(self._actor.stop.remote(number))


def _absolute(name: str, value: Any) -> Any:
    """What an order says, with its paths as other processes see them."""
    is_path = name in ("run", "failure", "folder") or (name == "storage" and "://" not in value)
    return str(Path(value).resolve()) if is_path else value
