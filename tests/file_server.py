"""A small HTTP file server with faults on order, for the download tests. Listens on 127.0.0.1."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What is served under every path, how, and what was asked for.

    `cuts` are byte counts after which the next bodies break off; `statuses` answer the next
    requests instead of the file.
    """

    content: bytes
    etag: str | None = '"one"'
    ranges: bool = True
    say_length: bool = True
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    requests: list[str | None] = field(default_factory=list)
    hold: threading.Event | None = None
    url: str = ""


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve a site; its `url` is filled in."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, site)

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}/model.gguf"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, site: Site) -> None:
    site.requests.append(handler.headers.get("Range"))
    if site.hold is not None:
        site.hold.wait(10)
    if site.statuses:
        handler.send_response(site.statuses.pop(0))
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    start = _start(handler, site)
    if start >= len(site.content) > 0 and start:
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(site.content)}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    body = site.content[start:]
    handler.send_response(206 if start else 200)
    if start:
        total = len(site.content)
        handler.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
    if site.say_length:
        handler.send_header("Content-Length", str(len(body)))
    if site.etag:
        handler.send_header("ETag", site.etag)
    handler.end_headers()
    if site.cuts:
        body = body[: site.cuts.pop(0)]
    handler.wfile.write(body)
    handler.close_connection = True


def _start(handler: BaseHTTPRequestHandler, site: Site) -> int:
    """Where to begin: 0 unless a range was asked for, may be given, and is of this version."""
    wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    same = handler.headers.get("If-Range", site.etag) == site.etag
    return int(wanted[1]) if wanted and site.ranges and same else 0
