"""What a grammar does to a model, step by step.

`trace()` runs one answer and yields a `TraceRow` per token, then one `TraceSummary`;
`print_trace()` and `trace_lines()` show them as a table and as JSON lines. Invariant: what is
reported was measured in the run itself; only the canonical split is computed afterwards.
Read next: `server/engine/sampling.py`, where the diagnostics come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from server.engine.engine import LocalEngine
from server.engine.types import (
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    SamplingParams,
    TokenRecord,
)

if TYPE_CHECKING:
    from grammar import Grammar


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One step. `wanted` is the text of the model's favourite where the mask overruled it.

    `text` has the token's bytes; those that are not UTF-8 by themselves are written as `\\xNN`.
    """

    step: int
    token: int
    text: str
    legal_count: int
    wanted: str | None
    legal_mass: float
    kl: float
    forced: bool


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """The whole answer.

    total_kl      sum of the steps' -ln Z, in nats: how much the grammar cost the model
    split         the tokens as they came out
    canonical     the tokenizer's own split of the same text; None where the answer was cut within a
                  character, or where the tokenizer changes the text
    is_canonical  whether the two are equal
    """

    text: str
    finish_reason: FinishReason
    steps: int
    overruled: int
    forced: int
    total_kl: float
    split: tuple[str, ...]
    canonical: tuple[str, ...] | None
    is_canonical: bool | None


def trace(
    engine: LocalEngine,
    prompt: Iterable[int],
    grammar: Grammar | None,
    *,
    max_tokens: int | None = None,
    sampling: SamplingParams | None = None,
) -> Iterator[TraceRow | TraceSummary]:
    """Generate one answer (greedily, unless `sampling` says otherwise) and report on it.

    Raises:
        NoLegalContinuation, EngineError: as the engine does; what was generated before has been
            yielded.
    """
    request = GenerationRequest(
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        sampling=sampling or SamplingParams(temperature=0),
        grammar=grammar,
        trace=True,
    )
    generation = engine.stream(request)
    rows: list[TraceRow] = []
    tokens: list[TokenRecord] = []
    try:
        for event in generation:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                yield _summary(engine, rows, tokens, event.reason)
                return
            for record in event.tokens:
                rows.append(_row(engine, len(rows), record))
                tokens.append(record)
                yield rows[-1]
    finally:
        generation.cancel()


def trace_lines(trace: Iterable[TraceRow | TraceSummary]) -> Iterator[str]:
    """A JSON object per line: the steps, then the summary (the one with `finish_reason`)."""
    for item in trace:
        yield json.dumps(asdict(item), ensure_ascii=False)


def print_trace(trace: Iterable[TraceRow | TraceSummary], console: Console) -> None:
    """A table of the steps, then the summary in words."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("step", justify="right")
    table.add_column("token", overflow="fold")
    table.add_column("legal", justify="right")
    table.add_column("wanted instead", overflow="fold", style="red")
    table.add_column("Z", justify="right")
    table.add_column("KL", justify="right")
    summary = None
    try:
        for item in trace:
            if isinstance(item, TraceSummary):
                summary = item
                continue
            table.add_row(
                str(item.step),
                Text(_shown(item.text)),
                "1 (forced)" if item.forced else str(item.legal_count),
                Text("" if item.wanted is None else _shown(item.wanted)),
                f"{item.legal_mass:.2e}" if item.legal_mass < 0.001 else f"{item.legal_mass:.4f}",
                f"{item.kl:.3f}",
            )
    finally:
        console.print(table)
    if summary is not None:
        console.print(_in_words(summary), soft_wrap=True)


def _in_words(summary: TraceSummary) -> Text:
    lines = [
        summary.text,
        "",
        f"{summary.steps} steps, {summary.overruled} overruled, {summary.forced} forced; "
        f"total KL {summary.total_kl:.3f} nats; finish reason: {summary.finish_reason}",
    ]
    if summary.is_canonical is None:
        lines.append("canonical split: cannot be told for this text")
    elif summary.is_canonical:
        lines.append("canonical split: yes, the tokenizer would cut this text the same way")
    else:
        lines.append("canonical split: no; the tokenizer would have cut it into")
        lines.append("  " + " ".join(map(_shown, summary.canonical or ())))
        lines.append("instead of")
        lines.append("  " + " ".join(map(_shown, summary.split)))
    return Text("\n".join(lines))


def _shown(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _row(engine: LocalEngine, step: int, record: TokenRecord) -> TraceRow:
    diagnostics = record.diagnostics
    assert diagnostics is not None, "the request asked for them"
    wanted = None
    if diagnostics.overruled:
        wanted = engine.detokenize([diagnostics.wanted])
    return TraceRow(
        step=step,
        token=record.id,
        text=_readable(record.data),
        legal_count=diagnostics.legal_count,
        wanted=wanted,
        legal_mass=diagnostics.legal_mass,
        kl=diagnostics.kl,
        forced=diagnostics.forced,
    )


def _summary(
    engine: LocalEngine, rows: list[TraceRow], tokens: list[TokenRecord], reason: FinishReason
) -> TraceSummary:
    split = [token for token in tokens if token.id not in engine.info.eos_ids]
    data = b"".join(token.data for token in split)
    text = data.decode("utf-8", "replace")
    canonical: list[int] | None = None
    if text.encode() == data:
        canonical = engine.tokenize(text)
        if engine.detokenize(canonical) != text:
            canonical = None
    return TraceSummary(
        text=text,
        finish_reason=reason,
        steps=len(rows),
        overruled=sum(row.wanted is not None for row in rows),
        forced=sum(row.forced for row in rows),
        total_kl=sum(row.kl for row in rows),
        split=tuple(_readable(token.data) for token in split),
        canonical=None if canonical is None else tuple(engine.detokenize([t]) for t in canonical),
        is_canonical=None if canonical is None else canonical == [token.id for token in split],
    )


def _readable(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
