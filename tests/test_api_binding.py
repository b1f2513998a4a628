"""What the answers to tools, formats and thinking models are bound to: texts that the grammar takes
and texts that it refuses, byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from server.api.app import create_app
from server.settings import Settings
from tests.api_support import (
    EOS,
    ScriptedEngine,
    chat,
    client_of,
    odd_template,
    saying,
    strict_format,
)
from tests.test_api_tools import KNOWING, calling, tool

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 3}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOK = tool("look", CITY, strict=True)
NOW = tool("now", None)
TOOLS = [LOOK, NOW]
PERSON = {
    "type": "object",
    "properties": {"age": {"type": "integer"}},
    "required": ["age"],
    "additionalProperties": False,
}
THINKING = "{# <think></think> <tool_call> #}" + KNOWING


async def post(engine: ScriptedEngine, **fields: Any) -> httpx.Response:
    settings = Settings.model_validate({"server": {"served_name": "toy"}})
    async with client_of(create_app(settings, engine=engine)) as client:
        return await client.post("/v1/chat/completions", json=chat(**fields))


async def bound(chat_template: str | None = None, **fields: Any) -> ScriptedEngine:
    """An engine that was asked for this; `takes` tells what the grammar of its request takes."""
    given = {} if chat_template is None else {"chat_template": chat_template}
    engine = ScriptedEngine(saying("x"), **given)  # type: ignore[arg-type]
    response = await post(engine, **fields)
    assert response.status_code in (200, 500), response.text  # "x" may be none of it
    return engine


def takes(engine: ScriptedEngine, text: str) -> bool:
    """Whether the last request's grammar takes the whole text, and nothing need follow."""
    grammar = engine.last.grammar
    assert grammar is not None
    matcher = grammar.start()
    for token in [*engine.tokenize(text), EOS]:
        if not matcher.is_allowed(token):
            return False
        matcher.advance(token)
    return True


PARIS = calling("look", '{"city": "Par"}')
LONG = calling("look", '{"city": "Paris"}')
FREE = "It is noon."


async def test_auto_takes_words_and_right_calls() -> None:
    engine = await bound(tools=TOOLS)
    for text in (FREE, PARIS, f"Wait.\n{PARIS}\n{calling('now', '{}')}", ""):
        assert takes(engine, text), text
    for text in (
        LONG,
        calling("look", "{}"),
        calling("other", "{}"),
        calling("now", '{"a": 1}'),
        "<tool_call>no</tool_call>",
    ):
        assert not takes(engine, text), text


async def test_required_takes_calls_only() -> None:
    engine = await bound(tools=TOOLS, tool_choice="required")
    assert takes(engine, PARIS)
    assert takes(engine, f"{PARIS}\n{PARIS}")
    assert not takes(engine, FREE)
    assert not takes(engine, "")


async def test_a_named_function_is_called_once_and_nothing_else() -> None:
    choice = {"type": "function", "function": {"name": "now"}}
    engine = await bound(tools=TOOLS, tool_choice=choice)
    assert takes(engine, calling("now", "{}"))
    for text in (PARIS, FREE, f"{calling('now', '{}')}\n{calling('now', '{}')}"):
        assert not takes(engine, text), text


