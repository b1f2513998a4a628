"""`x-extract`: what comes out is a passage of the source, every passage can come out, and no text
is ever stuck; masks are exact, compilations quick, and nothing shared keeps what a source made."""

from __future__ import annotations

import gc
import json
import random
import time
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import (
    Grammar,
    GrammarCache,
    Matcher,
    SchemaBudgetError,
    SchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
    Vocabulary,
    compile_json_schema,
)
from grammar import extract as extract_module
from grammar.cache import schema_key
from grammar.passages import UNITS, Passages
from grammar.turn_parts import JsonValue
from server.turns import turn_grammar
from tests.grammar_support import VOCABULARY, accepts, compiled, ids_of
from tests.turn_support import TEMPLATES, read, vocabulary_of, walk

SOURCE = 'Dr. Ana said "hi\\there" to 日本 on 3.5 May.\nIt was 😀 fun! Was it? Yes.\tThe end'


def passages(source: str, unit: str) -> set[str]:
    """All passages, by trying every pair of borders."""
    found = Passages(source, unit)
    count = len(source)
    pairs = ((i, j) for i in range(count) for j in range(i + 1, count + 1))
    starts = {int(found.after[at]) for at in found.starts}
    return {source[i:j] for i, j in pairs if i in starts and found.is_end[j]}


def schema_of(unit: str = "characters", **more: Any) -> dict[str, Any]:
    return {"type": "string", "x-extract": {"from": "source", "unit": unit}, **more}


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def step(grammar: Grammar, matcher: Matcher, token: int) -> bool:
    """Whether the automaton itself takes the token's bytes, without any mask."""
    text = VOCABULARY.tokens[token]
    return bool(text) and grammar._machine.run(matcher._path[-1], text) is not None


def legal_by_stepping(grammar: Grammar, matcher: Matcher) -> set[int]:
    found = {token for token in range(VOCABULARY.size) if step(grammar, matcher, token)}
    return found | (set(VOCABULARY.eos) if matcher.is_accepting() else set())


def written(grammar: Grammar, seed: int, *, check_masks: bool = True) -> Any:
    """What a random walk writes; every mask on the way is checked."""
    rng = random.Random(seed)
    matcher, text = grammar.start(), b""
    for _ in range(2000):
        legal = ids_of(matcher.mask())
        assert legal, f"stuck: {matcher.describe()}"
        if check_masks:
            assert set(legal) == legal_by_stepping(grammar, matcher), matcher.describe()
        token = rng.choice(legal)
        if token in VOCABULARY.eos:
            return json.loads(text)
        matcher.advance(token)
        text += VOCABULARY.tokens[token]
    raise AssertionError("the walk does not end")


# -- units --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a b", {"a", "b", "a b"}),
        (" ab  ", {"ab"}),
        ("it's", {"it's"}),
        ("a-b", {"a", "-", "b", "a-", "-b", "a-b"}),
        ("1,234.5", {"1,234.5"}),
        ("x_1", {"x_1"}),
        ("é", {"é"}),
        ("e\u0301a", {"e\u0301a"}),
        ("日本", {"日", "本", "日本"}),
        ("(ab)", {"(", "ab", ")", "(ab", "ab)", "(ab)"}),
    ],
)
def test_words(source: str, found: set[str]) -> None:
    assert passages(source, "words") == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("One. Two!  Three?", ["One.", "Two!", "Three?"]),
        ("No stop at the end", ["No stop at the end"]),
        ("Dr. Silva met J. Smith. He left.", ["Dr. Silva met J. Smith.", "He left."]),
        ("It is 3.5 m. That is much.", ["It is 3.5 m.", "That is much."]),
        ("O Sr. Silva, art. 5, n. 3. Fim.", ["O Sr. Silva, art. 5, n. 3.", "Fim."]),
        ('He said "Stop." She did.', ['He said "Stop."', "She did."]),
        ("so... it went on. And on.", ["so... it went on.", "And on."]),
        ("Total: 5\nDate: 3 May\n", ["Total: 5", "Date: 3 May"]),
        ("a line that\ngoes on. End.", ["a line that\ngoes on.", "End."]),
        ("1. One thing.\n2. Two things.", ["1. One thing.", "2. Two things."]),
        ("東京。大阪。", ["東京。", "大阪。"]),
        ("What?! Yes.", ["What?!", "Yes."]),
        ("\n\n", []),
    ],
)
def test_sentences(source: str, found: list[str]) -> None:
    made = Passages(source, "sentences")
    starts = [int(made.after[at]) for at in made.starts]
    ends = np.flatnonzero(made.is_end).tolist()
    assert [source[i:j] for i, j in zip(starts, ends, strict=True)] == found


