"""The command line: help for everything, clean errors, results on stdout, an orderly end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from server import __version__
from server.cli import app, main
from server.settings import packaged_config_dir
from tests.conftest import running_server
from tests.file_server import Site, serving

REPO = Path(__file__).resolve().parent.parent
CONTENT = b"GGUF" + bytes(5000)
CONFIG = str(packaged_config_dir())


def environment(**extra: str) -> dict[str, str]:
    base = {k: v for k, v in os.environ.items() if not k.startswith("GABARITO_")}
    return {**base, "GABARITO_CONFIG": CONFIG, "NO_COLOR": "1", "COLUMNS": "100", **extra}


def gabarito(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "server.cli", *arguments],
        cwd=REPO,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site(CONTENT)) as site:
        yield site


def commands() -> dict[str, Any]:
    group = typer.main.get_command(app)
    found = getattr(group, "commands", None)
    assert isinstance(found, dict)
    return found


def test_the_commands() -> None:
    names = {"serve", "fetch", "models", "lint", "parse", "toy", "trace", "version"}
    assert set(commands()) == names


@pytest.mark.parametrize("name", ["serve", "fetch", "models", "parse", "trace", "version"])
def test_every_command_and_option_is_explained(name: str) -> None:
    command = commands()[name]
    assert command.help
    for parameter in command.params:
        if parameter.name == "help":
            continue
        assert parameter.help, f"{name} {parameter.name} has no help"


def test_help_in_a_process_of_its_own() -> None:
    overview = gabarito("--help")
    assert overview.returncode == 0
    for name in commands():
        assert name in overview.stdout
    serve = gabarito("serve", "--help")
    assert serve.returncode == 0
    for option in ("--host", "--port", "--model", "--config", "--n-ctx", "--slots", "--set"):
        assert option in serve.stdout


def test_help_loads_neither_the_engine_nor_the_web_server() -> None:
    code = "import sys, server.cli; print([m for m in ('llama_cpp', 'uvicorn', 'fastapi', "
    code += "'huggingface_hub') if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "extra", "code", "words"),
    [
        (["serve"], {"GABARITO_PORT": "x"}, 2, "GABARITO_PORT: input should be a valid integer"),
        (["serve", "--n-ctx", "1"], {}, 2, "the command line: engine.n_ctx: "),
        (["serve", "--set", "engine.nbatch=1"], {}, 2, "did you mean 'n_batch'?"),
        (["serve", "--config", "absent.toml"], {}, 2, "absent.toml: no such file"),
        (["serve", "--model", "smollm2-135m-instrct"], {}, 2, "did you mean 'smollm2"),
        (["serve", "--model", "absent.gguf", "--port", "0"], {}, 1, "absent.gguf: no such file"),
        (["serve", "--host", "192.0.2.1", "--model", "absent.gguf"], {}, 1, "can't listen on"),
        (["fetch", "http://example.org/m.gguf"], {}, 2, "fetched over https only"),
        (["fetch", "LICENSE"], {}, 1, "LICENSE: not a GGUF file"),
        (["fetch", "hf:nobody"], {}, 2, "expected hf:OWNER/REPO/FILE.gguf"),
    ],
)
def test_mistakes_are_one_line_on_stderr(
    arguments: list[str], extra: dict[str, str], code: int, words: str
) -> None:
    run = gabarito(*arguments, **extra)
    assert run.returncode == code
    assert run.stdout == ""
    assert words in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert run.stderr.startswith("gabarito: ")


def test_a_taken_port_is_said_before_anything_is_fetched(site: Site) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        run = gabarito("serve", "--port", port, "--model", site.url)
    assert run.returncode == 1
    assert f"can't listen on 127.0.0.1 port {port}" in run.stderr
    assert "Traceback" not in run.stderr
    assert site.requests == []


def test_fetch_prints_the_path_on_stdout_and_progress_on_stderr(site: Site, tmp_path: Path) -> None:
    run = gabarito("fetch", site.url, "--cache-dir", str(tmp_path))
    assert run.returncode == 0, run.stderr
    path = Path(run.stdout.splitlines()[-1])
    assert path.read_bytes() == CONTENT
    assert tmp_path in path.parents
    assert "MB" in run.stderr


def test_fetch_says_what_went_wrong(site: Site, tmp_path: Path) -> None:
    site.statuses = [404]
    run = gabarito("fetch", site.url, "--cache-dir", str(tmp_path))
    assert run.returncode == 1
    assert "no such file (HTTP 404)" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_fetch_that_is_told_to_end_leaves_no_pip_behind(site: Site, tmp_path: Path) -> None:
    site.hold = threading.Event()
    index = environment(
        PIP_INDEX_URL=site.url,
        PIP_EXTRA_INDEX_URL="",
        PIP_FIND_LINKS="",
        PIP_CONFIG_FILE=os.devnull,
    )
    command = [sys.executable, "-m", "server.cli", "fetch", "default", "--cache-dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=REPO, env=index, stderr=subprocess.DEVNULL) as process:
        while not site.requests and process.poll() is None:
            time.sleep(0.01)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    site.hold.set()
    assert len(children) == 1
    assert not Path("/proc", children[0]).exists()


def test_models_lists_the_catalogue(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["models", "--cache-dir", str(tmp_path), "--config", CONFIG])
    assert run.exit_code == 0
    assert "smollm2-135m-instruct  [default]" in run.stdout
    assert "licence: Apache-2.0" in run.stdout
    assert "not free software" in run.stdout


def test_version() -> None:
    run = CliRunner().invoke(app, ["version"])
    assert run.exit_code == 0
    assert run.stdout.startswith(f"gabarito {__version__} (Python 3.")


def test_main_is_what_the_console_command_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gabarito", "models", "--config", "absent"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("gabarito: absent: no such file")


@pytest.mark.model
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_ends_in_order(
    number: signal.Signals, model_path: Path, tmp_path: Path
) -> None:
    with running_server(model_path, tmp_path / "log") as server:
        server.process.send_signal(number)
        assert server.process.wait(timeout=30) == 0
    log = server.log.read_text()
    assert "Traceback" not in log
    assert 'GET /ready HTTP/1.1" 200' not in log, "probes that succeed are not logged"
    assert "Application shutdown complete" in log
