"""`gabarito parse`: regions and message on stdout, mistakes as one line on stderr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from parsing import load_template
from server.cli import app
from server.parse_cli import parse
from server.settings import packaged_config_dir
from tests.family_samples import DIRECTORY, TOOLS

CONFIG = packaged_config_dir()
CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
QWEN = f"<think>hm</think>\n\nHi [b]you[/b].\n{CALL}\n<tool_call>nope</tool_call>"


def run(
    *arguments: str, given: str | bytes | None = None, env: dict[str, str] | None = None
) -> Any:
    return CliRunner().invoke(
        app,
        ["parse", "--config", str(CONFIG), *arguments],
        input=given,
        env={"COLUMNS": "300", "NO_COLOR": "1", **(env or {})},
    )


def refused(result: Result, code: int = 2) -> str:
    """The one line of a refusal."""
    assert result.exit_code == code
    assert result.stdout == "" or code == 1
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("gabarito: ")
    return lines[0]


def test_the_table_shows_every_region_and_the_message(tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    file.write_text(QWEN, encoding="utf-8")
    result = run("--template", "qwen3", str(file))
    assert result.exit_code == 0
    assert result.stderr == ""
    table, _, message = result.stdout.partition("\n{\n")
    rows = [line.split() for line in table.splitlines()[3:] if line.strip()]
    assert [row[:2] for row in rows] == [
        ["reasoning_content", "7..9"],
        ["content", "19..33"],
        ["tool_calls", "45..77"],
        ["tool_calls", "101..105"],
    ]
    assert "Hi [b]you[/b]." in table, "markup in the text is text"
    assert rows[0][-1] == "closed"
    assert "malformed: not JSON" in table
    assert json.loads("{\n" + message)["content"] == "Hi [b]you[/b]."


def test_json(tmp_path: Path) -> None:
    result = run("--template", "qwen3", "--json", given=QWEN + "<tool_call>{")
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert shown["message"]["tool_calls"][0]["function"] == {"name": "now", "arguments": {}}
    kinds = [(r["field"], r["closed"], "value" in r, "error" in r) for r in shown["regions"]]
    assert kinds == [
        ("reasoning_content", True, True, False),
        ("content", True, True, False),
        ("tool_calls", True, True, False),
        ("tool_calls", True, False, True),
        ("tool_calls", False, False, True),
    ]
    for region in shown["regions"]:
        assert (QWEN + "<tool_call>{")[region["start"] : region["end"]] == region["text"]


def test_the_prompt_may_have_opened_a_region() -> None:
    prefix = "<|im_start|>assistant\n<think>\n"
    shown = json.loads(
        run("--template", "qwen3", "--json", "--prefix", prefix, given="x</think>Hé").stdout
    )
    assert shown["message"] == {"role": "assistant", "reasoning_content": "x", "content": "Hé"}
    assert [(r["start"], r["end"], r["text"]) for r in shown["regions"]] == [
        (-1, 1, "\nx"),
        (9, 11, "Hé"),
    ]


def test_tools_give_arguments_their_types(tmp_path: Path) -> None:
    text = (
        "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n</parameter>\n</function>\n"
        "</tool_call>"
    )
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS), encoding="utf-8")
    arguments = ("--template", "qwen3_coder", "--json")
    for more, wanted in ((), "3"), (("--tools", str(file)), 3):
        shown = json.loads(run(*arguments, *more, given=text).stdout)
        assert shown["message"]["tool_calls"][0]["function"]["arguments"] == {"days": wanted}


def test_where_the_template_comes_from(tmp_path: Path) -> None:
    chat_template = str(DIRECTORY / "gemma3.jinja")
    shown = json.loads(
        run("--chat-template", chat_template, "--json", given="Hi<end_of_turn>\n").stdout
    )
    assert shown["message"] == {"role": "assistant", "content": "Hi"}
    described = {"start_anchor": "@", "fields": {"answer": {}}}
    for name in ("tokenizer_config.json", "mine.json"):
        file = tmp_path / name
        file.write_text(json.dumps({"eos_token": "x", "response_template": described}))
        assert json.loads(run("--template", str(file), "--json", given="a").stdout)["message"] == {
            "answer": "a"
        }
    shown = json.loads(run("--template", str(tmp_path), "--json", given="a").stdout)
    assert shown["message"] == {"answer": "a"}, "a tokenizer's directory"


def test_the_list_has_every_template() -> None:
    result = run("--list")
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert names == sorted(path.stem for path in (CONFIG / "response_templates").glob("*.json"))


def test_mistakes(tmp_path: Path) -> None:
    assert "there are: chatml" in refused(run(given="x"))
    assert "--template: 'nope' is neither" in refused(run("--template", "nope", given="x"))
    assert "cannot read gone" in refused(run("--template", "qwen3", "gone"))
    assert "not UTF-8" in refused(run("--template", "qwen3", given=b"\xff"))
    broken = tmp_path / "broken.json"
    broken.write_text('{"fields": {}}')
    assert "broken.json: " in refused(run("--template", str(broken), given="x"))
    assert "cannot read gone" in refused(run("--chat-template", "gone", given="x"))
    for content, said in (("{", "is not JSON"), ("{}", "a JSON list of tools")):
        broken.write_text(content)
        arguments = ("--template", "qwen3", "--tools", str(broken))
        assert said in refused(run(*arguments, given="x"))


def test_a_text_that_lacks_a_required_field(tmp_path: Path) -> None:
    fields = {"a": {"open": "<", "close": ">", "optional": False}, "rest": {}}
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"start_anchor": "@", "fields": fields}))
    result = run("--template", str(file), "--json", given="x")
    assert "field 'a': the required field never came" in refused(result, 1)
    assert json.loads(result.stdout)["message"] == {"rest": "x"}


def test_line_ends_are_kept() -> None:
    shown = json.loads(run("--template", "plain", "--json", given=b"a\r\nb\r").stdout)
    assert shown["message"]["content"] == "a\r\nb\r"


@pytest.mark.parametrize("text", ["", "<think>", "<think>a<tool_call>{}</tool_call> <b", " \n"])
def test_spans_are_where_the_text_is(text: str) -> None:
    template = load_template(CONFIG / "response_templates" / "qwen3.json")
    for region in parse(text, template).regions:
        assert text[region.start : region.end] == region.text
