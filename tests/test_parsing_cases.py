"""The collected cases of response templates, each under every way of cutting its text.

A case marked "ok" must give the recorded message and events; where the record is marked as wrong or
surprising, the message must be the one in `want`, if there is one. For every case, all cuts agree.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parsing import (
    ResponseParseError,
    ResponseParser,
    ResponseTemplateError,
    load_template_file,
    parse_response,
)

Case = dict[str, Any]
CONFIG = Path(__file__).resolve().parent.parent / "config" / "response_templates"

# What is wanted of these can't come out of the template they give: its own pattern eats the white
# space that should stay, or asks for a mark that isn't there. Our templates get them right.
BY_OUR_TEMPLATE = {
    "issue/vllm48753_param_whitespace": "qwen3_coder",
    "issue/vllm30651_mistral_no_args_token": "mistral",
}

# Calls of a tokenizer's methods. Texts are what this package takes; ids are decoded by these rules.
MARKS = {1: "<|im_start|>", 2: "<|im_end|>", 3: "<think>", 4: "</think>"}
NOT_OURS = {"api/batch_prefix_count"}  # counts prefixes against responses: a tokenizer's business


@pytest.fixture(scope="module")
def cases(shared_dir: Path) -> list[Case]:
    path = shared_dir / "data" / "response_templates" / "cases.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no cases at {path}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def comparable(value: Any) -> Any:
    """A value whose keys keep their order when compared, and whose NaN equals itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return value


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for event in events:
        event = {key: value for key, value in event.items() if key != "at"}
        if event["type"] == "region_chunk" and out and out[-1]["type"] == "region_chunk":
            out[-1]["text"] += event["text"]
        else:
            out.append(event)
    return out


def run(case: Case, chunks: list[str]) -> dict[str, Any]:
    """What a case gives when its text comes in these chunks."""
    try:
        parser = ResponseParser(case["template"], prefix=case["prefix"], tools=case.get("tools"))
    except (ResponseTemplateError, ResponseParseError) as error:
        return {"error": str(error)}
    events = list(parser.initial_events)
    for chunk in chunks:
        events += parser.feed(chunk)
    outcome: dict[str, Any] = {}
    try:
        message, last = parser.finalize()
    except ResponseParseError as error:
        message, last, outcome["error"] = dict(error.message or {}), list(error.events), str(error)
    if parser.malformed:
        outcome["error"] = parser.malformed[0]["error"]
    return outcome | {"message": comparable(message), "events": joined(comparable(events + last))}


def ordered(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def test_every_cut_gives_the_same(cases: list[Case]) -> None:
    parsed = [row["case"] for row in cases if "chunkings" in row["case"]]
    assert len(parsed) > 300
    for case in parsed:
        whole = ordered(run(case, [case["output"]]))
        assert ordered(run(case, list(case["output"]))) == whole, case["id"]
        for name, chunks in case["chunkings"].items():
            assert "".join(chunks) == case["output"]
            assert ordered(run(case, chunks)) == whole, (case["id"], name)


def test_ok_cases_are_as_recorded(cases: list[Case]) -> None:
    checked = 0
    for row in cases:
        case, expected = row["case"], row["expected"]
        if "chunkings" not in case or expected["verdict"] != "ok" or "want" in expected:
            continue
        recorded = expected["results"]["whole"]
        outcome = run(case, [case["output"]])
        if "error" in recorded:
            assert "error" in outcome, case["id"]
            with pytest.raises((ResponseTemplateError, ResponseParseError)):
                parse_response(
                    case["output"], case["template"], prefix=case["prefix"], tools=case.get("tools")
                )
        else:
            assert "error" not in outcome, (case["id"], outcome["error"])
            assert ordered(outcome["message"]) == ordered(recorded["message"]), case["id"]
            events = [{k: v for k, v in e.items() if k != "closed"} for e in outcome["events"]]
            assert ordered(events) == ordered(joined(recorded["events"])), case["id"]
        checked += 1
    assert checked > 290


def test_wrong_cases_are_as_wanted(cases: list[Case]) -> None:
    checked = 0
    for row in cases:
        case, expected = row["case"], row["expected"]
        if "want" not in expected:
            continue
        if case["id"] in BY_OUR_TEMPLATE:
            file = load_template_file(CONFIG / f"{BY_OUR_TEMPLATE[case['id']]}.json")
            case = {**case, "template": file.template}
        outcome = run(case, [case["output"]])
        assert "error" not in outcome, case["id"]
        assert ordered(outcome["message"]) == ordered(expected["want"]), case["id"]
        checked += 1
    assert checked > 20


def decoded(ids: Any) -> Any:
    if not isinstance(ids, list):
        return ids
    return "".join(MARKS.get(token) or chr(token - 10) for token in ids)


def test_calls_of_a_tokenizer(cases: list[Case]) -> None:
    calls: dict[str, Callable[[Case], Any]] = {
        "parse_response": batch,
        "get_response_parser": feeds,
    }
    checked = 0
    for row in cases:
        case = row["case"]
        if case.get("kind") != "api" or case["id"] in NOT_OURS:
            continue
        recorded = row["expected"]["results"]["api"]
        if "error" in recorded:
            with pytest.raises((ResponseTemplateError, ResponseParseError)):
                calls[case["call"]](case)
        else:
            assert calls[case["call"]](case) == recorded["message"], case["id"]
        checked += 1
    assert checked == 14


def batch(case: Case) -> Any:
    args = case["args"]
    template = args.get("schema") or case["tokenizer_template"]
    response, prefix = args["response"], args["prefix"]
    many = isinstance(response, list) and not all(isinstance(item, int) for item in response)
    many = many or response == []
    responses = response if many else [response]
    apart = isinstance(prefix, list) and prefix and isinstance(prefix[0], str)
    prefixes = prefix if apart else [prefix] * len(responses)
    messages = [
        parse_response(decoded(one), template, prefix=decoded(before), tools=args.get("tools"))
        for one, before in zip(responses, prefixes, strict=True)
    ]
    return messages if many else messages[0]


def feeds(case: Case) -> Any:
    args = case["args"]
    parser = ResponseParser(case["tokenizer_template"], prefix=decoded(args.get("prefix")))
    for text in args["feeds"]:
        parser.feed(text)
    return parser.finalize()[0]
