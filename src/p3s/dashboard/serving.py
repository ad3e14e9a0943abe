"""HTTP for one person on this machine.

Only the loopback interface is served, and only addresses that begin with the token, which is made
anew for every start. A Host header that names another host is refused: a foreign page
whose name leads to 127.0.0.1 learns nothing. No path comes from a request: pages and runs are
looked up.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import re
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from p3s.dashboard.following import Dashboard
from p3s.errors import UserError
from p3s.report.page import TEMPLATES
from p3s.runs.files import open_unlinked

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "[::1]")
"""How this machine is called by its own user, also through a tunnel with another port."""
PORTS_TRIED = 100
OWN = Path(__file__).parent / "page"
SCRIPT, STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
FILES = {
    "": (OWN / "dashboard.html", "text/html; charset=utf-8"),
    **{f"{name}.js": (OWN / f"{name}.js", SCRIPT) for name in ("dashboard", "cards", "lineage")},
    "dashboard.css": (OWN / "dashboard.css", STYLE),
    "charts.js": (TEMPLATES / "charts.js", SCRIPT),
    "page.css": (TEMPLATES / "page.css", STYLE),
}
"""All files that there are to be asked for."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
FILM_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
PIECE = 1 << 18
MOST_RUNS_ASKED = 300


class Server(ThreadingHTTPServer):
    """Serves a dashboard at an address with a secret in it."""

    daemon_threads = True
    # Elsewhere it lets a port be used again soon; on Windows it lets others take it meanwhile.
    allow_reuse_address = os.name != "nt"

    def __init__(self, dashboard: Dashboard, port: int) -> None:
        self.dashboard = dashboard
        self.token = secrets.token_urlsafe(24)
        self.ticket: str | None = None
        super().__init__((HOST, port), Handler)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def ticket_address(self) -> str:
        """An address that leads to the page once: others may see how a browser was started."""
        self.ticket = secrets.token_urlsafe(24)
        return f"http://{HOST}:{self.server_port}/once/{self.ticket}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent where a browser has gone away; anything else is a bug, and shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(dashboard: Dashboard, port: int) -> Server:
    """A server on this port, or on the next one that is free."""
    if not 0 <= port <= 65_535:
        raise UserError(f"port must be between 0 and 65535, not {port}")
    last = min(port + PORTS_TRIED, 65_535)
    for each in range(port, last + 1):
        try:
            return Server(dashboard, each)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise UserError(f"no port from {port} to {last} is free: choose another --port")


class Handler(BaseHTTPRequestHandler):
    """Answers one browser."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "p3s", ""
    timeout = 60

    @property
    def _site(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        """Answer a request, if it comes from who may ask."""
        name = (self.headers.get("Host") or "").rpartition(":")
        host = name[0] if name[1] and name[2].isdigit() else "".join(name)
        if host.lower() not in NAMES:
            self._refuse(HTTPStatus.FORBIDDEN, "this is not the host that was asked for")
            return
        parts = urlsplit(self.path)
        first, _, rest = parts.path.removeprefix("/").partition("/")
        if first == "once":
            self._redeem(rest)
        elif not hmac.compare_digest(first.encode(), self._site.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "use the address that p3s dashboard printed")
        elif rest in FILES and parts.path.count("/") > 1:
            path, kind = FILES[rest]
            self._send(path.read_bytes(), kind, {"Content-Security-Policy": POLICY})
        elif rest == "rows":
            self._send_rows(parts.query)
        elif rest.startswith("film/"):
            self._send_film(rest.removeprefix("film/"))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the address is a secret."""

    # ------------------------------------------------------------------ answers

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        # Not send_response, which adds a name and a date, 60 bytes each time.
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        always = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        self._begin(HTTPStatus.OK, {**always, **(headers or {})})
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        body = f"p3s dashboard: {reason}\n".encode()
        kind = "text/plain; charset=utf-8"
        self._begin(status, {"Content-Type": kind, "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _redeem(self, ticket: str) -> None:
        """Lead to the page, once."""
        expected, self._site.ticket = self._site.ticket, None
        if expected is None or not hmac.compare_digest(ticket.encode(), expected.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "this address has been used")
            return
        where = {"Location": f"/{self._site.token}/", "Content-Length": "0"}
        self._begin(HTTPStatus.SEE_OTHER, {**where, "Cache-Control": "no-store"})

    def _send_rows(self, query: str) -> None:
        """What is new: since=120&run=3:120&curve=7:0."""
        try:
            asked = parse_qs(query, max_num_fields=MOST_RUNS_ASKED + 1)
            since = int(asked.get("since", ["0"])[0])
            details, curves = ({}, {})
            for name, wanted in (("run", details), ("curve", curves)):
                for pair in asked.get(name, []):
                    number, _, then = pair.partition(":")
                    wanted[int(number)] = int(then)
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, "invalid query")
            return
        news = self._site.dashboard.answer(since, details, curves)
        if news is None:
            self._begin(HTTPStatus.NO_CONTENT, {})
            return
        body = json.dumps(news, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        self._send(body.encode(errors="replace"), "application/json")

    def _send_film(self, rest: str) -> None:
        """A film, or the part of it that a browser asks for."""
        number, _, name = rest.partition("/")
        whose = int(number) if re.fullmatch(r"\d{1,9}", number, re.ASCII) else 0
        path = self._site.dashboard.film(whose, name)
        try:
            if path is None:
                raise FileNotFoundError
            file = open_unlinked(path)
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such film")
            return
        with file:
            size = file.seek(0, os.SEEK_END)
            first, last, whole = _wanted(self.headers.get("Range"), size)
            headers = {
                "Content-Type": FILM_TYPES[path.suffix],
                "Content-Length": str(last - first + 1),
                "Accept-Ranges": "bytes",
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Cross-Origin-Resource-Policy": "same-origin",
            }
            if not whole:
                headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            self._begin(HTTPStatus.OK if whole else HTTPStatus.PARTIAL_CONTENT, headers)
            file.seek(first)
            left = last - first + 1
            while left > 0 and (piece := file.read(min(PIECE, left))):
                self.wfile.write(piece)
                left -= len(piece)
            # A file that became shorter cannot keep its promise: no further answer may follow.
            self.close_connection |= left > 0


def _wanted(header: str | None, size: int) -> tuple[int, int, bool]:
    """First and last byte of what a Range header asks for, and whether that is all of it."""
    match = re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", header or "", re.ASCII)
    if match is None or int(match[1]) >= size:
        return 0, size - 1, True
    last = min(int(match[2]), size - 1) if match[2] else size - 1
    if last < int(match[1]):
        return 0, size - 1, True
    return int(match[1]), last, False
