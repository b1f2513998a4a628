"""Work that is bounded and shared: compilations give way, masks have fuel, nasty schemas end."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from grammar import (
    Budget,
    Grammar,
    GrammarCache,
    GrammarError,
    GrammarSourceError,
    SchemaBudgetError,
    StepBudgetError,
    Vocabulary,
    compile_gbnf,
    compile_json_schema,
    compile_regex,
    compile_turn,
)
from grammar.budget import Clock, OutOfTimeError
from grammar.turn_parts import JsonValue, Turn, Value
from grammar.worklock import WorkLock
from tests.grammar_support import VOCABULARY, accepts, compiled, feed, random_walk
from tests.nasty_sources import HOSTILE


def fresh() -> Vocabulary:
    return Vocabulary(VOCABULARY.tokens, VOCABULARY.special, VOCABULARY.eos)


# -- the lock -------------------------------------------------------------------------------------


def test_who_waits_gets_in_while_the_holder_still_works() -> None:
    lock, told, got_in = WorkLock(), threading.Event(), threading.Event()

    def wait() -> None:
        told.wait()
        with lock:
            got_in.set()

    thread = threading.Thread(target=wait)
    thread.start()
    rounds = 0
    with lock, lock:  # however deep it is held
        told.set()
        while not got_in.is_set() and rounds < 10_000:
            rounds += 1
            if lock.is_wanted():
                lock.give_way()
            time.sleep(0.001)
        assert got_in.is_set()
    thread.join()
    assert rounds < 10_000


def test_nobody_gives_way_to_nobody() -> None:
    lock = WorkLock()
    with lock:
        assert not lock.is_wanted()
        lock.give_way()  # and has it again at once
        with lock:
            pass
    with lock:
        pass


def test_all_who_wait_get_in_one_after_another() -> None:
    lock, order = WorkLock(), []

    def work(name: int) -> None:
        with lock:
            for _ in range(200):
                order.append(name)
                if lock.is_wanted():
                    lock.give_way()
                time.sleep(0.0002)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == sorted([0, 1, 2] * 200)
    switches = sum(a != b for a, b in pairwise(order))
    assert switches > 4  # none was made to wait for the whole of another


# -- compilations give way ------------------------------------------------------------------------


def test_masks_go_on_while_a_hostile_schema_is_compiled() -> None:
    """Two threads: new masks of another request are made in the middle of a long compilation, and
    no piece of the compilation between two places where it gives way is long."""
    vocabulary = fresh()
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-f]+x?$"}}}
    path = random_walk(compiled(schema), random.Random(1), steps=30, limit=30)[2]
    expected = masks(compiled(schema), path)
    other = compile_json_schema(schema, vocabulary)
    ended = threading.Event()
    failures: list[GrammarError] = []

    def compile_hostile() -> None:
        try:
            compile_json_schema({"type": "string", "pattern": HOSTILE}, vocabulary)
        except GrammarError as error:
            failures.append(error)
        ended.set()

    thread = threading.Thread(target=compile_hostile)
    thread.start()
    while vocabulary.workspace.lock._depth == 0 and not ended.is_set():
        time.sleep(0.0005)
    found = masks(other, path)
    assert not ended.is_set()
    thread.join()
    assert all(map(np.array_equal, found, expected))
    assert isinstance(failures[0], SchemaBudgetError)
    assert failures[0].keyword == "pattern"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": HOSTILE},
        {"type": "integer", "multipleOf": 9973},
        {"enum": [f"value {i * 7919 % 100_003}" for i in range(20_000)]},
        {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(5000)}},
        {
            "allOf": [
                {"oneOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(5)
            ]
        },
    ],
    ids=["pattern", "multipleOf", "enum", "properties", "oneOf"],
)
def test_no_piece_of_a_compilation_is_long(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured in the thread's own time, so that a busy machine makes no difference."""
    pieces = []
    last = [0.0]

    def note(lock: WorkLock) -> bool:
        now = time.thread_time()
        pieces.append(now - last[0])
        last[0] = now
        return False

    vocabulary = fresh()
    vocabulary.prepare()
    monkeypatch.setattr(WorkLock, "is_wanted", note)
    gc.disable()  # a server freezes its heap; here a collection would be counted as a piece
    try:
        with vocabulary.workspace.lock:
            last[0] = time.thread_time()
            compile_json_schema(schema, vocabulary)
    except SchemaBudgetError as error:
        assert error.keyword
    finally:
        gc.enable()
    assert max(pieces[1:]) < 0.25  # the first is the reading of the schema, outside the lock
    assert len(pieces) > 100


