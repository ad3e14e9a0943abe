"""How soon the dashboard answers, and what it costs while nothing is new.

    python benchmarks/dashboard.py                             times and bytes with 50 runs
    python benchmarks/dashboard.py --picture FOLDER OUT.png    the upper part of a folder's page

Run from a checkout: the made-up runs come from tests/synthetic_runs.py.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.helpers_browser import Visit, chromium
from tests.synthetic_runs import write_run

NUM_RUNS, POLLS = 50, 20


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, float]]:
    """The address of a dashboard, and the seconds until it was printed."""
    order = [sys.executable, "-m", "p3s", "dashboard", str(folder), "--port", "0"]
    started = time.perf_counter()
    with subprocess.Popen(order, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        address = process.stdout.readline().strip()
        yield address, time.perf_counter() - started
        process.send_signal(signal.SIGINT)


def ask(address: str, question: str) -> tuple[bytes, int, float]:
    """The answer with its head, the bytes of the question, and the seconds that it took."""
    parts = urlsplit(address)
    request = f"GET {parts.path}rows?{question} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
    started, answer = time.perf_counter(), b""
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(request)
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(1 << 16)
        head, _, body = answer.partition(b"\r\n\r\n")
        length = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
        missing = int(length[0].split()[1]) - len(body) if length else 0
        while missing > 0:
            piece = connection.recv(1 << 20)
            answer, missing = answer + piece, missing - len(piece)
    return answer, len(request), time.perf_counter() - started


def measure() -> None:
    """Print times and bytes with runs that nothing happens to."""
    with tempfile.TemporaryDirectory() as name:
        for seed in range(NUM_RUNS):
            write_run(Path(name) / f"run-{seed}", "P3S-TD3", "Hopper-v1", seed, evaluations=250)
        with dashboard(Path(name)) as (address, seconds):
            print(f"from the command to the address, {NUM_RUNS} runs: {seconds:.2f} s")
            answer, _, seconds = ask(address, "since=0")
            print(f"first answer, the list: {len(answer):,} bytes in {1000 * seconds:.0f} ms")
            news = json.loads(answer.partition(b"\r\n\r\n")[2])
            asked = "&".join(f"run={number}:0" for number in news["all"][:4])
            answer, _, seconds = ask(address, f"since={news['now']}&{asked}")
            print(f"all records of 4 runs: {len(answer):,} bytes in {1000 * seconds:.0f} ms")
            now = json.loads(answer.partition(b"\r\n\r\n")[2])["now"]
            asked = "&".join(f"run={number}:{now}" for number in news["all"][:4])
            times = []
            for _ in range(POLLS):
                time.sleep(0.6)
                answer, sent, seconds = ask(address, f"since={now}&{asked}")
                times.append(seconds)
            print(f"nothing new: {len(answer)} bytes for a question of {sent}, "
                  f"{1000 * statistics.median(times):.1f} ms")  # fmt: skip


def take_picture(folder: Path, out: Path) -> None:
    """The upper part of the page, down to who guides whom, as PNG."""
    with dashboard(folder) as (address, _), chromium() as browser:
        page = Visit(browser, address, below=True)
        time.sleep(3)
        lineage = page.tab.locator('[data-part="lineage"]').first.bounding_box()
        clip = {"x": 0, "y": 0, "width": 1280, "height": lineage["y"] + lineage["height"] + 20}
        page.tab.screenshot(path=out, full_page=True, clip=clip)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--picture", nargs=2, type=Path, metavar=("FOLDER", "OUT"))
    arguments = parser.parse_args()
    take_picture(*arguments.picture) if arguments.picture else measure()
