"""What an operator may set, and where each value comes from.

Four layers, later ones winning: the defaults of the models below, the TOML file, `GABARITO_*`
environment variables, flags. Every layer is reduced to ``(section, key) -> Value`` that remembers
its origin, so that a complaint names the file and key, the variable, or the flag it came from.

Invariant: a `Settings` object is complete, validated and frozen; nothing else in the server reads
the settings file or a `GABARITO_*` variable.

Read next: `config/gabarito.toml` (each knob explained), `server/catalogue.py` (the models' list).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

SETTINGS_FILE = "gabarito.toml"
ENV_PREFIX = "GABARITO_"

#: Short names for the settings that are changed most often.
ENV_SHORT: Mapping[str, tuple[str, str]] = {
    "GABARITO_HOST": ("server", "host"),
    "GABARITO_PORT": ("server", "port"),
    "GABARITO_LOG_LEVEL": ("server", "log_level"),
    "GABARITO_API_KEYS": ("server", "api_keys"),
    "GABARITO_MODEL": ("model", "name"),
    "GABARITO_CACHE_DIR": ("model", "cache_dir"),
    "GABARITO_N_CTX": ("engine", "n_ctx"),
    "GABARITO_SLOTS": ("engine", "n_seq"),
    "GABARITO_THREADS": ("engine", "n_threads"),
    "GABARITO_WHITESPACE": ("grammar", "whitespace"),
    "GABARITO_KEY_ORDER": ("grammar", "key_order"),
    "GABARITO_FORMATS": ("grammar", "formats"),
}

#: `GABARITO_*` variables that are not settings: where the settings are, the test suite's own, and
#: those of docker-compose.yml.
ENV_OTHER = frozenset(
    {
        "GABARITO_CONFIG",
        *("GABARITO_SHARED", "GABARITO_TEST_MODEL"),
        *("GABARITO_BIND", "GABARITO_CPUS", "GABARITO_MEMORY", "GABARITO_BAKE"),
    }
)

_ENVIRONMENT = "the environment"
_COMMAND_LINE = "the command line"


class SettingsError(Exception):
    """A setting that can't be used: `file` (or the layer), `key` and what was wrong with it."""

    def __init__(self, file: str, key: str, message: str) -> None:
        super().__init__(": ".join(part for part in (file, key, message) if part))
        self.file = file
        self.key = key
        self.message = message


def _to_path(value: object) -> object:
    return Path(value).expanduser() if isinstance(value, str) and value else value


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


_Path = Annotated[Path, BeforeValidator(_to_path)]
_Names = Annotated[tuple[str, ...], BeforeValidator(_to_tuple)]


