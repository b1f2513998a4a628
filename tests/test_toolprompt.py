"""Tools, calls and results for chat templates of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.prompt import ChatTemplate, ChatTemplateError
from server.settings import Settings
from server.templates import (
    AnswerTemplates,
    TemplateSettingError,
    fallback_format,
    load_template_file,
    template_files,
)
from server.toolprompt import FILE, ToolPrompt, ToolPromptError, render_conversation
from tests.family_samples import DIRECTORY

CONFIG = Path(__file__).resolve().parent.parent / "config"
PROMPT = ToolPrompt.of_file(CONFIG / FILE)
TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
USER = {"role": "user", "content": "Go."}
TURNS: list[dict[str, Any]] = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "2", "tool_call_id": "call_1"},
]


@pytest.mark.parametrize(
    ("name", "tools", "calls"),
    [
        ("qwen3", True, True),
        ("qwen3_coder", True, True),
        ("llama3", True, True),
        ("mistral", True, True),
        ("kimi_k2", True, True),
        ("lfm2", True, True),
        ("gemma3", False, False),
        ("inst", False, False),
        ("plain", False, False),
    ],
)
def test_what_a_chat_template_knows_is_tried_out(name: str, tools: bool, calls: bool) -> None:
    template = ChatTemplate((DIRECTORY / f"{name}.jinja").read_text(encoding="utf-8"))
    assert (template.knows_tools, template.knows_calls) == (tools, calls)


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.jinja")), ids=lambda path: path.stem)
def test_every_family_can_be_told_of_tools_calls_and_results(path: Path) -> None:
    template = ChatTemplate(path.read_text(encoding="utf-8"), bos_token="<s>")
    text = render_conversation(template, PROMPT, TURNS, tools=[TOOL]).text
    assert "f" in text
    assert "2" in text


def test_arguments_are_text_for_templates_that_can_only_join_texts() -> None:
    source = "{% for m in messages %}{% for c in m.tool_calls %}"
    template = ChatTemplate(source + "{{ 'a:' + c.function.arguments }}{% endfor %}{% endfor %}")
    assert template.render(TURNS).text == 'a:{"a": 1}'


def test_what_no_form_of_the_arguments_helps_is_refused_for_its_own_reason() -> None:
    template = ChatTemplate("{{ raise_exception('no calls') }}")
    with pytest.raises(ChatTemplateError, match="no calls"):
        template.render(TURNS)


def test_templates_that_want_short_ids_get_them_on_both_sides() -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls %}{% if c.id|length != 9 %}"
        "{{ raise_exception('id') }}{% endif %}{{ c.id }} {% endfor %}{{ m.tool_call_id }}"
        "{% endfor %}"
    )
    first, second = ChatTemplate(source).render(TURNS).text.split()
    assert first == second != "call_1"
    kept = json.loads(json.dumps(TURNS).replace("call_1", "abcDEF123"))
    assert ChatTemplate(source).render(kept).text == "abcDEF123 abcDEF123"


def test_results_and_what_the_user_says_next_become_one_message() -> None:
    told = PROMPT.retell([*TURNS, USER, {"role": "assistant", "content": "Hm."}, USER])
    assert [turn["role"] for turn in told] == ["user", "assistant", "user", "assistant", "user"]
    assert told[2]["content"] == "<tool_response>\n2\n</tool_response>\n\nGo."


def test_a_conversation_without_tools_stays_as_it_is() -> None:
    turns = [{"role": "system", "content": "s"}, USER, USER]
    assert PROMPT.retell(turns) == turns


def test_arguments_that_are_no_json_are_shown_as_they_are() -> None:
    broken = {**CALL, "function": {"name": "f", "arguments": '{"a": '}}
    told = PROMPT.retell([{"role": "assistant", "content": "Hm.", "tool_calls": [broken]}])
    assert told[0]["content"].startswith("Hm.\n<tool_call>\n")
    assert '{"name": "f", "arguments": {"a": }' in told[0]["content"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% macro instructions(", "line 1"),
        ("{% macro instructions(a, b) %}{% endmacro %}", "calls"),
        ("{{ raise_exception('x') }}", "x"),
    ],
)
def test_a_bad_prompt_file_is_found_when_it_is_loaded(source: str, reason: str) -> None:
    with pytest.raises(ToolPromptError, match=reason):
        ToolPrompt(source)


def test_a_missing_prompt_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolPromptError, match=r"nothing\.jinja"):
        ToolPrompt.of_file(tmp_path / "nothing.jinja")


def test_a_prompt_that_fails_is_a_bad_request() -> None:
    macros = "".join(f"{{% macro {name}() %}}{{% endmacro %}}" for name in ("calls", "result"))
    prompt = ToolPrompt("{% macro instructions(a, b) %}{{ a.x.y }}{% endmacro %}" + macros)
    with pytest.raises(ChatTemplateError, match="fallback prompt"):
        prompt.explain([USER], [TOOL], "auto")


# --- which format the calls have ------------------------------------------------------------------


def templates(*, native: bool) -> AnswerTemplates:
    files = template_files(Settings())
    named = {file.name: file.template for file in files}
    fallback = fallback_format(Settings())
    return AnswerTemplates(own=named["mistral"], named=named, fallback=fallback, native=native)


def opener(template: Any) -> str:
    return str(template.source["fields"]["tool_calls"]["open_pattern"])


def test_calls_have_the_format_that_the_prompt_tells_of() -> None:
    assert "TOOL_CALLS" in opener(templates(native=True).get(None, tools=True))
    assert "<tool_call>" in opener(templates(native=False).get(None, tools=True))
    assert "TOOL_CALLS" in opener(templates(native=False).get("mistral", tools=True))
    assert "<tool_call>" in opener(templates(native=True).get("plain", tools=True))


def test_templates_are_made_once() -> None:
    made = templates(native=True)
    assert made.get("chatml", tools=True) is made.get("chatml", tools=True)
    assert "tool_calls" not in made.get("qwen3", tools=False).fields


def test_the_fallback_format_is_that_of_the_family_it_is_taken_from() -> None:
    qwen3 = load_template_file(CONFIG / "response_templates" / "qwen3.json").template
    assert fallback_format(Settings()) == qwen3.source["fields"]["tool_calls"]


@pytest.mark.parametrize(
    "text", ["no JSON", '{"open": 3}', '{"open": "<t>", "content": "x"}', "[]"]
)
def test_a_bad_fallback_format_is_named(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tool_format.json"
    path.write_text(text)
    monkeypatch.setattr(Settings, "config_file", lambda _, __: path)
    with pytest.raises(TemplateSettingError, match="tool_format"):
        fallback_format(Settings())


def test_a_file_from_before_there_were_notations_still_works() -> None:
    prompt = ToolPrompt(
        "{% macro instructions(tools, choice) %}Tools!{% endmacro %}"
        "{% macro calls(tool_calls) %}C{% endmacro %}"
        "{% macro result(name, content) %}R{% endmacro %}"
    )
    told = prompt.explain([], [], "auto", notation=lambda name, arguments: f"{name}()")
    assert told == [{"role": "system", "content": "Tools!"}]
