"""The shipped response templates: which one a chat template gets, and what they make of answers.

Chat templates, answers and messages are in `family_samples`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsing import ResponseParser, ResponseTemplate, choose_template, load_template_file
from server.prompt import ChatTemplate
from tests.family_samples import (
    DIRECTORY,
    FAMILIES,
    SAMPLES,
    TOOLS,
    Family,
    Sample,
    call,
    messages_of,
    with_ids,
)

CONFIG = Path(__file__).resolve().parent.parent / "config" / "response_templates"
FILES = {path.stem: load_template_file(path) for path in sorted(CONFIG.glob("*.json"))}


def source_of(name: str) -> str:
    return (DIRECTORY / f"{name}.jinja").read_text(encoding="utf-8")


def cuts(text: str) -> list[list[str]]:
    """Several ways of cutting a text up, the whole of it and single characters among them."""
    by = [[text[at : at + size] for at in range(0, len(text), size)] for size in (1, 3, 7)]
    chance = random.Random(len(text))
    places = sorted(chance.randrange(len(text) + 1) for _ in range(6))
    some = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    return [[text], some, *by]


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with neighbouring chunks joined."""
    out: list[dict[str, Any]] = []
    for event in events:
        if out and event["type"] == out[-1]["type"] == "region_chunk":
            out[-1] = {**out[-1], "text": out[-1]["text"] + event["text"]}
        else:
            out.append(event)
    return out


def read(
    template: ResponseTemplate, pieces: list[str], prefix: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    parser = ResponseParser(template, prefix=prefix, tools=TOOLS)
    events = list(parser.initial_events)
    for piece in pieces:
        events += parser.feed(piece)
    message, last = parser.finalize()
    assert not parser.malformed
    return message, joined([*events, *last])


def check(template: ResponseTemplate, text: str, prefix: str, message: dict[str, Any]) -> None:
    wanted = {"role": "assistant", **message}
    whole = read(template, [text], prefix)
    assert whole[0] == wanted
    for pieces in cuts(text):
        assert read(template, pieces, prefix) == whole


def test_every_template_has_samples_and_a_chat_template() -> None:
    assert {sample.template for sample in SAMPLES} == set(FILES)
    assert {family.template for family in FAMILIES.values()} == set(FILES)
    assert {path.stem for path in DIRECTORY.glob("*.jinja")} == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_family_is_taken_for_another(name: str) -> None:
    files = list(FILES.values())
    for order in (files, files[::-1]):
        assert choose_template(source_of(name), order).name == FAMILIES[name].template


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.template)
def test_samples(sample: Sample) -> None:
    template = FILES[sample.template].template
    check(template, sample.text, f"... {sample.prefix}", sample.message)


def conversation(family: Family, source: str, message: dict[str, Any]) -> tuple[str, str]:
    """A prompt, and the answer to it as the chat template writes it into the history."""
    chat_template = ChatTemplate(source, bos_token="<s>")
    user = {"role": "user", "content": "Hi"}
    turn = {"role": "assistant", "content": "", **message}
    prompt = chat_template.render([user], tools=TOOLS).text
    history = chat_template.render([user, turn], tools=TOOLS).text
    anchors = list(FILES[family.template].template.anchor.whole.finditer(prompt))
    assert history.startswith(prompt)
    answer = history[len(prompt) :]
    opening = prompt[anchors[-1].start() :]
    return prompt, answer.removesuffix(opening)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "plain"])
def test_what_a_chat_template_renders_is_read_again(name: str) -> None:
    family = FAMILIES[name]
    template = FILES[family.template].template
    for message in messages_of(family):
        prompt, answer = conversation(family, source_of(name), message)
        check(template, answer, prompt, message)
        check(template, without_end(answer, family), prompt, message)


def without_end(answer: str, family: Family) -> str:
    """The text as a runtime gives it: it stops at the mark, which is not part of the text."""
    answer = answer.rstrip()
    for end in family.ends:
        answer = answer.removesuffix(end)
    return answer


def test_a_runtime_leaves_the_end_out() -> None:
    """The round trips above do test that: each family's answer does end with one of its marks."""
    for name, family in FAMILIES.items():
        if not family.ends or name == "plain":
            continue
        _, answer = conversation(family, source_of(name), {"content": "Hi"})
        assert without_end(answer, family) != answer.rstrip(), name


CALLING = [name for name, family in FAMILIES.items() if family.calls]
WORDS = st.text("ab {}[]()\"'\\\n,:=;é🙂", max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(CALLING), WORDS, st.lists(WORDS, max_size=3), st.integers(-99, 99))
def test_arguments_come_back_as_they_were(name: str, text: str, tags: list[str], days: int) -> None:
    family = FAMILIES[name]
    calls: list[dict[str, Any]] = [call("note", text=text, tags=tags)]
    if family.parallel:
        calls.append(call("get_weather", city=text, days=days))
    if family.ids:
        calls = with_ids(calls)
    message = {"tool_calls": calls}
    prompt, answer = conversation(family, source_of(name), message)
    template = FILES[family.template].template
    assert read(template, [answer], prompt)[0] == {"role": "assistant", **message}
