"""The story of form and truth: its scenes, and `gabarito toy`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from server.cli import app
from server.engine.toy import ToySpecError
from server.settings import Settings
from server.story import Scene, scenes
from tests.test_toy import OWN_SPEC, load


def told(spec: dict[str, Any]) -> dict[str, Scene]:
    return {scene.name: scene for scene in scenes(spec, Settings(), max_tokens=8)}


def check(spec: dict[str, Any], bound: str, wrong: int, right: str) -> None:
    """All four scenes, whoever the story is about."""
    alone, bound_, checked, willing = told(spec).values()
    assert alone.text == spec["model"]["answer"]
    assert "gabarito" not in alone.response

    assert bound_.text == bound
    assert bound_.response["gabarito"]["schema"]["enforced"] is True
    assert bound_.response["gabarito"]["validation"] == {"complete": True, "valid": True}

    error = checked.response["error"]
    assert (checked.status, error["code"], error["reason"]) == (
        422,
        "repair_failed",
        "repeated_answer",
    )
    first, second, third = error["attempts"]
    assert (first["outcome"], first["max_tokens"], first["completion_tokens"]) == (
        "truncated",
        8,
        8,
    )
    assert (second["outcome"], second["max_tokens"]) == ("ungrounded", 16)
    assert (third["outcome"], third["repeats"]) == ("repeated", 2)
    assert second["content"] == third["content"] == bound
    assert bound.startswith(first["content"])
    (reason,) = second["reasons"]
    assert (reason["pointer"], reason["value"], reason["kind"]) == ("/age", wrong, "number")
    assert third["reasons"] == second["reasons"]

    assert willing.text == right
    repair = willing.response["gabarito"]["repair"]
    assert repair["attempts"] == 2
    assert [a["outcome"] for a in repair["rejected"]] == ["truncated"]
    assert willing.response["gabarito"]["grounding"] == {"ungrounded": []}
    assert willing.response["usage"]["completion_tokens"] > 16


def test_our_own_story() -> None:
    check(
        load(OWN_SPEC),
        bound='{"name": "Marie Curie", "age": 77}',
        wrong=77,
        right='{"name": "Marie Curie", "age": 66}',
    )


def test_the_same_story_of_somebody_else(shared_dir: Path) -> None:
    spec = load(shared_dir / "data" / "toy" / "toy.json")
    expected = spec["expected"]
    right = expected["extract_with_budget_8_then_doubling"]["model_with_answer"]
    check(
        {**spec, "willing_answer": right},
        bound=expected["constrained_greedy"]["text"],
        wrong=json.loads(expected["constrained_greedy"]["text"])["age"],
        right=right,
    )


def test_without_a_willing_model_the_story_is_shorter() -> None:
    spec = load(OWN_SPEC)
    del spec["willing_answer"]
    assert list(told(spec)) == ["alone", "bound", "checked"]


def test_a_story_needs_a_source() -> None:
    spec = load(OWN_SPEC)
    del spec["source"]
    with pytest.raises(ToySpecError, match="source"):
        told(spec)


# --- the command ------------------------------------------------------------------------------


def gabarito(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["toy", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_tells_it() -> None:
    code, out, _ = gabarito()
    assert code == 0
    assert "Marie Curie was sixty-six years old when she died." in out
    assert '"age": "sixty-six"' in out
    assert "truncated: the answer was cut off at 8 tokens" in out
    assert "ungrounded: /age: the source does not state 77" in out
    assert "repeated: the same as attempt 2" in out
    assert "422 repair_failed: repeated_answer" in out
    assert out.rstrip().endswith("valid: true, grounded: true")


def test_the_command_takes_another_story(tmp_path: Path) -> None:
    spec = {**load(OWN_SPEC), "willing_answer": None}
    path = tmp_path / "story.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    code, out, _ = gabarito(str(path), "--json", "--max-tokens", "30")
    assert code == 0
    scenes_ = [json.loads(line) for line in out.splitlines()]
    assert [scene["name"] for scene in scenes_] == ["alone", "bound", "checked"]
    outcomes = [a["outcome"] for a in scenes_[2]["response"]["error"]["attempts"]]
    assert outcomes == ["ungrounded", "repeated"]
    code, out, _ = gabarito(str(path), "--willing", '{"name": "Marie Curie", "age": 66}')
    assert out.rstrip().endswith("valid: true, grounded: true")


def test_a_schema_that_is_none_is_shown_as_the_server_says_it(tmp_path: Path) -> None:
    path = tmp_path / "story.json"
    path.write_text(json.dumps({**load(OWN_SPEC), "schema": {"type": 3}}), encoding="utf-8")
    code, out, _ = gabarito(str(path))
    assert code == 0
    assert "400 invalid_schema: Invalid schema for response_format" in out


@pytest.mark.parametrize("text", ["{", '{"model": {}}', None])
def test_a_file_that_is_no_story(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "story.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    code, out, err = gabarito(str(path))
    assert code == 2
    assert "story" in err
    assert "Traceback" not in out + err
