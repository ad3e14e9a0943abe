"""`p3s dashboard`: follow trainings and studies on a local web page."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from p3s.cli.arguments import Flag
from p3s.dashboard.following import Dashboard
from p3s.dashboard.serving import serve
from p3s.errors import UserError

FOLDERS = (Path("runs"), Path("studies"))
"""Where trainings and studies go if nobody says otherwise."""
FOREVER = 3600.0


@dataclass(frozen=True)
class Options:
    """Follow trainings and studies on a local web page; Ctrl-C ends it."""

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="[FOLDER...]")]
    """Run folders, studies, or folders that contain some; runs and studies unless given."""
    port: int = 8650
    """Port on 127.0.0.1; if it is taken, the next one that is free."""
    open: Flag = False
    """Open the page in a browser."""


def run(options: Options) -> int:
    """Serve the page until Ctrl-C."""
    missing = [folder for folder in options.folders if not folder.is_dir()]
    if missing:
        what = "is a file" if missing[0].exists() else "does not exist"
        raise UserError(f"{missing[0]} {what}: give run folders, or folders that contain runs")
    folders = options.folders or FOLDERS
    dashboard = Dashboard(folders)
    with serve(dashboard, options.port) as server:
        if options.port not in (0, server.server_port):
            print(f"port {options.port} is taken: using {server.server_port}")
        names = ", ".join(map(str, folders))
        print(f"{dashboard.count()} in {names}; Ctrl-C ends the dashboard", flush=True)
        print(server.address, flush=True)
        if options.open:
            webbrowser.open(server.ticket_address())
        try:
            # Nothing is due between two requests: no need to wake up.
            server.serve_forever(FOREVER)
        except KeyboardInterrupt:
            print()
    return 0
