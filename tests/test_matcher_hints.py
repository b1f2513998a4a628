"""What a matcher tells without a mask, against the mask."""

from __future__ import annotations

import random
from typing import Any

import pytest

from grammar import Grammar, Matcher, compile_choice, compile_gbnf, compile_json_schema
from tests.grammar_support import VOCABULARY, ids_of
from tests.test_engine_closing import SCHEMAS

UNIQUE = {"type": "array", "uniqueItems": True, "items": {"enum": [1, 2, 12, "a"]}, "minItems": 3}
TEXTS = VOCABULARY.tokens


def grammars() -> dict[str, Grammar]:
    made = {name: compile_json_schema(schema, VOCABULARY) for name, schema in SCHEMAS.items()}
    made["unique"] = compile_json_schema(UNIQUE, VOCABULARY)
    made["choice"] = compile_choice(["abc", "abcabc", "日本", "é"], VOCABULARY)
    made["gbnf"] = compile_gbnf('root ::= "a" root "b" | [0-9]+ | "日"', VOCABULARY)
    return made


def check(matcher: Matcher, rng: random.Random) -> None:
    single = {text[0] for text in TEXTS if len(text) == 1}
    fresh = matcher.copy()
    choice, known = fresh.has_choice(), fresh.knows_mask
    outgrown: dict[bytes, bool] = {}
    forced = fresh.forced_bytes()
    for text in {forced, forced[: rng.randint(0, 9)], b""}:
        outgrown[text] = fresh.may_outgrow(text)
    bytes_ = [byte for byte in range(256) if fresh.may_follow([byte])]
    assert fresh.knows_mask == known, "none of this makes a mask"
    legal = set(ids_of(matcher.mask()))
    assert matcher.knows_mask
    ordinary = {TEXTS[token] for token in legal if TEXTS[token]}
    alone = {text[0] for text in ordinary if len(text) == 1}
    if choice:
        assert len(legal) > 1
        assert not legal <= VOCABULARY.eos
    assert choice == (len(alone) > 1 or (len(alone) == 1 and matcher.is_accepting()))
    assert set(bytes_) & single == alone
    for text, found in outgrown.items():
        assert found == any(len(other) > len(text) and other.startswith(text) for other in ordinary)


@pytest.mark.parametrize("name", grammars())
def test_hints_agree_with_masks(name: str) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        grammar = grammars()[name]  # one whose masks are not known
        matcher = grammar.start()
        for _ in range(25):
            check(matcher, rng)
            legal: list[Any] = [token for token in ids_of(matcher.mask()) if TEXTS[token]]
            if not legal:
                break
            matcher.advance(rng.choice(legal))


def test_after_the_end_nothing_follows() -> None:
    matcher = compile_choice(["a"], VOCABULARY).start()
    matcher.advance(TEXTS.index(b"a"))
    assert not matcher.has_choice()
    matcher.advance(next(iter(VOCABULARY.eos)))
    assert matcher.knows_mask
    assert not matcher.has_choice()
    assert not matcher.may_follow(range(256))
    assert not matcher.may_outgrow(b"")