def masks(grammar: Grammar, path: list[int]) -> list[np.ndarray]:
    matcher = grammar.start()
    found = []
    for token in path:
        found.append(matcher.mask())
        matcher.advance(token)
    return found


SHARED: list[Any] = [
    {"type": "string", "pattern": "^((?!foo).)*$", "maxLength": 20},
    {"type": "string", "pattern": "^((?!foo).)*$", "minLength": 3},
    {"type": "string", "format": "date-time"},
    {"type": "string", "pattern": "^(a|b)*a(a|b){6}$", "minLength": 8},
    {"type": "number", "multipleOf": 0.7, "minimum": 3},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "null"}}},
    {"type": "string", "pattern": "\\bfoo\\b", "not": {"pattern": "^x"}},
    {"enum": [f"word {i}" for i in range(600)]},
]


def test_compilations_that_interrupt_each_other_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They change places at every safe point and use the same languages; masks are as ever."""
    paths = [
        random_walk(compiled(schema), random.Random(3), steps=15, limit=40)[2] for schema in SHARED
    ]
    expected = [masks(compiled(s), path) for s, path in zip(SHARED, paths, strict=True)]
    switched = [0]

    def is_wanted(lock: WorkLock) -> bool:
        switched[0] += lock._waiting > 0
        return lock._waiting > 0

    monkeypatch.setattr(WorkLock, "is_wanted", is_wanted)
    vocabulary = fresh()
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        order = list(range(len(SHARED)))
        random.Random(seed).shuffle(order)
        try:
            for i in order:
                grammar = compile_json_schema(SHARED[i], vocabulary)
                found = masks(grammar, paths[i])
                assert all(map(np.array_equal, found, expected[i])), SHARED[i]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert switched[0] > 0


def test_a_grammar_stays_in_the_workspace_that_it_was_begun_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new generation may begin while a compilation gives way."""
    vocabulary = fresh()
    schema = {"type": "object", "patternProperties": {"^a": {"type": "string", "pattern": "^b+$"}}}
    before = vocabulary.workspace
    monkeypatch.setattr(WorkLock, "is_wanted", lambda _: vocabulary.workspace is before)
    monkeypatch.setattr(WorkLock, "give_way", lambda _: vocabulary.begin_generation())
    grammar = compile_json_schema(schema, vocabulary)
    assert vocabulary.workspace is not before
    path = random_walk(compiled(schema), random.Random(2), steps=20, limit=40)[2]
    assert all(map(np.array_equal, masks(grammar, path), masks(compiled(schema), path)))


# -- the time that a compilation may take ---------------------------------------------------------


def test_a_compilation_ends_when_its_time_is_up() -> None:
    """Whatever its front end; and says so, and where it was."""
    vocabulary = fresh()
    hostile = {"type": "string", "pattern": HOSTILE}
    schema = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"items": hostile}}}
    said = "compiling takes more than 0.05 s of processor time"
    budget = Budget(seconds=0.05)
    began = time.thread_time()
    with pytest.raises(SchemaBudgetError, match=said) as error:
        compile_json_schema(schema, vocabulary, budget=budget)
    assert error.value.pointer == "/properties/b"
    with pytest.raises(GrammarSourceError, match=said) as source_error:
        compile_regex(HOSTILE + ".*", vocabulary, budget=budget)
    assert source_error.value.problem == "too complex"
    rules = "\n".join(f'r{i} ::= [a-z]{{{i}}} "{i}" r{i + 1} | "x"' for i in range(3000))
    with pytest.raises(GrammarSourceError, match=said):
        compile_gbnf(f'root ::= r0\n{rules}\nr3000 ::= "y"', vocabulary, budget=budget)
    turn = Turn(Value(0), (JsonValue(schema),))
    with pytest.raises(SchemaBudgetError, match=said):
        compile_turn(turn, vocabulary, budget=budget)
    assert time.thread_time() - began < 4 * (0.05 + 0.7), "without limits it is minutes"
    with pytest.raises(SchemaBudgetError, match="more steps than its budget"):
        compile_json_schema(schema, vocabulary, budget=Budget(seconds=None, regex_steps=5000))


