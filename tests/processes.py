"""The real command in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def p3s_process(*arguments, stdout=subprocess.DEVNULL) -> subprocess.Popen:
    command = [sys.executable, "-m", "p3s", *map(str, arguments)]
    return subprocess.Popen(command, stdout=stdout, text=True)


def wait_for(path: Path, process: subprocess.Popen) -> None:
    """Until the process has written something to this file or folder, or has ended."""
    while process.poll() is None:
        if path.is_file() and path.stat().st_size > 0:
            return
        if path.is_dir() and any(path.iterdir()):
            return
        time.sleep(0.01)
