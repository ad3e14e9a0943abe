"""Each command of README.md, as it is written there: `python .ci/readme.py`, in a checkout.

Lines that begin with `p3s` and the Python block are run in a folder of their own, one after the
other. RUN is the newest run there, USER/NAME a repository of a stand-in for the Hub on this
machine. What takes longer than a while is interrupted, as somebody would by Ctrl-C; it has to have
begun by then and to end as it should. `--only TEXT` takes the commands that contain TEXT.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
WHILE, LONG_WHILE, LONGEST = 120.0, 1200.0, 900.0
"""Seconds before a command is interrupted, and those that it has to end in afterward."""
WAITED_FOR = ("p3s study run", "p3s tune", "python")
"""What has to come far enough for the commands after it."""
STOPPED = (0, 128 + signal.SIGINT)
BEFORE_PYTHON = "import gymnasium\nobservation = gymnasium.make('Hopper-v5').reset(seed=0)[0]\n"


def commands() -> list[str]:
    """The lines of README.md that somebody would type in, and its Python code."""
    text = (ROOT / "README.md").read_text()
    lines = [line.partition("  #")[0].strip() for line in re.findall(r"^    (p3s .*)$", text, re.M)]
    return lines + [f"python\n{code}" for code in re.findall(r"```python\n(.*?)```", text, re.S)]


def newest_run(folder: Path) -> Path:
    """The run that was begun last."""
    runs = [config.parent for config in folder.glob("runs/**/config.json")]
    if not runs:
        sys.exit("README.md names a RUN before it trains one")
    return max(runs, key=lambda run: (run / "config.json").stat().st_mtime)


def run(command: str, folder: Path, environment: dict[str, str]) -> str | None:
    """Run a command; what was wrong with it, if anything was."""
    if command.startswith("python\n"):
        script = folder / "readme.py"
        script.write_text(BEFORE_PYTHON + command.removeprefix("python\n"))
        line = f"{sys.executable} {script}"
    else:
        line = command.replace("USER/NAME", "somebody/policy")
        line = re.sub(r"\bRUN\b", str(newest_run(folder)), line) if "RUN" in line else line
    log = folder / "printed.log"
    with log.open("wb") as printed:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=folder, env=environment, stdout=printed, stderr=subprocess.STDOUT,
        )  # fmt: skip
        patience = LONG_WHILE if command.startswith(WAITED_FOR) else WHILE
        interrupted = False
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            interrupted = True
            try:
                code = process.wait(LONGEST)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return "Ctrl-C does not end it"
    text = log.read_text(errors="replace")
    if interrupted and command.startswith("python"):
        return "it takes too long"
    if code not in (STOPPED if interrupted else (0,)) or "Traceback" in text:
        return f"exit code {code}:\n{text[-2000:]}"
    return None


def main() -> int:
    """Run them all; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="only commands that contain this")
    only = parser.parse_args().only
    sys.path.insert(0, str(ROOT))
    from tests.helpers_hub import TOKEN, serving

    failed, tried = list[str](), 0
    with tempfile.TemporaryDirectory() as name, serving() as hub:
        folder = Path(name)
        environment = {
            **os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HF_ENDPOINT": hub.endpoint,
            "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(folder / "hub"),
        }  # fmt: skip
        # A run that the commands can have: RUN, and run.toml.
        train = "p3s train CartPole-v1 --steps 5000 --out runs/readme"
        for first in (train, "p3s config runs/readme --out run.toml"):
            problem = run(first, folder, environment)
            if problem is not None:
                sys.exit(f"{first}: {problem}")
        for command in commands():
            if only not in command:
                continue
            tried, began = tried + 1, time.monotonic()
            problem = run(command, folder, environment)
            seconds, shown = time.monotonic() - began, command.split("\n")[0]
            print(
                f"{'ok' if problem is None else 'FAILED':<7}{seconds:6.0f} s  {shown}", flush=True
            )
            if problem is not None:
                print(problem, flush=True)
                failed.append(shown)
    print(f"{tried} commands of README.md, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
