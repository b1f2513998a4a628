"""`gabarito trace`: rows, summary, table, JSON lines, and what a user can get wrong."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from grammar import NoLegalContinuation
from server.cli import app
from server.engine.engine import LocalEngine
from server.engine.toy import ToyModel
from server.trace import TraceRow, TraceSummary, print_trace, trace, trace_lines
from tests.scripted_model import FakeGrammar, ScriptedModel

LETTERS = [b"a", b"b", b"ab", "€".encode()[:2], "€".encode()[2:]]
EOS = len(LETTERS)


def likes_ab(tokens: list[int]) -> list[float]:
    return [1.0, 0.0, 3.0, 0.0, 0.0, 0.0]


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    engine = LocalEngine(ScriptedModel(LETTERS, likes_ab))
    yield engine
    engine.close()


def legal_runs(engine: LocalEngine, *runs: list[int]) -> FakeGrammar:
    """Step n allows the n-th set; then the end."""
    return FakeGrammar(
        EOS + 1,
        lambda done: runs[len(done)] if len(done) < len(runs) else [EOS],
        vocabulary=engine.vocabulary,
    )


def split(engine: LocalEngine, grammar: FakeGrammar) -> tuple[list[TraceRow], TraceSummary]:
    *rows, summary = trace(engine, [0], grammar.typed())
    assert isinstance(summary, TraceSummary)
    return [row for row in rows if isinstance(row, TraceRow)], summary


def test_rows_and_summary(engine: LocalEngine) -> None:
    rows, summary = split(engine, legal_runs(engine, [0, 1], [1], [2, 0]))
    assert [row.text for row in rows] == ["a", "b", "ab"]
    assert [row.step for row in rows] == [0, 1, 2]
    assert [row.legal_count for row in rows] == [2, 1, 2]
    assert [row.wanted for row in rows] == ["ab", "ab", None]
    assert [row.forced for row in rows] == [False, True, False]
    assert summary.text == "abab"
    assert (summary.steps, summary.overruled, summary.forced) == (3, 2, 1)
    assert summary.total_kl == pytest.approx(sum(row.kl for row in rows))
    assert summary.split == ("a", "b", "ab")
    assert summary.canonical == ("ab", "ab")
    assert summary.is_canonical is False


def test_a_canonical_split(engine: LocalEngine) -> None:
    _, summary = split(engine, legal_runs(engine, [2], [0]))
    assert (summary.text, summary.is_canonical) == ("aba", True)


def test_an_answer_cut_within_a_character(engine: LocalEngine) -> None:
    rows, summary = split(engine, legal_runs(engine, [0], [3]))
    assert rows[1].text == "\\xe2\\x82"
    assert (summary.text, summary.canonical, summary.is_canonical) == ("a\ufffd", None, None)


def test_a_failure_comes_after_the_rows(engine: LocalEngine) -> None:
    grammar = legal_runs(engine, [0], [])
    steps = trace(engine, [0], grammar.typed())
    assert isinstance(next(steps), TraceRow)
    with pytest.raises(NoLegalContinuation):
        next(steps)


def test_a_reader_that_leaves_frees_the_slot(engine: LocalEngine) -> None:
    steps = trace(engine, [0], None)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert len(list(trace(engine, [0], None, max_tokens=3))) == 4
    engine.check_integrity()


def test_json_lines(engine: LocalEngine) -> None:
    grammar = legal_runs(engine, [0, 1], [2])
    lines = [json.loads(line) for line in trace_lines(trace(engine, [0], grammar.typed()))]
    assert [line.get("text") for line in lines] == ["a", "ab", "aab"]
    assert lines[0].keys() >= {"step", "token", "legal_count", "wanted", "legal_mass", "kl"}
    assert lines[-1]["finish_reason"] == "stop"


def test_the_table(engine: LocalEngine) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100)
    print_trace(trace(engine, [0], legal_runs(engine, [0, 1], [1]).typed()), console)
    shown = out.getvalue()
    assert "1 (forced)" in shown
    assert "2 steps, 2 overruled, 1 forced" in shown
    assert 'canonical split: no; the tokenizer would have cut it into\n  "ab"' in shown


# --- the command ----------------------------------------------------------------------------


def gabarito(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["trace", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_toy_needs_no_arguments() -> None:
    code, out, _ = gabarito("--toy")
    assert code == 0
    assert '{"name": "Marie Curie", "age": 77}' in out
    assert "3 overruled" in out


def test_the_toy_without_a_grammar_writes_words() -> None:
    code, out, _ = gabarito("--toy", "--free", "--json")
    assert code == 0
    last = json.loads(out.splitlines()[-1])
    assert last["text"].endswith('"age": "sixty-six"}')
    assert last["is_canonical"] is True


def test_a_schema_from_a_file_and_one_in_place(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema), encoding="utf-8")
    for argument in (str(file), json.dumps(schema)):
        code, out, _ = gabarito(argument, "How old?", "--toy", "--json", "--max-tokens", "40")
        assert code == 0
        answer = json.loads(out.splitlines()[-1])["text"]
        assert list(json.loads(answer)) == ["age"]


def test_a_seed_repeats_a_run() -> None:
    runs = [gabarito("--toy", "--json", "--temperature", "3", "--seed", "5") for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != gabarito("--toy", "--json", "--temperature", "3", "--seed", "6")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "SCHEMA and PROMPT are needed"),
        (("{}",), "SCHEMA and PROMPT are needed"),
        (("/nowhere.json", "x", "--toy"), "cannot read the schema"),
        (('{"type": ', "x", "--toy"), "not JSON"),
        (('{"type": "nothing"}', "x", "--toy"), "type"),
        (('{"not": {"uniqueItems": true}}', "x", "--toy"), "enforced"),
    ],
)
def test_mistakes_are_one_message(arguments: tuple[str, ...], message: str) -> None:
    code, out, err = gabarito(*arguments)
    assert code == 2
    assert not out
    assert message in " ".join(err.replace("│", "").split())
    assert "Traceback" not in err


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    code, _, err = gabarito("{}", "x", "--model", str(path))
    assert code == 1
    assert "cannot load the model" in err


@pytest.mark.model
def test_the_real_model(model_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    arguments = (json.dumps(schema), "Give me a number.", "--model", str(model_path))
    code, out, _ = gabarito(*arguments, "--max-tokens", "24", "--json")
    assert code == 0
    last = json.loads(out.splitlines()[-1])
    if last["finish_reason"] == "stop":
        assert isinstance(json.loads(last["text"])["n"], int)
    assert last["steps"] > 3


def test_the_toy_is_small_enough_to_start_at_once() -> None:
    spec = json.loads(
        (Path(__file__).resolve().parent.parent / "config" / "toy.json").read_text("utf-8")
    )
    assert ToyModel.from_spec(spec).vocab_size == spec["vocabulary_size"]