@settings(max_examples=200, deadline=None)
@given(source=st.text(max_size=40))
def test_coarser_passages_are_finer_ones_and_are_contained(source: str) -> None:
    try:
        source.encode()
    except UnicodeEncodeError:
        return
    all_ = {unit: passages(source, unit) for unit in UNITS}
    assert all_["sentences"] <= all_["words"] <= all_["characters"]
    assert len(all_["characters"]) == len({source[i:j] for i in range(len(source))
                                           for j in range(i + 1, len(source) + 1)})  # fmt: skip
    for unit, found in all_.items():
        made = Passages(source, unit)
        assert all(text in made for text in found)
        assert "" not in made
        assert json.loads(b'"' + made.encoded + b'"') == source


# -- the terminal -------------------------------------------------------------------------------

BOUNDS: list[dict[str, Any]] = [
    {},
    {"maxLength": 4},
    {"minLength": 3, "maxLength": 9},
    {"minLength": 12},
    {"pattern": "^[A-Z]"},
    {"pattern": "[.!?]$", "maxLength": 20},
    {"pattern": "a.*o", "minLength": 5},
    {"pattern": "^\\S+$"},
]


def fitting(source: str, unit: str, bounds: dict[str, Any]) -> set[str]:
    """The passages within bounds; the patterns above say here what they say in ECMA-262."""
    least, most = bounds.get("minLength", 0), bounds.get("maxLength", 10**9)
    tests = {
        None: lambda text: True,
        "^[A-Z]": lambda text: "A" <= text[:1] <= "Z",
        "[.!?]$": lambda text: text[-1:] in tuple(".!?"),
        "a.*o": lambda text: any("o" in line.partition("a")[2] for line in text.split("\n")),
        "^\\S+$": lambda text: not any(char.isspace() for char in text),
    }
    fits = tests[bounds.get("pattern")]
    return {t for t in passages(source, unit) if least <= len(t) <= most and fits(t)}


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("unit", UNITS)
def test_exactly_the_passages_are_accepted(unit: str, bounds: dict[str, Any]) -> None:
    expected = fitting(SOURCE, unit, bounds)
    if not expected:
        with pytest.raises(UnsatisfiableSchemaError):
            compiled(schema_of(unit, **bounds), source=SOURCE)
        return
    grammar = compiled(schema_of(unit, **bounds), source=SOURCE)
    rng = random.Random(7)
    for text in rng.sample(sorted(expected), min(40, len(expected))):
        assert accepts(grammar, quoted(text)), text
    others = sorted(passages(SOURCE, "characters") - expected)
    for text in rng.sample(others, min(40, len(others))):
        assert not accepts(grammar, quoted(text)), text
    assert not accepts(grammar, '""')
    for seed in range(8):
        assert written(grammar, seed) in expected


SOURCES = st.text(st.sampled_from('ab. A\n"\\é日😀\u0301,1\x01/'), min_size=1, max_size=24)


@settings(max_examples=150, deadline=None)
@given(
    source=SOURCES,
    unit=st.sampled_from(UNITS),
    bounds=st.sampled_from(BOUNDS),
    seed=st.integers(0, 10**6),
)
def test_any_source(source: str, unit: str, bounds: dict[str, Any], seed: int) -> None:
    expected = fitting(source, unit, bounds) if source.strip() else set()
    schema = schema_of(unit, **bounds)
    if not expected:
        with pytest.raises(SchemaError) as error:
            compiled(schema, source=source)
        assert error.value.pointer == ""
        return
    grammar = compiled(schema, source=source)
    assert written(grammar, seed) in expected
    rng = random.Random(seed)
    for text in rng.sample(sorted(expected), min(5, len(expected))):
        assert accepts(grammar, quoted(text))