def test_time_in_which_others_work_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation that gives way at every safe point has all of its own time."""
    waits = iter((0.6, 0.6))
    monkeypatch.setattr(WorkLock, "is_wanted", lambda _: True)
    monkeypatch.setattr(WorkLock, "give_way", lambda _: time.sleep(next(waits, 0)))
    schema = {"type": "string", "pattern": "^(ab|cd){1,9}$", "minLength": 3}
    grammar = compile_json_schema(schema, fresh(), budget=Budget(seconds=1))
    assert accepts(grammar, '"abcd"')
    assert next(waits, None) is None, "it gave way more than a second in all"


@pytest.mark.parametrize("number", range(8))
def test_a_compilation_that_ends_anywhere_leaves_nothing_half_made(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time runs out at one safe point after the other, in one workspace and one cache; what is
    compiled there at last has the masks of a fresh one."""
    schema = SHARED[number]
    path = random_walk(compiled(schema), random.Random(3), steps=15, limit=40)[2]
    vocabulary = fresh()
    points = [0, 0]

    def look(clock: Clock) -> None:
        points[0] += 1
        if points[0] == points[1]:
            raise OutOfTimeError("now")

    monkeypatch.setattr(Clock, "look", look)
    compile_json_schema(schema, fresh())
    total = points[0]
    assert total >= 3
    cache = GrammarCache()
    for last in sorted({*range(1, 12), *range(1, total, max(1, total // 12)), total}):
        points[:] = 0, last
        with contextlib.suppress(SchemaBudgetError):  # the later ones have less to do
            cache.get_json_schema(schema, vocabulary)
            break
        assert cache.stats().entries == 0
    points[:] = 0, 0
    found = masks(cache.get_json_schema(schema, vocabulary).grammar, path)
    assert all(map(np.array_equal, found, masks(compile_json_schema(schema, fresh()), path)))


# -- fuel at run time -----------------------------------------------------------------------------


def test_a_mask_that_costs_too_much_ends_with_an_honest_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary = fresh()
    pattern = "^.*a.{12}$"
    costly = compile_json_schema({"type": "string", "pattern": pattern}, vocabulary).start()
    other = compile_json_schema({"type": "string"}, vocabulary).start()
    assert feed(costly, '"')
    monkeypatch.setattr("grammar.matcher.MAX_STEPS", 3)
    with pytest.raises(StepBudgetError, match="more than 3 steps of pattern work") as error:
        costly.mask()
    assert error.value.limit == 3
    assert "expecting" in error.value.state
    for token in b'"xy':
        other.mask()
        other.advance(token)
    monkeypatch.setattr("grammar.matcher.MAX_STEPS", 300_000)
    reference = compile_json_schema({"type": "string", "pattern": pattern}, fresh()).start()
    assert feed(reference, '"')
    assert np.array_equal(costly.mask(), reference.mask())


def test_tokens_and_forced_bytes_have_fuel_too(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = compile_json_schema({"type": "string", "pattern": "^(ab|cd){3}$"}, fresh()).start()
    assert feed(matcher, '"')
    monkeypatch.setattr("grammar.matcher.MAX_STEPS", 0)
    for work in (lambda: matcher.advance(ord("a")), lambda: matcher.is_allowed(ord("c"))):
        with pytest.raises(StepBudgetError):
            work()
    monkeypatch.setattr("grammar.matcher.MAX_STEPS", 300_000)
    assert feed(matcher, 'ababcd"')
    assert matcher.is_accepting()


# -- long lists, other languages ------------------------------------------------------------------


def test_a_long_enumeration_is_exact() -> None:
    words = [f"value {i * 7919 % 100_003}" for i in range(3000)]
    grammar = compiled({"enum": [*words, "", "é\n", 12, None]})
    for value in (words[0], words[-1], words[1234]):
        assert accepts(grammar, f'"{value}"')
    for text in ('""', '"é\\n"', "12", "12.0", "null"):
        assert accepts(grammar, text)
    for text in ('"value"', '"value 1x"', "13", '"é', "nul"):
        assert not accepts(grammar, text)
    inside = compiled({"type": "array", "items": {"enum": words}}, whitespace="compact")
    assert accepts(inside, f'["{words[5]}","{words[7]}"]')
    assert not accepts(inside, f'["{words[5]}","value"]')


def test_other_languages_give_way_and_end_too() -> None:
    vocabulary = fresh()
    budget = Budget(regex_steps=20_000)
    with pytest.raises(GrammarError, match="more steps than its budget"):
        compile_regex(HOSTILE + ".*", vocabulary, budget=budget)
    grammar = compile_gbnf('root ::= "a" root "b" | "c"', vocabulary, budget=budget)
    assert accepts(grammar, "aacbb")
