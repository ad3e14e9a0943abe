"""A stand-in for the Hugging Face Hub on loopback: what pushing and fetching ask of it over HTTP.

It answers "regular" to every file before an upload, so that files travel inside the commit. A
commit is made whole when all of it has arrived, or not at all.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_of_a_test"


class Hub(ThreadingHTTPServer):
    """Repositories, each a list of commits: path → content, the newest last."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.repositories: dict[str, list[dict[str, bytes]]] = {}
        self.visibility: dict[str, Any] = {}
        self.asked: list[str] = []
        """Method and path of every request."""
        self.hold = threading.Event()
        """Set: no commit is read to its end. One that has begun sets `held`."""
        self.held = threading.Event()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def files(self, repository: str) -> dict[str, bytes]:
        """What a repository holds now."""
        return self.repositories[repository][-1]


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A Hub as long as it is needed."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.hold.clear()
            hub.shutdown()
            thread.join()


def sha(content: Any) -> str:
    """A name of 40 digits for some content."""
    return hashlib.sha1(repr(content).encode()).hexdigest()


class Requests(BaseHTTPRequestHandler):
    """One request to the stand-in."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""

    def answer(self, code: int, body: Any = None, content: bytes = b"", **headers: str) -> None:
        """Send an answer: JSON, or bytes."""
        content = content if body is None else json.dumps(body).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, code: int, error: str, message: str = "") -> None:
        """Send an error as the Hub names it."""
        self.answer(code, {"error": message}, X_Error_Code=error, X_Error_Message=message)

    def body(self) -> bytes:
        """What was sent, in chunks too; of a commit only the beginning, while the Hub holds."""
        if self.server.hold.is_set() and "/commit/" in self.path:
            self.rfile.read(1)
            self.server.held.set()
            while self.rfile.read1(1 << 16):
                pass  # until the client is gone
            raise ConnectionError
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = list[bytes]()
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def handle_one_request(self) -> None:
        """As always, but a client that is gone is no error."""
        with contextlib.suppress(ConnectionError, ValueError):
            super().handle_one_request()
            return
        self.close_connection = True

    def do_GET(self) -> None:
        """Whoami, the list of files, a file."""
        self.server.asked.append(f"{self.command} {self.path}")
        if self.path.startswith("/api/whoami-v2"):
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            if known:
                self.answer(200, {"name": "somebody", "type": "user", "orgs": []})
            else:
                self.refuse(401, "", "Invalid credentials in Authorization header")
        elif found := re.match(r"/api/models/([^/]+/[^/]+)/tree/", self.path):
            files = self.server.files(found[1])
            rows = [
                {"type": "file", "path": name, "size": len(content), "oid": sha(content)}
                for name, content in files.items()
            ]
            self.answer(200, rows)
        elif found := re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path):
            self.send_file(*found.groups())
        elif found := re.match(r"/api/models/([^/]+/[^/]+)", self.path):
            self.tell_about(found[1])
        else:
            self.refuse(404, "")

    do_HEAD = do_GET

    def tell_about(self, repository: str) -> None:
        """A repository and its newest commit."""
        commits = self.server.repositories.get(repository)
        if commits is None:
            return self.refuse(401, "RepoNotFound", "Repository not found")
        return self.answer(200, {"id": repository, "sha": sha(commits[-1]), "siblings": []})

    def send_file(self, repository: str, revision: str, name: str) -> None:
        """A file of a revision: `main`, or the name of a commit."""
        commits = self.server.repositories.get(repository)
        if commits is None:
            return self.refuse(401, "RepoNotFound", "Repository not found")
        known = {"main": commits[-1], **{sha(files): files for files in commits}}
        if revision not in known:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = known[revision]
        if name not in files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        content = files[name]
        return self.answer(200, content=content, ETag=f'"{sha(content)}"', X_Repo_Commit=sha(files))

    def do_POST(self) -> None:
        """A new repository, checks before an upload, a commit."""
        self.server.asked.append(f"{self.command} {self.path}")
        content = self.body()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.refuse(401, "", "Invalid username or password.")
        if self.path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if self.path == "/api/repos/create":
            return self.create(json.loads(content))
        found = re.match(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", self.path)
        assert found is not None, self.path
        if found[2] == "preupload":
            rows = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(content)["files"]
            ]
            return self.answer(200, {"files": rows})
        return self.commit(found[1], [json.loads(line) for line in content.splitlines()])

    def create(self, wanted: dict[str, Any]) -> None:
        """Make a repository, unless it is there, or someone else's."""
        repository = f"{wanted['organization']}/{wanted['name']}"
        if not repository.startswith("somebody/"):
            return self.refuse(403, "", "You don't have the rights to create a model there")
        answer = {"url": f"{self.server.endpoint}/{repository}"}
        if repository in self.server.repositories:
            return self.answer(409, answer)
        self.server.visibility[repository] = wanted.get("visibility")
        self.server.repositories[repository] = [{}]
        return self.answer(200, answer)

    def commit(self, repository: str, lines: list[dict[str, Any]]) -> None:
        """Make a commit of what the lines add and remove."""
        files = dict(self.server.files(repository))
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.server.repositories[repository].append(files)
        url = f"{self.server.endpoint}/{repository}/commit/{sha(files)}"
        self.answer(200, {"success": True, "commitOid": sha(files), "commitUrl": url})