def test_inside_of_an_object_tokens_cross_the_borders() -> None:
    """Tokens that begin before the quote or end behind it are exact, too."""
    schema = {
        "type": "object",
        "properties": {"name": schema_of(), "age": schema_of("words", maxLength=3)},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    grammar = compiled(schema, source='ab "abc" x, y a"b')
    for seed in range(30):
        value = written(grammar, seed)
        assert value["name"] in 'ab "abc" x, y a"b'
        assert value["age"] in passages('ab "abc" x, y a"b', "words")


def test_other_spellings_are_not_written() -> None:
    grammar = compiled(schema_of(), source='é"\n/\x01')
    assert accepts(grammar, '"é\\"\\n/\\u0001"')
    for text in ('"\\u00e9"', '"\\/"', '"\\u000a"', '"\\u0022"'):
        assert not accepts(grammar, text)


# -- with other keywords ------------------------------------------------------------------------


def test_null_lists_and_references() -> None:
    for schema in (
        schema_of(type=["string", "null"]),
        {"anyOf": [schema_of(), {"type": "null"}]},
        {"oneOf": [{"$ref": "#/$defs/quote"}, {"type": "null"}], "$defs": {"quote": schema_of()}},
        {"x-extract": "source", "nullable": True, "type": "string"},
    ):
        grammar = compiled(schema, source="abc")
        assert accepts(grammar, "null")
        assert accepts(grammar, '"bc"')
        assert not accepts(grammar, '"cb"')
    lists = compiled({"type": "array", "items": schema_of("words")}, source="one two")
    assert accepts(lists, '["two", "one", "one two"]')
    assert not accepts(lists, '["two one"]')


def test_no_passage_twice() -> None:
    source = "one two one ab"
    schema = {"type": "array", "items": schema_of("words"), "uniqueItems": True, "maxItems": 4}
    grammar = compiled(schema, source=source)
    assert accepts(grammar, '["one", "one two"]')
    assert not accepts(grammar, '["one", "one"]')
    for seed in range(8):
        value = written(grammar, seed)
        assert len(set(value)) == len(value)
        assert set(value) <= passages(source, "words")


def test_other_types_are_left_alone() -> None:
    grammar = compiled({"x-extract": "source"}, source="abc")
    assert accepts(grammar, "12")
    assert accepts(grammar, '{"any": "thing"}')
    assert not accepts(grammar, '"thing"')


def test_enum_and_const_keep_what_is_a_passage() -> None:
    grammar = compiled(schema_of("words", enum=["red", "reddish", "blue", "e"]), source="a red one")
    assert accepts(grammar, '"red"')
    for text in ("reddish", "blue", "e"):
        assert not accepts(grammar, f'"{text}"')
    with pytest.raises(UnsatisfiableSchemaError):
        compiled(schema_of(const="blue"), source="a red one")


def test_the_coarsest_unit_counts() -> None:
    both = {"allOf": [schema_of("characters"), schema_of("sentences", maxLength=9)]}
    grammar = compiled(both, source="One two. Three.")
    assert accepts(grammar, '"Three."')
    assert not accepts(grammar, '"Three"')
    assert not accepts(grammar, '"One two. Three."')


def test_optional_extracts_that_can_not_be_are_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {"a": schema_of(minLength=9), "b": {"type": "null"}},
        "required": ["b"],
    }
    grammar = compiled(schema, source="short")
    assert accepts(grammar, '{"b": null}')
    assert not accepts(grammar, '{"a": "short", "b": null}')


def test_report() -> None:
    grammar = compiled(schema_of(pattern="^a"), source="abc")
    assert set(grammar.report.enforced) >= {"x-extract", "pattern", "type"}
    assert not grammar.report.unenforced


# -- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["", "  \n", "a\ud800b"])
def test_a_source_without_text_is_refused_by_place(source: str) -> None:
    schema = {"type": "object", "properties": {"q": schema_of(type=["string", "null"])}}
    with pytest.raises(SchemaError) as error:
        compiled(schema, source=source)
    assert (error.value.pointer, error.value.keyword) == ("/properties/q", "x-extract")


def test_a_source_that_is_too_long_is_refused() -> None:
    with pytest.raises(SchemaBudgetError) as error:
        compiled(schema_of(), source="a" * 1_000_001)
    assert "1000001 characters" in error.value.message
    assert error.value.keyword == "x-extract"


@pytest.mark.parametrize(
    "said", [True, "text", {}, {"unit": "words"}, {"from": "source", "unit": "lines"},
             {"from": "source", "max": 3}]
)  # fmt: skip
def test_what_can_not_be_read_is_refused(said: Any) -> None:
    with pytest.raises(SchemaError) as error:
        compiled({"properties": {"q": {"x-extract": said}}}, source="abc")
    assert (error.value.pointer, error.value.keyword) == ("/properties/q", "x-extract")