_Key = Annotated[str, Field(pattern=r"^[!-~]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ServerSettings(_Section):
    """The HTTP side: where to listen, and what a client may ask of one connection."""

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8000, ge=0, le=65535)
    served_name: str | None = Field(default=None, min_length=1)
    max_body_bytes: int = Field(default=8_000_000, ge=1024)
    ping_seconds: float = Field(default=15.0, gt=0)
    request_timeout_seconds: float = Field(default=600.0, gt=0)
    log_level: Literal["critical", "error", "warning", "info", "debug", "trace"] = "info"
    cors_origins: _Names = ()
    api_keys: Annotated[tuple[_Key, ...], BeforeValidator(_to_tuple)] = Field(
        default=(), repr=False
    )


class ModelSettings(_Section):
    """Which model, where fetched models are kept, and templates that replace the model's own."""

    name: str = Field(default="default", min_length=1)
    cache_dir: _Path | None = None
    chat_template: _Path | None = None
    response_template: str | None = Field(default=None, min_length=1)


class EngineSettings(_Section):
    """The engine: context (tokens, for all slots), slots, threads, batch, queue, forced runs, …"""

    n_ctx: int = Field(default=8192, ge=64)
    n_seq: int = Field(default=4, ge=1, le=256)
    n_threads: int = Field(default=0, ge=0)
    n_batch: int = Field(default=256, ge=1)
    max_queue: int = Field(default=64, ge=0)
    max_queue_per_client: int | None = Field(default=None, ge=1)
    queue_timeout_seconds: float | None = Field(default=None, gt=0)
    forced_runs: bool = True
    masks_beside_decode: bool | Literal["auto"] = "auto"
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    max_tokens_default: int | None = Field(default=None, ge=1)
    repetition_guard: int | None = Field(default=None, ge=16, le=1024)


class GrammarSettings(_Section):
    """How answers are constrained: white space, order of keys, what formats are, memory and work,
    whose rules."""

    whitespace: Literal["fixed", "compact", "pretty", "adaptive", "flexible"] = "adaptive"
    key_order: Literal["schema", "free"] = "schema"
    formats: Literal["assert", "annotate"] = "assert"
    cache_bytes: int = Field(default=256 * 1024 * 1024, ge=1024 * 1024)
    budget: int | None = Field(default=None, ge=1)
    compile_seconds: float = Field(default=10.0, gt=0, le=3600)
    profile: Literal["none", "openai"] = "none"


class SamplingSettings(_Section):
    """Sampling parameters of a request that doesn't set its own."""

    temperature: float = Field(default=1.0, ge=0, le=2, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    top_k: int = Field(default=0, ge=0)
    min_p: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    repeat_penalty: float = Field(default=1.0, gt=0, allow_inf_nan=False)


class Settings(BaseModel):
    """All settings of one server, plus the directory that its configuration came from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: ServerSettings = Field(default_factory=ServerSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    grammar: GrammarSettings = Field(default_factory=GrammarSettings)
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    config_dir: Path = Field(default_factory=lambda: config_dir())

    def config_file(self, name: str) -> Path:
        """A configuration file by its path inside `config/`.

        The one beside the settings file if it is there, else the one that came with the program
        (which may be absent too: the caller says what is missing).
        """
        own = self.config_dir / name
        return own if own.exists() else packaged_config_dir() / name


_SECTIONS: Mapping[str, type[_Section]] = {
    "server": ServerSettings,
    "model": ModelSettings,
    "engine": EngineSettings,
    "grammar": GrammarSettings,
    "sampling": SamplingSettings,
}


@dataclass(frozen=True, slots=True)
class _Value:
    """A raw value, the layer it stands in, and the name under which the operator wrote it."""

    raw: object
    file: str
    name: str


_Layer = dict[tuple[str, str], _Value]


def packaged_config_dir() -> Path:
    """The `config/` that came with the program: the repository's, or the installed copy."""
    root = Path(__file__).resolve().parent.parent
    installed = root / "gabarito_config"
    return installed if installed.is_dir() else root / "config"


def config_dir(env: Mapping[str, str] | None = None) -> Path:
    """The directory of the settings file that would be used without a `--config` flag.

    It also holds the model catalogue and the response templates.
    """
    return find_config(None, os.environ if env is None else env).parent


def find_config(path: Path | None, env: Mapping[str, str]) -> Path:
    """The settings file: `path`, else `GABARITO_CONFIG`, else `./config/`, else the packaged one.

    A directory stands for the `gabarito.toml` inside it.

    Raises:
        SettingsError: a file was named and is not there.
    """
    named, origin = path, "--config"
    if named is None and env.get("GABARITO_CONFIG"):
        named, origin = Path(env["GABARITO_CONFIG"]).expanduser(), "GABARITO_CONFIG"
    if named is not None:
        named = named / SETTINGS_FILE if named.is_dir() else named
        if not named.is_file():
            raise SettingsError(str(named), "", f"no such file (named by {origin})")
        return named
    local = Path("config") / SETTINGS_FILE
    return local.resolve() if local.is_file() else packaged_config_dir() / SETTINGS_FILE


def load_settings(
    path: Path | None = None,
    *,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Read and validate the settings.

    Args:
        path: the settings file; None looks in the usual places (see `find_config`).
        env: the environment; None means the process's own.
        overrides: flags, as `"section.key" -> value`; None values are flags that were not given.

    Raises:
        SettingsError: unreadable file, unknown section, key or variable, or a bad value.
    """
    environ = os.environ if env is None else env
    file = find_config(path, environ)
    merged: _Layer = {
        **(_from_toml(file) if file.is_file() else {}),
        **_from_env(environ),
        **_from_flags(overrides or {}),
    }
    sections = {name: _build(name, merged) for name in _SECTIONS}
    return Settings.model_validate({**sections, "config_dir": file.parent})


def parse_assignment(text: str) -> tuple[str, object]:
    """A `section.key=value` of the command line as an entry for `load_settings(overrides=...)`.

    Raises:
        SettingsError: not of that form, or no such setting. The value itself is checked later.
    """
    name, separator, value = text.partition("=")
    section, _, key = name.strip().partition(".")
    if not separator or section not in _SECTIONS:
        known = ", ".join(_SECTIONS)
        message = f"expected SECTION.KEY=VALUE with a section out of {known}"
        raise SettingsError(_COMMAND_LINE, f"--set {text}", message)
    _require_known(section, key, _COMMAND_LINE, f"--set {name.strip()}")
    return f"{section}.{key}", _from_text((section, key), value.strip())


def _from_toml(file: Path) -> _Layer:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(str(file), "", f"not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise SettingsError(str(file), "", "not valid UTF-8") from None
    except OSError as error:
        raise SettingsError(str(file), "", f"can't be read: {error.strerror}") from None
    layer: _Layer = {}
    for section, table in data.items():
        if section not in _SECTIONS:
            known = ", ".join(f"[{name}]" for name in _SECTIONS)
            raise SettingsError(str(file), section, f"unknown section; there are {known}")
        if not isinstance(table, dict):
            raise SettingsError(str(file), section, f"must be a table, written [{section}]")
        for key, raw in table.items():
            _require_known(section, key, str(file), f"{section}.{key}")
            layer[section, key] = _Value(raw, str(file), f"{section}.{key}")
    return layer


def _from_env(environ: Mapping[str, str]) -> _Layer:
    """The long form `GABARITO_SECTION__KEY` wins over a short name for the same setting."""
    names = [name for name in environ if name.startswith(ENV_PREFIX) and name not in ENV_OTHER]
    layer: _Layer = {}
    for name in sorted(names, key=lambda name: name not in ENV_SHORT):
        place = ENV_SHORT.get(name)
        if place is None:
            section, separator, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
            if not separator or section not in _SECTIONS:
                raise SettingsError(_ENVIRONMENT, name, _unknown_variable(name))
            _require_known(section, key, _ENVIRONMENT, name)
            place = (section, key)
        layer[place] = _Value(_from_text(place, environ[name]), _ENVIRONMENT, name)
    return layer


def _from_flags(overrides: Mapping[str, object]) -> _Layer:
    layer: _Layer = {}
    for name, raw in overrides.items():
        section, _, key = name.partition(".")
        assert section in _SECTIONS, f"no settings section {section!r}"
        assert key in _SECTIONS[section].model_fields, f"no setting {name!r}"
        if raw is not None:
            layer[section, key] = _Value(raw, _COMMAND_LINE, name)
    return layer


def _from_text(place: tuple[str, str], text: str) -> object:
    """A variable's text as the kind of value its setting takes; a wrong one is left as it is.

    Empty means "not set" where a setting may be unset, and no entries where it is a list.
    """
    field = _SECTIONS[place[0]].model_fields[place[1]]
    kinds = str(field.annotation)
    if not text.strip() and field.default is None:
        return None
    if "tuple" in kinds:
        return [item.strip() for item in text.split(",") if item.strip()]
    if "bool" in kinds:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    for kind, convert in (("int", int), ("float", float)):
        if kind in kinds:
            try:
                return convert(text)
            except ValueError:
                return text
    return text


def _require_known(section: str, key: str, file: str, name: str) -> None:
    fields = list(_SECTIONS[section].model_fields)
    if key not in fields:
        near = difflib.get_close_matches(key, fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"[{section}] has {', '.join(fields)}"
        raise SettingsError(file, name, f"unknown setting; {hint}")


def _unknown_variable(name: str) -> str:
    near = difflib.get_close_matches(name, [*ENV_SHORT, *ENV_OTHER], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown variable{hint} (the general form is {ENV_PREFIX}SECTION__KEY)"


def _build(section: str, merged: _Layer) -> _Section:
    values = {key: value for (owner, key), value in merged.items() if owner == section}
    try:
        return _SECTIONS[section].model_validate({key: v.raw for key, v in values.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        value = values[str(first["loc"][0])]
        message = _lower_first(first["msg"])
        if _SECTIONS[section].model_fields[str(first["loc"][0])].repr:  # no secret
            message += f", got {value.raw!r}"
        raise SettingsError(value.file, value.name, message) from None


def _lower_first(message: Any) -> str:
    text = str(message)
    return text[:1].lower() + text[1:]
