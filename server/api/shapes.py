"""The wire objects of OpenAI's API, built from the engine's values. Pure functions of plain data.

Invariant: numbers that JSON can't write never come out, and every object of one answer carries the
same `id`, `created` and `model` (they are all made by one `Envelope`).

Read next: `server/api/chat.py`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from server.api.answerformat import AnswerFormat
from server.api.tools import Offer
from server.calls import ToolCallDelta
from server.deltas import AnswerMessage
from server.engine.types import Finished, TokenRecord

#: What the API writes for a log-probability that is minus infinity.
LOWEST_LOGPROB = -9999.0


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all objects of one answer share."""

    prefix: str
    kind: str
    model: str
    fingerprint: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def wrap(self, choices: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        """An answer, or a chunk of one."""
        return {
            "id": f"{self.prefix}-{self.id}",
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": list(choices),
            **more,
        }


def message(answer: AnswerMessage, offer: Offer | None = None) -> dict[str, Any]:
    """`choices[].message` of a chat answer. Where functions were offered, the content may be
    missing (null)."""
    content = answer.content or (None if offer is not None else "")
    shape: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if answer.calls and offer is not None and offer.legacy:
        first = answer.calls[0]
        shape["function_call"] = {"name": first.name, "arguments": first.arguments}
    elif answer.calls:
        shape["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    if answer.reasoning is not None:
        shape["reasoning_content"] = answer.reasoning
    return {**answer.extra, **shape}


def tool_call_delta(delta: ToolCallDelta, offer: Offer | None) -> dict[str, Any] | None:
    """`choices[].delta` of a call: id, type and name only where the call begins. None: the answer's
    shape has no room for it (a second `function_call`)."""
    function: dict[str, Any] = {"arguments": delta.arguments}
    if delta.id is not None:
        function = {"name": delta.name, **function}
    if offer is not None and offer.legacy:
        return {"function_call": function} if delta.index == 0 else None
    if delta.id is None:
        return {"tool_calls": [{"index": delta.index, "function": function}]}
    call = {"index": delta.index, "id": delta.id, "type": "function", "function": function}
    return {"tool_calls": [call]}


def finish_reason(end: Finished, answer: AnswerMessage, offer: Offer | None = None) -> str:
    """`choices[].finish_reason`: an answer that was cut off says so, whatever it holds."""
    if end.reason != "stop" or not answer.calls:
        return end.reason
    return "function_call" if offer is not None and offer.legacy else "tool_calls"


def tool_facts(
    bound: Mapping[str, Any] | None, answers: Sequence[AnswerMessage]
) -> dict[str, Any] | None:
    """`gabarito.tools`: how the calls were bound, and which of them are not complete."""
    incomplete = [
        {"choice": index, "call": number, "id": call.id}
        for index, answer in enumerate(answers)
        for number, call in enumerate(answer.calls)
        if not call.complete
    ]
    facts = dict(bound or {})
    if incomplete:
        facts["incomplete"] = incomplete
    return facts or None


def chat_logprobs(tokens: Iterable[TokenRecord]) -> dict[str, Any]:
    """`choices[].logprobs` of chat."""
    return {
        "content": [
            {
                **_token(token.data, token.logprob),
                "top_logprobs": [_token(data, logprob) for _, data, logprob in token.top],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def completion_logprobs(tokens: Sequence[TokenRecord], offset: int) -> dict[str, Any]:
    """`choices[].logprobs` of plain completions; `offset` counts the characters before them."""
    texts = [token.data.decode("utf-8", "replace") for token in tokens]
    offsets: list[int] = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": texts,
        "token_logprobs": [_finite(token.logprob) for token in tokens],
        "top_logprobs": [
            {data.decode("utf-8", "replace"): _finite(logprob) for _, data, logprob in token.top}
            for token in tokens
        ],
        "text_offset": offsets,
    }


def _token(data: bytes, logprob: float | None) -> dict[str, Any]:
    return {
        "token": data.decode("utf-8", "replace"),
        "logprob": _finite(logprob),
        "bytes": list(data),
    }


def _finite(logprob: float | None) -> float:
    # NaN compares false with everything, so it falls to the lowest value as well.
    return logprob if logprob is not None and logprob > LOWEST_LOGPROB else LOWEST_LOGPROB


def usage(
    choices: Sequence[Sequence[Finished]],
    choices_per_prompt: int = 1,
    *,
    reasoning_tokens: int | None = None,
) -> dict[str, Any]:
    """`usage` of an answer: for each choice the ends of all attempts at it, in their order.

    The prompt that choices share counts once, with the first attempt at the first of them; further
    attempts have prompts of their own. `reasoning_tokens`: how many of all tokens were reasoning;
    None: there is no telling (plain completions).
    """
    prompts = [ends[0] for ends in choices[::choices_per_prompt] if ends]
    prompts += [end for ends in choices for end in ends[1:]]
    prompt_tokens = sum(end.usage.prompt_tokens for end in prompts)
    completion_tokens = sum(end.usage.completion_tokens for ends in choices for end in ends)
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning_tokens}}
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(end.usage.cached_tokens for end in prompts)},
        **({} if reasoning_tokens is None else details),
    }


def timings(choices: Sequence[Sequence[Finished]], answer_format: AnswerFormat) -> dict[str, Any]:
    """Where the time of an answer went, in milliseconds.

    For each choice it is given the ends of all attempts at it. With several choices, which run side
    by side, the waits are the longest ones, and times a token are means; of attempts, which are
    made one after the other, the waits are summed. `mask_share` is the part
    of the decoding time that was spent in the grammar, `forced_tokens` how many of the tokens the
    schema left no choice about.
    """
    by_choice = [[end.timings for end in ends] for ends in choices]
    all_timings = [timing for timings in by_choice for timing in timings]
    tokens = sum(timing.tokens for timing in all_timings)
    decode_ms = sum(timing.decode_ms for timing in all_timings)
    mask_ms = sum(timing.mask_ms for timing in all_timings)
    return {
        "grammar": {
            "compile_ms": _rounded(answer_format.compile_ms),
            "cache": answer_format.cache,
        },
        "queue_ms": _rounded(max(sum(each.queue_ms for each in own) for own in by_choice)),
        "prompt_ms": _rounded(max(sum(each.prompt_ms for each in own) for own in by_choice)),
        "decode_ms": _rounded(max(sum(each.decode_ms for each in own) for own in by_choice)),
        "mask_ms": _rounded(mask_ms),
        "sample_ms": _rounded(sum(timing.sample_ms for timing in all_timings)),
        "per_token_ms": _rounded(decode_ms / tokens) if tokens else None,
        "mask_share": round(min(1.0, mask_ms / decode_ms), 4) if decode_ms > 0 else None,
        "tokens": tokens,
        "forced_tokens": sum(timing.forced_tokens for timing in all_timings),
    }


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)
