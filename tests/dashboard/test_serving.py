"""Who may ask the dashboard for what, by real requests."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from p3s.dashboard.following import Dashboard
from p3s.dashboard.serving import FILES, Server, serve
from p3s.errors import UserError
from tests.helpers import call
from tests.synthetic_runs import write_run

CONTENT = bytes(range(256)) * 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    write_run(path, "P3S-TD3", "Hopper-v1", 0, evaluations=3)
    (path / "videos").mkdir()
    (path / "videos/step-100.mp4").write_bytes(CONTENT)
    (path / "secret.txt").write_text("secret")
    return path


@pytest.fixture(scope="module")
def server(folder) -> Iterator[Server]:
    with serve(Dashboard([folder]), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: Server, path: str, host: str | None = None, method: str = "GET", **headers: str):
    """Status, headers and body of an answer; the path goes out as it is written here."""
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"Host: {f'127.0.0.1:{server.server_port}' if host is None else host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = http.client.HTTPResponse(connection, method=method)
        answer.begin()
        body = answer.read()
        answer.close()
    return answer.status, dict(answer.headers), body


def test_the_page_and_all_that_it_needs(server):
    for name, (path, kind) in FILES.items():
        status, headers, body = ask(server, f"/{server.token}/{name}")
        assert (status, headers["Content-Type"]) == (200, kind)
        assert body == path.read_bytes()
        assert headers["X-Content-Type-Options"] == "nosniff"
    status, headers, body = ask(server, f"/{server.token}/")
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert b"<script>" not in body
    named = re.findall(rb'(?:src|href)="([^"]+)"', body)
    assert {name.decode() for name in named} == {*FILES, "data:,"} - {""}


@pytest.mark.parametrize(
    "path",
    ["/", "//", "/rows?since=0", "/dashboard.js", "/film/1/step-100.mp4", "/{short}/", "/{other}/",
     "/%2e%2e/", "/ä/"],
)  # fmt: skip
def test_nothing_without_the_token(server, path):
    other = "A" * len(server.token)
    path = path.format(short=server.token[:-1], other=other)
    status, _, body = ask(server, path)
    assert status == 403
    assert server.token.encode() not in body
    assert b"Hopper" not in body


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "127.0.0.1@evil", "[::2]:1"],
)
def test_a_name_that_was_rebound_gets_nothing(server, host):
    assert ask(server, f"/{server.token}/rows?since=0", host=host)[0] == 403


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:80", "LOCALHOST"]
)
def test_this_machine_may_be_called_by_its_names(server, host):
    assert ask(server, f"/{server.token}/rows?since=0", host=host)[0] == 200


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "film/1/../../secret.txt", "film/1/..%2f..%2fsecret.txt",
     "film/1//etc/passwd", f"film/{'1' * 5000}/step-100.mp4",
     "film/1/step-100.mp4/../../../secret.txt", "film/1/secret.txt", "film/9/step-100.mp4",
     "film/x/step-100.mp4", "film/1/step-101.mp4", "film/²/step-100.mp4", "film/1/step-100.mp4%00",
     "dashboard.html", "../serving.py", "film/", "secret.txt", "rows/"],
)  # fmt: skip
def test_nobody_chooses_a_path(server, path):
    status, _, body = ask(server, f"/{server.token}/{path}")
    assert status == 404
    assert b"secret" not in body


def test_films_whole_and_in_parts(server):
    path = f"/{server.token}/film/1/step-100.mp4"
    ask(server, f"/{server.token}/rows?since=0")
    status, headers, body = ask(server, path)
    assert (status, headers["Content-Type"], body) == (200, "video/mp4", CONTENT)
    status, headers, body = ask(server, path, Range="bytes=10-19")
    assert (status, headers["Content-Range"]) == (206, f"bytes 10-19/{len(CONTENT)}")
    assert body == CONTENT[10:20]
    assert ask(server, path, Range="bytes=2550-")[2] == CONTENT[2550:]
    for odd in (
        "bytes=-5",
        "bytes=9-3",
        "bytes=99999-",
        "bytes=0-1,4-5",
        "x",
        "bytes=" + "9" * 5000 + "-",
    ):
        assert ask(server, path, Range=odd)[::2] == (200, CONTENT)


@pytest.mark.parametrize(
    "query", ["since=x", "since=0&run=x:1", "since=0&run=1", "since=0" + "&a=1" * 400]
)
def test_questions_that_make_no_sense(server, query):
    assert ask(server, f"/{server.token}/rows?{query}")[0] == 400


def test_other_methods_and_odd_numbers(server):
    assert ask(server, f"/{server.token}/", method="POST")[0] == 501
    for since in ("-1", str(10**30)):
        assert ask(server, f"/{server.token}/rows?since={since}&run=1:{since}")[0] in (200, 204)


def test_a_browser_that_goes_away_is_no_event(server, capfd):
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
            # Closing with bytes unread resets the connection while the answer is written.
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.sendall(f"GET /{server.token}/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert ask(server, f"/{server.token}/")[0] == 200
    assert capfd.readouterr().err == ""


def test_an_answer_of_nothing_new_is_small(server):
    news = json.loads(ask(server, f"/{server.token}/rows?since=0&run=1:0")[2])
    assert news["runs"][0]["env"] == "Hopper-v5"
    now = news["now"]
    question = (
        f"GET /{server.token}/rows?since={now}&run=1:{now} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as connection:
        connection.sendall(question.encode())
        assert connection.recv(4096) == b"HTTP/1.1 204 No Content\r\n\r\n"


def test_an_address_that_leads_to_the_page_once(server):
    path = "/" + server.ticket_address().split("/", 3)[3]
    status, headers, _ = ask(server, path)
    assert (status, headers["Location"]) == (303, f"/{server.token}/")
    assert ask(server, path)[0] == 403
    server.ticket_address()
    assert ask(server, "/once/x")[0] == 403
    assert ask(server, "/once/")[0] == 403


def test_it_listens_on_the_loopback_interface_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_a_taken_port(server, folder):
    with serve(Dashboard([folder]), server.server_port) as other:
        assert server.server_port < other.server_port <= server.server_port + 100


def test_ports_that_are_none(folder, capsys):
    for port in (-1, 65_536):
        with pytest.raises(UserError, match="port must be between 0 and 65535"):
            serve(Dashboard([folder]), port)


def test_folders_that_are_none(folder, capsys):
    for path, reason in (("nowhere", "does not exist"), (folder / "config.json", "is a file")):
        code, _, errors = call(capsys, "dashboard", path)
        assert (code, errors.count("\n")) == (2, 1)
        assert reason in errors


def test_the_command_from_its_start_to_ctrl_c(server, folder):
    words = ["dashboard", str(folder), "--port", str(server.server_port)]
    order = [sys.executable, "-m", "p3s", *words]
    with subprocess.Popen(order, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        address = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{32})/\n", said[2])
        assert address is not None, said
        assert said[0] == f"port {server.server_port} is taken: using {address[1]}\n"
        assert said[1].startswith("1 run in ")
        assert address[2] != server.token
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(10) == 0
