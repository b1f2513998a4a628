"""Turns: reasoning with a budget, delimiters as forced runs, masks by brute force."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from grammar import GrammarCache, Matcher, Vocabulary
from grammar.turn_parts import JsonValue
from grammar.writing import GuardedWriter
from server.engine.scheduler import Scheduler
from server.engine.types import Finished, GenerationRequest, TextPiece, TokenRecord
from server.turns import turn_grammar
from tests.grammar_support import ids_of
from tests.scripted_model import GREEDY, ScriptedModel, queue, run
from tests.turn_support import (
    CALLING,
    SCHEMA,
    TEMPLATES,
    TOOLS,
    read,
    token_text,
    turn,
    vocabulary_of,
    walk,
)

BYTES = [bytes([byte]) for byte in range(256)]
MERGES = [
    "Hm",
    "\u00e9t\u00e9",
    "</think>",
    '{"',
    '":',
    ' "',
    "name",
    "arguments",
    "now",
    "get_weather",
]
OPEN = "<|im_start|>assistant\n<think>\n"


def think(limit: int | None, *, prefix: str = OPEN, special: bool = False) -> Matcher:
    made = turn("qwen3", special=special, content=True, reasoning_limit=limit, prefix=prefix)
    assert made.grammar is not None
    return made.grammar.start()


def feed(matcher: Matcher, text: str) -> None:
    for byte in text.encode():
        matcher.advance(byte)


# --- the budget ----------------------------------------------------------------------------------


@pytest.mark.parametrize("special", [True, False], ids=["token", "text"])
def test_reasoning_ends_after_its_tokens(special: bool) -> None:
    matcher = think(5, special=special)
    feed(matcher, "abcd")
    assert len(ids_of(matcher.mask())) > 200
    feed(matcher, "e")
    legal = [token_text(matcher.vocabulary, t) for t in ids_of(matcher.mask())]
    assert legal
    assert all(b"</think>".startswith(text) for text in legal)
    assert matcher.forced_bytes()[:8] == (b"" if special else b"</think>")


def test_a_limit_of_nothing_closes_at_once_and_opens_nothing() -> None:
    matcher = think(0)
    assert matcher.forced_bytes()[:8] == b"</think>"
    matcher = think(0, prefix="<|im_start|>assistant\n")
    assert not any(
        token_text(matcher.vocabulary, token).startswith(b"<") for token in ids_of(matcher.mask())
    )


def test_a_character_that_is_begun_is_finished() -> None:
    matcher = think(2)
    matcher.advance(ord("a"))
    matcher.advance(0xF0)  # of four bytes
    for byte in (0x9F, 0x98):
        assert all(0x80 <= b < 0xC0 for b in ids_of(matcher.mask()) if b < 256)
        matcher.advance(byte)
    matcher.advance(0x80)
    assert matcher.forced_bytes()[:8] == b"</think>"


def test_the_budget_is_part_of_the_place() -> None:
    matcher = think(3)
    feed(matcher, "ab")
    twin = matcher.copy()
    feed(matcher, "c")
    assert matcher.forced_bytes()
    assert not twin.forced_bytes()
    matcher.rollback(2)
    assert not matcher.forced_bytes()
    feed(matcher, "bc")
    assert matcher.forced_bytes()


def test_an_own_close_ends_the_counting() -> None:
    matcher = think(40)
    feed(matcher, "short</think>" + "\n\n" + '{"answer": "' + "x" * 20 + '"')
    assert matcher.forced_bytes() == b', "sure": '


def test_without_a_limit_nothing_is_counted() -> None:
    matcher = think(None)
    feed(matcher, "x" * 500)
    assert not matcher.forced_bytes()


# --- over the engine -----------------------------------------------------------------------------


class Babbling(ScriptedModel):
    """Likes one token most, and of the others the lowest."""

    def __init__(self, wanted: int, **options: Any) -> None:
        tokens = [*BYTES, *(merge.encode() for merge in MERGES)]
        self.marks = {len(tokens): "<|channel|>", len(tokens) + 1: "<|message|>"}
        self.marks |= {len(tokens) + 2: "<|end|>", len(tokens) + 3: "<|start|>"}
        self.marks |= {len(tokens) + 4: "<|call|>"}
        self.wanted = wanted
        super().__init__(
            [*tokens, *(b"\xff" + mark.encode() for mark in self.marks.values())],
            self._wants,
            n_ctx=512,
            special=self.marks,
            **options,
        )

    def _wants(self, tokens: list[int]) -> list[float]:
        scores = [-float(token) / 1000 for token in range(self.vocab_size)]
        scores[self.wanted] = 5.0
        return scores


def answer(model: Babbling, **options: Any) -> tuple[str, list[TokenRecord]]:
    made = turn_grammar(vocabulary=model.vocabulary, cache=GrammarCache(), **options)
    assert made.grammar is not None, made.reason
    scheduler = Scheduler(model, n_batch=8, forced_runs=True)
    request = GenerationRequest((ord("?"),), grammar=made.grammar, sampling=GREEDY, max_tokens=400)
    outlet = queue(scheduler, model, request)
    run(scheduler)
    assert isinstance(outlet.last, Finished)
    assert outlet.last.reason == "stop", outlet.last
    pieces = [event for event in outlet.events if isinstance(event, TextPiece)]
    return "".join(p.text for p in pieces), [token for p in pieces for token in p.tokens]


def test_the_engine_cuts_reasoning_short() -> None:
    model = Babbling(256 + MERGES.index("\u00e9t\u00e9"))
    text, records = answer(
        model,
        template=TEMPLATES["qwen3"],
        content=JsonValue(SCHEMA),
        reasoning_limit=7,
        prefix=OPEN,
        whitespace="compact",
    )
    head, _, tail = text.partition("</think>")
    assert head == "\u00e9t\u00e9" * 7
    assert json.loads(tail)["marks"] in SCHEMA["properties"]["marks"]["enum"]
    assert [record.id for record in records[:7]] == [model.wanted] * 7
    assert records[7].id != model.wanted


def test_special_tokens_are_forced() -> None:
    model = Babbling(ord("x"))
    text, records = answer(
        model,
        template=TEMPLATES["harmony"],
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "now"}},
        reasoning_limit=0,
        whitespace="compact",
    )
    message = read("harmony", text)
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "now", "arguments": {}}
    ]
    forced = {model.marks[r.id] for r in records if r.id in model.marks and r.forced}
    assert {"<|message|>"} <= forced


# --- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["qwen3", "glm4_5", "gemma4", "harmony", "lfm2", "mistral", "cohere"]
)
@pytest.mark.parametrize("special", [True, False], ids=["tokens", "text"])
def test_masks_are_what_single_tokens_say(name: str, special: bool) -> None:
    made = turn(name, special=special, tools=TOOLS, reasoning_limit=6)
    assert made.grammar is not None
    vocabulary: Vocabulary = vocabulary_of(name, special=special)
    rng = random.Random(name)
    matcher = made.grammar.start()
    for _ in range(40):
        legal = set(ids_of(matcher.mask()))
        for token in range(vocabulary.size):
            assert (token in legal) == _tried(matcher, token), (token, matcher.describe())
        marks = [t for t in legal if not vocabulary.tokens[t] and t not in vocabulary.eos]
        others = sorted(legal - vocabulary.eos)
        if not others:
            return
        matcher.advance(rng.choice(sorted(marks) if marks and rng.random() < 0.5 else others))


def _tried(matcher: Matcher, token: int) -> bool:
    """Whether a token is legal, found without the mask: byte by byte where it has bytes."""
    vocabulary = matcher.vocabulary
    if token in vocabulary.eos:
        return matcher.is_accepting()
    twin = matcher.copy()
    steps = vocabulary.tokens[token] or (token,)
    limit = twin._limit
    twin._limit = None  # the bytes of one token count as one token
    for step in steps:
        state = twin._path[-1]
        after = twin._machine.advance(state, step)
        if after is None:
            return False
        twin._path.append(after)
    twin._limit = limit
    return True


# --- work ----------------------------------------------------------------------------------------

MOST_STEPS = 20_000


@pytest.mark.parametrize("name", CALLING)
def test_masks_of_turns_are_little_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a workspace that holds nothing, where all is met for the first time; with tools and, after
    them or in their place, JSON in which no delimiter may occur, however it is spelled."""
    monkeypatch.setattr("grammar.matcher.MAX_STEPS", MOST_STEPS)
    vocabulary = vocabulary_of(name, special=True)
    vocabulary.begin_generation()
    for content in (None, JsonValue(SCHEMA)):
        made = turn_grammar(
            TEMPLATES[name],
            vocabulary=vocabulary,
            cache=GrammarCache(),
            tools=TOOLS,
            content=content,
        )
        assert made.grammar is not None, made.reason
        for seed in range(2):
            walk(made.grammar.start(), random.Random(seed), steps=30)


def test_texts_that_begin_in_an_escape_take_few_transitions() -> None:
    barred = ("Action:", "Beef1", "functools[")
    workspace = Vocabulary([b"a", b""], {}, [1]).workspace
    guard = GuardedWriter(workspace, barred).guard
    for text in ("Action", "reaction", "section: 7", "日本 Acton:", "fction:", "unctool[", "eef1"):
        assert guard.matches(text), text
    spelled = [f"{chr(code)}ction:" for code in (0xA, 0x4A, 0x6A, 0x1EA, 0x65E5, 0x1F600)]
    spelled += ["An Action: one", "\xbeef1", "\u0beef1", "\ubeef1"]
    for text in (*spelled, "\x0cunctools[", "functools[]", "ounctools["):
        assert not guard.matches(text), text
    seen, pending = {guard}, [guard]
    while pending:
        rows = pending.pop().transitions()
        assert len(rows) < 300
        fresh = {target for _, _, target in rows} - seen
        seen |= fresh
        pending += fresh
