"""Models from the Hugging Face Hub: the real command and client, against a stand-in hub here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from server.settings import packaged_config_dir

REPO = Path(__file__).resolve().parent.parent
CONTENT = b"GGUF" + bytes(range(256)) * 20

#: What the Hub says about repositories and files that can't be had: status and error code.
REFUSALS = {
    "gated": (403, "GatedRepo"),
    "absent": (404, "RepoNotFound"),
    "no-revision": (404, "RevisionNotFound"),
    "no-file": (404, "EntryNotFound"),
    "unwell": (400, "Unheard"),
}


class _Hub(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        refusal = REFUSALS.get([*self.path.split("/"), "", ""][2])
        self.send_response(refusal[0] if refusal else 200)
        if refusal:
            self.send_header("X-Error-Code", refusal[1])
        self.send_header("X-Repo-Commit", "a" * 40)
        self.send_header("ETag", '"' + "b" * 40 + '"')
        self.send_header("Content-Length", "0" if refusal else str(len(CONTENT)))
        self.end_headers()
        if with_body and not refusal:
            self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    """The address of a stand-in for the Hub."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def fetch(reference: str, cache: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GABARITO_", "HF_"))}
    environment |= {"GABARITO_CONFIG": str(packaged_config_dir()), "HF_HOME": str(cache / "hf")}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", **extra}
    command = [sys.executable, "-m", "server.cli", "fetch", reference, "--cache-dir", str(cache)]
    return subprocess.run(
        command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_file_of_the_hub_is_fetched_and_placed(hub: str, tmp_path: Path) -> None:
    run = fetch("hf:owner/repo/quants/f.gguf@v1", tmp_path, HF_ENDPOINT=hub)
    assert run.returncode == 0, run.stderr
    path = Path(run.stdout.splitlines()[-1])
    assert path.read_bytes() == CONTENT
    assert {file.name for file in path.parent.iterdir()} == {
        "f.gguf",
        "f.gguf.verified.json",
        ".lock",
    }
    again = fetch("hf:owner/repo/quants/f.gguf@v1", tmp_path, HF_HUB_OFFLINE="1")
    assert again.stdout == run.stdout


@pytest.mark.parametrize(
    ("repo", "words"),
    [
        ("gated", "needs an accepted licence and a token"),
        ("absent", "no such repository"),
        ("no-revision", "no such repository or revision"),
        ("no-file", "the repository has no such file"),
        ("unwell", "can't get hf:owner/unwell/f.gguf from the Hub: "),
    ],
)
def test_refusals_are_said_in_a_line(repo: str, words: str, hub: str, tmp_path: Path) -> None:
    run = fetch(f"hf:owner/{repo}/f.gguf", tmp_path, HF_ENDPOINT=hub)
    assert run.returncode == 1
    assert run.stdout == ""
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("gabarito: ")
    assert words in last
    assert "Traceback" not in run.stderr


def test_no_way_to_the_hub(tmp_path: Path) -> None:
    run = fetch("hf:owner/repo/f.gguf", tmp_path, HF_HUB_OFFLINE="1")
    assert run.returncode == 1
    assert "can't get hf:owner/repo/f.gguf from the Hub: " in run.stderr
    assert "Traceback" not in run.stderr
