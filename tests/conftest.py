"""Shared fixtures: optional test data, the default model, and a real server in its own process.

Invariant: what the tests start, they stop, by its process id.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent

_ADDRESS = re.compile(r"serving \S+ on (http://127\.0\.0\.1:\d+)/v1")
_START_SECONDS = 120.0


@pytest.fixture(scope="module", autouse=True)
def old_objects() -> Iterator[None]:
    """What modules keep for each other is not looked through by the collector again and again: its
    pauses, of seconds at last, would be counted to whatever test they fall into."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The optional data directory beside the project; the test is skipped where it is absent."""
    path = Path(os.environ.get("GABARITO_SHARED", REPO.parent / "shared"))
    if not (path / "data").is_dir():
        pytest.skip(f"optional test data not found at {path} (set GABARITO_SHARED)")
    return path


@pytest.fixture(scope="session")
def model_path() -> Path:
    """A real model's file: GABARITO_TEST_MODEL, else the default model, fetched if need be."""
    given = os.environ.get("GABARITO_TEST_MODEL")
    if given:
        assert Path(given).is_file(), f"GABARITO_TEST_MODEL names no file: {given}"
        return Path(given)
    from server.fetch import resolve_model
    from server.fetch_errors import FetchError
    from server.settings import load_settings

    try:
        return resolve_model(load_settings(overrides={"model.name": "default"}))
    except FetchError as error:
        pytest.fail(f"the default model can't be had: {error} (or set GABARITO_TEST_MODEL)")


@pytest.fixture(scope="session")
def live_server(
    model_path: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The base URL (without `/v1`) of a real server with the real model, ready to answer."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    try:
        with running_server(model_path, log) as server:
            yield server.base_url
    finally:
        if request.session.testsfailed:
            print(f"\nlast lines of the server's log:\n{_tail(log)}")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server in its own process, with its address and the file that its log goes to."""

    process: subprocess.Popen[bytes]
    base_url: str
    log: Path


@contextmanager
def running_server(model: Path, log: Path, *options: str) -> Iterator[RunningServer]:
    """Start a real server on a free port, wait until it is ready, and stop it in the end."""
    command = [sys.executable, "-m", "server.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--model", str(model), *options]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GABARITO_")}
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=REPO,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            yield RunningServer(process, _wait_until_ready(process, log), log)
        finally:
            _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        said = log.read_text(errors="replace")
        if process.poll() is not None:
            pytest.fail(f"the server ended with code {process.returncode}:\n{_tail(log)}")
        if "the model can't be served" in said:
            pytest.fail(f"the server can't load the model:\n{_tail(log)}")
        address = _ADDRESS.search(said)
        if address is not None and _is_ready(address[1]):
            return address[1]
        time.sleep(0.1)
    pytest.fail(f"the server wasn't ready within {_START_SECONDS:.0f} s:\n{_tail(log)}")


def _is_ready(base_url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base_url}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path, lines: int = 60) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
