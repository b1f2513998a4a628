"""Getting one file over https: resumed where it stopped, or started over where that is unsafe.

The bytes go to `part`, a file that stays when the connection is lost; beside it lies a small
`.json` with the validator (ETag or date) of what is in it. A later attempt asks for the rest under
`If-Range`, so that a file which changed on the server comes whole and never mixed.

Invariant: when `download` returns, `part` is the server's complete file. Content (hash, magic) is
`server/fetch.py`'s business, which is also what to read next.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from server.catalogue import is_loopback
from server.fetch_errors import (
    AccessDeniedError,
    DiskFullError,
    FetchError,
    NetworkError,
    NotFoundError,
)
from server.progress import Progress

_ATTEMPTS_WITHOUT_PROGRESS = 4
_RESERVE = 64 * 1024 * 1024
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class _Validator:
    """What identifies the version of a file: its URL and a strong ETag or a modification date."""

    url: str
    value: str

    @classmethod
    def of(cls, url: str, response: httpx.Response) -> _Validator | None:
        etag = response.headers.get("etag", "")
        if etag and not etag.startswith("W/"):
            return cls(url, etag)
        modified = response.headers.get("last-modified")
        return cls(url, modified) if modified else None

    @classmethod
    def read(cls, file: Path) -> _Validator | None:
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


class _StartOverError(Exception):
    """The server can't give the rest of what is in the part file."""


def require_space(folder: Path, needed: int) -> None:
    """Check that `needed` bytes and a small reserve fit.

    Raises:
        DiskFullError: they don't.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + _RESERVE:
        raise DiskFullError(
            f"{folder} has {free / 1e6:.0f} MB free, {(needed + _RESERVE) / 1e6:.0f} MB are needed"
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn the system's errors about writing into typed ones.

    Raises:
        DiskFullError: no space or quota left.
        FetchError: any other failure to write.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFullError(f"no space left in {folder}") from error
        raise FetchError(f"can't write to {folder}: {error.strerror or error}") from error


def download(
    url: str, part: Path, *, label: str, progress: Progress, retry_seconds: float = 1.0
) -> None:
    """Fetch `url` into `part`, taking up what is already there.

    A lost connection is taken up again, with growing pauses that start at `retry_seconds`, until
    several attempts in a row have brought nothing.

    Raises:
        NetworkError, NotFoundError, AccessDeniedError, DiskFullError, FetchError
    """
    timeout = httpx.Timeout(60.0, connect=15.0)
    failures = 0
    with httpx.Client(follow_redirects=True, timeout=timeout) as client:
        while True:
            before = _size(part)
            try:
                return _attempt(client, url, part, label, progress)
            except _StartOverError:
                discard(part)
                failures += 1
                lost: Exception | None = None
            except (httpx.TransportError, NetworkError) as error:
                failures = 1 if _size(part) > before else failures + 1
                lost = error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise FetchError(f"can't fetch {url}: {_reason(error)}") from error
            if failures >= _ATTEMPTS_WITHOUT_PROGRESS:
                raise _given_up(url, part, lost)
            if lost is not None:
                progress.message(f"{label}: connection lost ({_reason(lost)}), trying again")
                time.sleep(retry_seconds * 2 ** (failures - 1))


def _attempt(client: httpx.Client, url: str, part: Path, label: str, progress: Progress) -> None:
    """One request, from where the part file ends."""
    have = _size(part)
    validator = _Validator.read(_note(part)) if have else None
    if validator is None or validator.url != url:
        have = 0
    headers = {"Accept-Encoding": "identity", "User-Agent": "gabarito"}
    if have and validator is not None:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator.value}
    with client.stream("GET", url, headers=headers) as response:
        if have and response.headers.get("content-range") == f"bytes */{have}":
            return  # nothing is missing: the process ended between the last byte and here
        _check_status(url, response)
        start, total = _place(response, have)
        with disk_errors(part.parent):
            if total is not None:
                require_space(part.parent, total - start)
            if start == 0:
                _write_note(part, _Validator.of(url, response))
        _receive(response, part, start, total, label, progress)


def _receive(
    response: httpx.Response,
    part: Path,
    start: int,
    total: int | None,
    label: str,
    progress: Progress,
) -> None:
    done = start
    progress.update(label, done, total)
    with disk_errors(part.parent):
        file = part.open("ab" if start else "wb")
    with file:
        for chunk in response.iter_bytes():
            with disk_errors(part.parent):
                file.write(chunk)
            done += len(chunk)
            progress.update(label, done, total)
    if total is not None and done != total:
        raise NetworkError(f"{done} of {total} bytes came")


def _check_status(url: str, response: httpx.Response) -> None:
    if response.url.scheme != "https" and not is_loopback(response.url.host):
        raise FetchError(f"{url} leads to {response.url}, which is not https")
    status = response.status_code
    if status in (200, 206):
        return
    if status == 416:  # asked for what lies behind the end
        raise _StartOverError
    if status in (404, 410):
        raise NotFoundError(f"{url}: no such file (HTTP {status})")
    if status in (401, 403, 407, 451):
        raise AccessDeniedError(f"{url}: access denied (HTTP {status})")
    if status in (408, 429) or status >= 500:
        raise NetworkError(f"HTTP {status}")
    raise FetchError(f"{url}: unexpected answer (HTTP {status})")


def _place(response: httpx.Response, have: int) -> tuple[int, int | None]:
    """Where the body begins in the file, and the file's whole size if the server says it."""
    if response.status_code == 200:
        length = response.headers.get("content-length", "")
        return 0, int(length) if length.isdigit() else None
    found = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
    if found is None or int(found[1]) != have or have == 0:
        raise _StartOverError
    return have, None if found[3] == "*" else int(found[3])


def _given_up(url: str, part: Path, lost: Exception | None) -> NetworkError:
    if lost is None:
        return NetworkError(f"{url}: the server's answers to a resumed download make no sense")
    have = _size(part)
    hint = f"; {have / 1e6:.1f} MB are kept, run it again to go on" if have else ""
    return NetworkError(f"can't fetch {url}: {_reason(lost)}{hint}")


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _write_note(part: Path, validator: _Validator | None) -> None:
    """Empty the part file before its note changes: bytes never stand under another's validator."""
    part.write_bytes(b"")
    if validator is None:
        _note(part).unlink(missing_ok=True)
    else:
        _note(part).write_text(json.dumps(asdict(validator)), encoding="utf-8")


def discard(part: Path) -> None:
    """Remove a part file and what is noted about it."""
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