@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_allowed_tools_leave_the_others_out(mode: str) -> None:
    named = [{"type": "function", "function": {"name": "now"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}
    engine = await bound(tools=TOOLS, tool_choice=choice)
    assert takes(engine, calling("now", "{}"))
    assert not takes(engine, PARIS)
    assert takes(engine, FREE) == (mode == "auto")


async def test_without_parallel_calls_there_is_one() -> None:
    engine = await bound(tools=TOOLS, parallel_tool_calls=False)
    assert takes(engine, PARIS)
    assert not takes(engine, f"{PARIS}\n{PARIS}")


async def test_choice_none_binds_nothing() -> None:
    engine = await bound(tools=TOOLS, tool_choice="none")
    assert engine.last.grammar is None


async def test_a_format_and_tools_leave_the_choice_between_both() -> None:
    engine = await bound(tools=TOOLS, response_format=strict_format(PERSON))
    assert takes(engine, '{"age": 3}')
    assert takes(engine, PARIS)
    assert not takes(engine, FREE)
    assert not takes(engine, '{"age": "3"}')


async def test_a_call_in_place_of_a_format_is_no_invalid_answer() -> None:
    engine = ScriptedEngine(saying(PARIS))
    response = await post(engine, tools=TOOLS, response_format=strict_format(PERSON))
    assert response.status_code == 200
    answer = response.json()
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert "validation" not in answer["gabarito"]


# --- thinking first -------------------------------------------------------------------------------


async def test_a_model_that_thinks_does_so_before_its_strict_content() -> None:
    engine = await bound(THINKING, response_format=strict_format(PERSON))
    for text in ('{"age": 3}', '<think>\nThree, {or} "four".\n</think>\n\n{"age": 3}'):
        assert takes(engine, text), text
    for text in ("<think>\nThree.\n</think>\n\nIt is 3.", "<think>a</think>", '<think>{"age": 3}'):
        assert not takes(engine, text), text


async def test_reasoning_and_strict_content_come_back_apart() -> None:
    engine = ScriptedEngine(
        saying("<think>", "\nThree.\n", "</think>", "\n\n", '{"age', '": 3}'),
        chat_template=THINKING,
    )
    response = await post(engine, response_format=strict_format(PERSON))
    answer = response.json()
    message = answer["choices"][0]["message"]
    assert message["content"] == '{"age": 3}'
    assert message["reasoning_content"] == "Three."
    assert answer["gabarito"]["validation"] == {"complete": True, "valid": True}
    assert answer["gabarito"]["schema"]["enforced"] is True


async def test_a_prompt_that_has_opened_the_reasoning_is_gone_on_with() -> None:
    engine = await bound(THINKING + "<think>\n", response_format=strict_format(PERSON))
    assert takes(engine, 'Hm.\n</think>\n\n{"age": 3}')
    assert not takes(engine, '{"age": 3}')


async def test_a_model_that_was_never_taught_to_think_is_not_led_into_it() -> None:
    for fields in ({"tools": TOOLS}, {"response_format": strict_format(PERSON)}):
        engine = await bound("{# <tool_call> #}" + KNOWING, **fields)
        assert not takes(engine, '<think>a</think>{"age": 3}')


@pytest.mark.parametrize("fields", [{"max_reasoning_tokens": 0}, {"reasoning_effort": "none"}])
async def test_reasoning_can_be_ruled_out(fields: dict[str, Any]) -> None:
    engine = await bound(THINKING, **fields)
    assert takes(engine, FREE)
    assert not takes(engine, "<think>a</think>b")


async def test_reasoning_can_be_bounded() -> None:
    engine = await bound(THINKING, max_reasoning_tokens=4, response_format=strict_format(PERSON))
    assert takes(engine, '<think>abcd</think>{"age": 3}')
    assert not takes(engine, '<think>abcde</think>{"age": 3}')


async def test_a_model_without_reasoning_needs_no_bound() -> None:
    engine = await bound(max_reasoning_tokens=4)
    assert engine.last.grammar is None


# --- schemas ------------------------------------------------------------------------------------

#: No regular language is a pattern with a back-reference.
TWICE = {"type": "object", "properties": {"a": {"pattern": "^(a+)b\\1$"}}}
NEVER = {"type": "object", "properties": {"a": False}, "required": ["a"]}


async def refused(*tools: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = await post(ScriptedEngine(saying("x")), tools=list(tools), **fields)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


async def test_a_strict_schema_that_cant_be_enforced_is_named() -> None:
    error = await refused(NOW, tool("f", TWICE, strict=True))
    assert error["param"] == "tools[1].function.parameters"
    assert error["code"] == "invalid_function_parameters"
    assert "'f'" in error["message"]
    assert [issue["pointer"] for issue in error["issues"]] == ["/properties/a"]
    assert error["issues"][0]["keyword"] == "pattern"


async def test_a_strict_schema_that_nothing_satisfies_is_named() -> None:
    error = await refused(tool("f", NEVER, strict=True))
    assert error["param"] == "tools[0].function.parameters"
    assert error["code"] == "invalid_function_parameters"


@pytest.mark.parametrize("strict", [True, False])
async def test_what_is_no_schema_is_an_error_either_way(strict: bool) -> None:
    wrong = {"type": "object", "properties": {"a": {"type": "objekt"}}}
    error = await refused(tool("f", wrong, strict=strict))
    assert error["param"] == "tools[0].function.parameters"
    assert error["issues"][0]["pointer"] == "/properties/a"


async def test_of_a_tool_that_is_not_strict_the_rest_is_listed() -> None:
    engine = ScriptedEngine(saying(calling("f", "{}")))
    response = await post(engine, tools=[NOW, tool("f", TWICE)])
    facts = response.json()["gabarito"]["tools"]
    assert facts["enforced"] is False
    [missing] = facts["unenforced"]
    assert (missing["tool"], missing["keyword"], missing["pointer"]) == (
        "f",
        "pattern",
        "/properties/a",
    )
    assert takes(engine, calling("f", '{"a": 1}'))
    assert not takes(engine, calling("now", '{"a": 1}'))


async def test_a_tool_that_nothing_satisfies_is_said_to_be_never_called() -> None:
    engine = ScriptedEngine(saying(calling("look", '{"city": "A"}')))
    response = await post(engine, tools=[LOOK, tool("f", NEVER)], tool_choice="required")
    [never] = response.json()["gabarito"]["tools"].pop("uncallable")
    assert (never["tool"], never["pointer"]) == ("f", "/properties/a")
    assert "never called" in never["reason"]
    assert response.json()["gabarito"]["tools"]["enforced"] is True
    assert takes(engine, calling("look", '{"city": "A"}'))
    assert not takes(engine, calling("f", '{"a": 1}'))
    engine = ScriptedEngine(saying("words"))
    alone = await post(engine, tools=[tool("f", NEVER)])
    assert [each["tool"] for each in alone.json()["gabarito"]["tools"]["uncallable"]] == ["f"]
    assert takes(engine, "words")
    assert not takes(engine, calling("f", '{"a": 1}'))


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
async def test_a_call_that_is_required_and_that_nothing_satisfies_is_an_error(choice: Any) -> None:
    tools = [tool("f", NEVER)] if choice == "required" else [tool("f", NEVER), NOW]
    response = await post(ScriptedEngine(saying("x")), tools=tools, tool_choice=choice)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "tools[0].function.parameters"
    assert error["code"] == "invalid_function_parameters"
    assert error["issues"][0]["pointer"] == "/properties/a"


async def test_what_is_not_grounded_is_said() -> None:
    grounded = {"type": "object", "properties": {"n": {"type": "integer", "x-ground": "number"}}}
    response = await post(ScriptedEngine(saying("ok")), tools=[tool("f", grounded), NOW])
    [warning] = response.json()["gabarito"]["warnings"]
    assert warning.startswith("x-ground is not checked in the arguments of calls")
    response = await post(ScriptedEngine(saying("ok")), tools=[NOW])
    assert "warnings" not in response.json()["gabarito"]


async def test_enforced_tools_are_said_to_be() -> None:
    response = await post(ScriptedEngine(saying(PARIS)), tools=TOOLS)
    assert response.json()["gabarito"]["tools"] == {"enforced": True, "valid": True}


# --- white space at the ends of content ---------------------------------------------------------


def pattern(text: str) -> dict[str, Any]:
    return {"type": "regex", "pattern": text}


LEFT_OUT = "Of what the content may be, the texts with white space at their ends are left out"


async def test_white_space_that_would_be_taken_off_is_not_part_of_the_content() -> None:
    engine = ScriptedEngine(saying("\na"))
    response = await post(engine, tools=[NOW], response_format=pattern(r"\s?a\s?"))
    assert response.json()["choices"][0]["message"]["content"] == "a"
    [warning] = response.json()["gabarito"]["warnings"]
    assert warning.startswith(LEFT_OUT)
    assert takes(engine, "\na"), "white space around it is no part of it"
    engine = ScriptedEngine(saying("a b"))
    response = await post(engine, tools=[NOW], response_format=pattern(r"a\sb"))
    assert "warnings" not in response.json()["gabarito"]
    assert takes(engine, "a b")
    choices = {"type": "choice", "choices": ["a", "b\u2003", "\u001cc"]}
    engine = ScriptedEngine(saying("a"))
    await post(engine, tools=[NOW], response_format=choices)
    assert takes(engine, "a")
    assert not takes(engine, "b\u2003")
    assert not takes(engine, "\u001cc")


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        (pattern(r"[ \n]a"), "response_format.pattern"),
        ({"type": "choice", "choices": [" a", "b "]}, "response_format.choices"),
        ({"type": "grammar", "grammar": 'root ::= "a\\n"'}, "response_format.grammar"),
    ],
)
async def test_content_that_is_never_without_white_space_is_refused(
    wanted: dict[str, Any], param: str
) -> None:
    response = await post(ScriptedEngine(saying("x")), tools=[NOW], response_format=wanted)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, "unsatisfiable_grammar")
    assert "white space" in error["message"]