def test_without_a_source_it_is_not_enforced_and_says_so() -> None:
    with pytest.raises(UnsupportedSchemaError) as error:
        compiled({"properties": {"q": schema_of()}})
    issue = error.value.issues[0]
    assert (issue.keyword, issue.pointer) == ("x-extract", "/properties/q")
    assert "no source" in issue.reason
    grammar = compiled(schema_of(), strict=False)
    assert [issue.keyword for issue in grammar.report.unenforced] == ["x-extract"]
    assert accepts(grammar, '"anything"')


def test_an_unsatisfiable_combination_names_its_place() -> None:
    schema = {"type": "object", "properties": {"q": schema_of(pattern="z")}, "required": ["q"]}
    with pytest.raises(UnsatisfiableSchemaError) as error:
        compiled(schema, source="abc")
    assert error.value.pointer == "/properties/q"


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"not": schema_of()}, "not"),
        ({"type": "object", "propertyNames": schema_of()}, "x-extract"),
        ({"oneOf": [schema_of(), {"type": "string", "maxLength": 3}]}, "oneOf"),
    ],
)
def test_what_has_no_grammar_is_refused_by_name(schema: Any, keyword: str) -> None:
    with pytest.raises(UnsupportedSchemaError) as error:
        compiled(schema, source="abc")
    assert keyword in {issue.keyword for issue in error.value.issues}


def test_a_pattern_too_large_for_the_source_is_refused_by_name() -> None:
    schema = {"type": "object", "properties": {"q": schema_of(pattern="^(?:[ab]{2}c?){150}$")}}
    source = "ab" * 60_000
    with pytest.raises(UnsupportedSchemaError) as error:
        compiled(schema, source=source)
    issue = error.value.issues[0]
    assert (issue.keyword, issue.pointer) == ("pattern", "/properties/q")
    grammar = compiled(schema, source=source, strict=False)
    assert accepts(grammar, '{"q": "aba"}'), "what remains is enforced"
    assert not accepts(grammar, '{"q": "abb"}')


# -- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("unit", UNITS)
def test_the_way_to_the_end_is_known_and_shortest(unit: str, bounds: dict[str, Any]) -> None:
    expected = fitting(SOURCE, unit, bounds)
    if not expected:
        return
    encoded = [quoted(text).encode() for text in expected]
    grammar = compiled(schema_of(unit, **bounds), source=SOURCE)
    rng = random.Random(3)
    for text in rng.sample(encoded, min(12, len(encoded))):
        matcher = grammar.start()
        for done in range(len(text) + 1):
            if done:
                matcher.advance(text[done - 1])
            left = min(len(e) - done for e in encoded if e.startswith(text[:done]))
            assert matcher.distance() == left


# -- size and memory ----------------------------------------------------------------------------

WORDS = json.loads(
    '["the", "contract", "of", "sale", "was", "signed", "in", "Lisbon", "by", "both", "parties"]'
)


def long_text(size: int, seed: int = 1) -> str:
    rng = random.Random(seed)
    parts: list[str] = []
    length = 0
    while length < size:
        words = [rng.choice(WORDS) + str(rng.randrange(40)) * (rng.random() < 0.2)
                 for _ in range(rng.randrange(4, 20))]  # fmt: skip
        parts.append(" ".join(words).capitalize() + rng.choice([". ", "! ", ".\n\n"]))
        length += len(parts[-1])
    return "".join(parts)[:size]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "bounds", [{}, {"maxLength": 200}, {"pattern": "^[A-Z][^.]*\\.$", "maxLength": 300}], ids=str
)
def test_large_sources_compile_in_well_under_a_second(unit: str, bounds: dict[str, Any]) -> None:
    source = long_text(200_000)
    began = time.thread_time()
    grammar = compiled(schema_of(unit, **bounds), source=source)
    assert time.thread_time() - began < 0.8
    assert grammar.memory_bytes() < 40 << 20
    expected = Passages(source, unit)
    for seed in range(3):
        text = written(grammar, seed, check_masks=False)
        assert text in expected
        assert len(text) <= bounds.get("maxLength", 10**9)


@pytest.mark.parametrize("source", ["a" * 100_000, "ab" * 50_000, "a\n" * 50_000, " a" * 50_000])
def test_sources_that_repeat_themselves(source: str) -> None:
    began = time.thread_time()
    grammar = compiled(schema_of(maxLength=50), source=source)
    assert written(grammar, 1, check_masks=False) in source
    for unit in UNITS[1:]:  # some have one passage only, the whole source
        matcher = compiled(schema_of(unit), source=source).start()
        for _ in range(20):
            legal = ids_of(matcher.mask())
            if not matcher.is_accepting():
                matcher.advance(legal[0])
    assert time.thread_time() - began < 5


