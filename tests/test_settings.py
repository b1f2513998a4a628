"""Settings: precedence, precise complaints, and a shipped file that says what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from server.settings import (
    ENV_SHORT,
    Settings,
    SettingsError,
    config_dir,
    find_config,
    load_settings,
    packaged_config_dir,
    parse_assignment,
)

SHIPPED = packaged_config_dir() / "gabarito.toml"


def write(folder: Path, text: str) -> Path:
    file = folder / "gabarito.toml"
    file.write_text(text, encoding="utf-8")
    return file


def fails(file: Path, env: dict[str, str] | None = None) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load_settings(file, env=env or {})
    return caught.value


def test_the_shipped_file_holds_exactly_the_defaults() -> None:
    shipped = load_settings(SHIPPED, env={})
    defaults = Settings(config_dir=shipped.config_dir)
    assert shipped == defaults


def test_the_shipped_file_names_and_comments_every_knob() -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    sections = {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    assert set(sections) == set(tomllib.loads(text))
    for name, model in sections.items():
        block = re.split(r"^\[", text, flags=re.MULTILINE)
        body = next(part for part in block if part.startswith(f"{name}]"))
        for key in model.model_fields:
            assert re.search(rf"^# .+\n(?:# )?{key} = ", body, re.MULTILINE), f"{name}.{key}"


def test_unset_knobs_of_the_shipped_file_are_those_without_a_default() -> None:
    """Every commented-out example is a valid value once it is uncommented."""
    text = SHIPPED.read_text(encoding="utf-8")
    live = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    values = tomllib.loads(live)
    assert values["engine"]["seed"] == 42
    for section, model in Settings.model_fields.items():
        if section in values:
            assert isinstance(model.annotation, type)
            model.annotation.model_validate(values[section])


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, "[server]\nport = 1001\n[engine]\nn_ctx = 1002\nn_batch = 64\n")
    env = {"GABARITO_PORT": "2001", "GABARITO_ENGINE__N_CTX": "2002"}
    settings = load_settings(file, env=env, overrides={"server.port": 3001, "engine.n_ctx": None})
    assert settings.server.port == 3001
    assert settings.engine.n_ctx == 2002
    assert settings.engine.n_batch == 64
    assert settings.engine.n_seq == 4


def test_the_long_variable_wins_over_the_short_one(tmp_path: Path) -> None:
    env = {"GABARITO_SERVER__PORT": "7", "GABARITO_PORT": "8"}
    assert load_settings(write(tmp_path, ""), env=env).server.port == 7


@pytest.mark.parametrize("name", sorted(ENV_SHORT))
def test_short_variables_reach_their_setting(name: str, tmp_path: Path) -> None:
    section, key = ENV_SHORT[name]
    texts = {"host": "::1", "log_level": "debug", "whitespace": "compact", "key_order": "free"}
    texts["formats"] = "annotate"
    text = texts.get(key, "123")
    settings = load_settings(write(tmp_path, ""), env={name: text})
    value = getattr(getattr(settings, section), key)
    assert value == (text,) if isinstance(value, tuple) else str(value) == text


def test_kinds_of_values_from_the_environment(tmp_path: Path) -> None:
    env = {
        "GABARITO_SERVER__CORS_ORIGINS": "https://a.example, https://b.example",
        "GABARITO_SERVER__PING_SECONDS": "2.5",
        "GABARITO_ENGINE__SEED": "",
        "GABARITO_ENGINE__FORCED_RUNS": "False",
        "GABARITO_CACHE_DIR": "~/models",
        "GABARITO_MODEL": "x.gguf",
    }
    settings = load_settings(write(tmp_path, "[engine]\nseed = 5"), env=env)
    assert settings.server.cors_origins == ("https://a.example", "https://b.example")
    assert settings.server.ping_seconds == 2.5
    assert settings.engine.seed is None
    assert settings.engine.forced_runs is False
    assert settings.model.cache_dir == Path.home() / "models"
    assert settings.model.name == "x.gguf"


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("[server]\nport = 70000", "server.port", "less than or equal to 65535, got 70000"),
        ('[server]\nport = "8000"', "server.port", "valid integer, got '8000'"),
        ("[server]\nport = true", "server.port", "valid integer, got True"),
        ("[server]\nprot = 1", "server.prot", "did you mean 'port'?"),
        ("[server]\nxyzzy = 1", "server.xyzzy", "[server] has host, port"),
        ("[sever]\nport = 1", "sever", "unknown section"),
        ("port = 1", "port", "unknown section"),
        ("server = 1", "server", "must be a table"),
        ('[grammar]\nwhitespace = "loose"', "grammar.whitespace", "'adaptive'"),
        ("[sampling]\ntop_p = 0", "sampling.top_p", "greater than 0, got 0"),
        ("[sampling]\ntemperature = nan", "sampling.temperature", "got nan"),
        ("[server]\ncors_origins = [1]", "server.cors_origins", "valid string"),
        ("[server", "", "not valid TOML"),
    ],
)
def test_a_bad_file_is_named_with_the_key_and_what_was_wrong(
    text: str, key: str, words: str, tmp_path: Path
) -> None:
    file = write(tmp_path, text)
    error = fails(file)
    assert error.file == str(file)
    assert error.key == key
    assert words in error.message
    assert str(error).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("GABARITO_PORT", "http", "valid integer, got 'http'"),
        ("GABARITO_SERVER__PORT", "-1", "got -1"),
        ("GABARITO_PROT", "1", "did you mean GABARITO_PORT?"),
        ("GABARITO_ENGINE__NCTX", "1", "did you mean 'n_ctx'?"),
        ("GABARITO_PORT", "", "valid integer"),
        ("GABARITO_MODEL", "", "at least 1 character"),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str, words: str, tmp_path: Path) -> None:
    error = fails(write(tmp_path, ""), {name: value})
    assert error.key == name
    assert words in error.message


def test_other_programs_variables_are_left_alone(tmp_path: Path) -> None:
    env = {"PORT": "x", "HOST": "y", "GABARITO_SHARED": "z", "GABARITO_TEST_MODEL": "z"}
    assert load_settings(write(tmp_path, ""), env=env).server.port == 8000


def test_not_utf8_and_unreadable_files(tmp_path: Path) -> None:
    file = tmp_path / "gabarito.toml"
    file.write_bytes(b"\xff\xfe")
    assert "UTF-8" in fails(file).message
    assert "no such file" in fails(tmp_path / "other.toml").message


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config(None, {}) == packaged_config_dir() / "gabarito.toml"
    local = tmp_path / "config"
    local.mkdir()
    write(local, "[server]\nport = 1")
    assert load_settings(env={}).server.port == 1
    assert config_dir({}) == local
    named = tmp_path / "named"
    named.mkdir()
    write(named, "[server]\nport = 2")
    assert load_settings(env={"GABARITO_CONFIG": str(named)}).server.port == 2
    assert load_settings(local, env={"GABARITO_CONFIG": str(named)}).server.port == 1
    with pytest.raises(SettingsError, match="named by GABARITO_CONFIG"):
        load_settings(env={"GABARITO_CONFIG": str(tmp_path / "absent")})


def test_other_configuration_files_fall_back_to_the_packaged_ones(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, ""), env={})
    assert settings.config_file("models.toml") == packaged_config_dir() / "models.toml"
    (tmp_path / "models.toml").write_text("")
    assert settings.config_file("models.toml") == tmp_path / "models.toml"


def test_assignments_of_the_command_line(tmp_path: Path) -> None:
    name, value = parse_assignment("engine.n_batch=256")
    assert load_settings(write(tmp_path, ""), env={}, overrides={name: value}).engine.n_batch == 256
    for text, words in [
        ("engine.n_batch", "expected SECTION.KEY=VALUE"),
        ("motor.n_batch=1", "with a section out of"),
        ("engine.nbatch=1", "did you mean 'n_batch'?"),
    ]:
        with pytest.raises(SettingsError, match=re.escape(words)):
            parse_assignment(text)
    name, value = parse_assignment("engine.n_batch=many")
    with pytest.raises(SettingsError, match=r"command line: engine\.n_batch: .*'many'"):
        load_settings(write(tmp_path, ""), env={}, overrides={name: value})


def test_settings_are_frozen(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, ""), env={})
    with pytest.raises(ValidationError, match="frozen"):
        settings.server.port = 1


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("auto", "auto")])
def test_masks_beside_the_decode(text: str, value: object) -> None:
    found = load_settings(env={"GABARITO_ENGINE__MASKS_BESIDE_DECODE": text})
    assert found.engine.masks_beside_decode == value
    _, flag = parse_assignment(f"engine.masks_beside_decode={text}")
    assert flag == value


def test_masks_beside_the_decode_is_one_of_three() -> None:
    with pytest.raises(SettingsError, match="MASKS_BESIDE_DECODE"):
        load_settings(env={"GABARITO_ENGINE__MASKS_BESIDE_DECODE": "maybe"})