async def test_a_template_that_keeps_white_space_keeps_it() -> None:
    engine = ScriptedEngine(saying(" a\n"))
    response = await post(
        engine, tools=[NOW], response_format=pattern(r"\s?a\s?"), response_template="plain"
    )
    assert response.json()["choices"][0]["message"]["content"] == " a\n"
    assert "warnings" not in response.json()["gabarito"]
    assert takes(engine, " a\n")
    assert not takes(engine, "  a"), "that does not fit"


# --- templates that can't be read backwards -------------------------------------------------------


@pytest.fixture
def odd(tmp_path: Path) -> str:
    return odd_template(tmp_path)


async def with_template(template: str, engine: ScriptedEngine, **fields: Any) -> httpx.Response:
    settings = Settings.model_validate(
        {"server": {"served_name": "toy"}, "model": {"response_template": template}}
    )
    async with client_of(create_app(settings, engine=engine)) as client:
        return await client.post("/v1/chat/completions", json=chat(**fields))


async def test_calls_that_cant_be_bound_are_read_all_the_same(odd: str) -> None:
    text = '@call@{"name": "look", "arguments": {"city": "Paris"}}!'
    engine = ScriptedEngine(saying(text))
    answer = (await with_template(odd, engine, tools=[tool("look", CITY)])).json()
    assert engine.last.grammar is None
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"
    facts = answer["gabarito"]["tools"]
    assert facts["enforced"] is False
    assert "tool_calls" in facts["reason"]
    assert facts["invalid"][0]["errors"][0]["pointer"] == "/city"


async def test_a_format_that_cant_be_bound_beside_calls_is_refused(odd: str) -> None:
    response = await with_template(
        odd,
        ScriptedEngine(saying("x")),
        tools=TOOLS,
        response_format=strict_format(PERSON),
    )
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("response_format", "unsupported_value")