def test_places_are_found_again_when_they_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    source = long_text(3000)
    monkeypatch.setattr(extract_module, "KEPT_BYTES", 2000)
    grammar = compiled(schema_of(maxLength=60), source=source)
    for seed in range(6):
        assert written(grammar, seed) in source
    terminal = grammar._own[0]
    assert isinstance(terminal, extract_module.Extract)
    assert terminal._kept_bytes <= 2000 + 4 * len(source)


def test_the_shared_workspace_keeps_nothing_of_a_source() -> None:
    vocabulary = Vocabulary(VOCABULARY.tokens, VOCABULARY.special, VOCABULARY.eos)
    schema = {
        "type": "object",
        "properties": {"quote": schema_of(), "sure": {"type": "boolean"}},
        "required": ["quote", "sure"],
        "additionalProperties": False,
    }

    def use(seed: int) -> weakref.ref[Any]:
        grammar = compile_json_schema(schema, vocabulary, source=long_text(2000, seed))
        for way in range(4):
            written(grammar, way, check_masks=False)
        return weakref.ref(grammar._own[0])

    for seed in range(20):
        use(seed)
    before = vocabulary.workspace.memory_bytes()
    gc.disable()
    try:
        freed = [use(seed) for seed in range(20, 40)]
        assert all(ref() is None for ref in freed), "freed without the cycle collector"
    finally:
        gc.enable()
    assert vocabulary.workspace.memory_bytes() - before < 200_000, "what is left is no source's"


def test_a_grammar_that_has_met_too_many_states_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = GrammarCache()
    first = cache.get_json_schema(schema_of(), VOCABULARY, source="abcdefgh")
    assert cache.get_json_schema(schema_of(), VOCABULARY, source="abcdefgh").hit
    written(first.grammar, 1)
    monkeypatch.setattr("grammar.matcher.MAX_OWN_STATES", 2)
    again = cache.get_json_schema(schema_of(), VOCABULARY, source="abcdefgh")
    assert not again.hit
    assert again.grammar is not first.grammar


def test_the_source_is_part_of_the_key_where_it_counts() -> None:
    def key(schema: Any, source: str | None) -> str:
        return schema_key(schema, VOCABULARY, strict=True, whitespace="fixed", source=source)

    nested = {"items": [{"$defs": {"a": schema_of()}}]}
    for schema in (schema_of(), nested):
        assert len({key(schema, source) for source in (None, "a", "b")}) == 3
    assert key({"type": "string"}, "a") == key({"type": "string"}, None)
    cache = GrammarCache()
    one = cache.get_json_schema(schema_of(), VOCABULARY, source="abc")
    two = cache.get_json_schema(schema_of(), VOCABULARY, source="xyz")
    assert accepts(one.grammar, '"bc"')
    assert not accepts(two.grammar, '"bc"')
    assert cache.get_json_schema(schema_of(), VOCABULARY, source="abc").grammar is one.grammar


# -- inside a turn ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen3", "glm4_5", "functiongemma"])
@pytest.mark.parametrize("special", [True, False], ids=["tokens", "text"])
def test_a_passage_within_a_turn_holds_nothing_that_ends_its_region(
    name: str, special: bool
) -> None:
    source = 'Say "ab" and <tool_call> or <|im_end|>, then <|im_start|> 12.'
    schema = {"type": "object", "properties": {"q": schema_of()}, "required": ["q"],
              "additionalProperties": False}  # fmt: skip
    vocabulary = vocabulary_of(name, special=special)
    made = turn_grammar(
        TEMPLATES[name],
        vocabulary=vocabulary,
        cache=GrammarCache(),
        content=JsonValue(schema, source=source),
    )
    if made.grammar is None:
        pytest.skip(f"{name} is not read backwards: {made.reason}")
    for seed in range(12):
        text = walk(made.grammar.start(), random.Random(seed), steps=60)
        content = json.loads(read(name, text)["content"])
        assert content["q"] in source
        assert content["q"]


def test_a_turn_without_a_source_says_so() -> None:
    schema = {"type": "object", "properties": {"q": schema_of()}}
    with pytest.raises(UnsupportedSchemaError) as error:
        turn_grammar(
            TEMPLATES["qwen3"],
            vocabulary=vocabulary_of("qwen3", special=True),
            cache=GrammarCache(),
            content=JsonValue(schema),
        )
    assert "no source" in error.value.issues[0].reason
