"""`POST /v1/chat/completions` without streaming: what reaches the engine, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from server.api.app import create_app
from server.engine.types import GenerationRequest
from server.settings import Settings
from tests.api_support import ScriptedEngine, app_with, chat, client_of, finished, piece, saying


async def ask(engine: ScriptedEngine, **fields: Any) -> dict[str, Any]:
    async with client_of(app_with(engine)) as client:
        response = await client.post("/v1/chat/completions", json=chat(**fields))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_an_answer_has_openais_shape() -> None:
    answer = await ask(ScriptedEngine(saying("Hel", "lo")))
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "toy"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert "gabarito" not in answer


async def test_timings_say_where_the_time_went() -> None:
    answer = await ask(ScriptedEngine(saying("a", "b", "c")))
    assert answer["timings"] == {
        "grammar": {"compile_ms": None, "cache": None},
        "queue_ms": 1.0,
        "prompt_ms": 2.0,
        "decode_ms": 6.0,
        "mask_ms": 1.5,
        "sample_ms": 0.5,
        "per_token_ms": 2.0,
        "mask_share": 0.25,
        "tokens": 3,
        "forced_tokens": 1,
    }


async def test_the_prompt_is_the_rendered_conversation() -> None:
    engine = ScriptedEngine(saying("ok"))
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "c<|im_end|>"},
    ]
    await ask(engine, messages=messages)
    assert engine.detokenize(engine.last.prompt) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
        "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nc<|im_end|><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert engine.last.prompt.count(257) == 4, "the client's own <|im_end|> is no token"


async def test_sampling_parameters_reach_the_engine() -> None:
    engine = ScriptedEngine(saying("ok"))
    await ask(
        engine,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        seed=-3,
        frequency_penalty=0.1,
        presence_penalty=-0.2,
        repeat_penalty=1.1,
        logit_bias={"65": 5, "66": -100},
        stop=["x", "y"],
        max_completion_tokens=9,
    )
    sampling = engine.last.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 40)
    assert (sampling.min_p, sampling.seed, sampling.repeat_penalty) == (0.05, -3, 1.1)
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.1, -0.2)
    assert sampling.logit_bias == {65: 5, 66: -100}
    assert engine.last.stop == ("x", "y")
    assert engine.last.max_tokens == 9
    assert engine.last.top_logprobs is None
    assert engine.last.grammar is None


async def test_what_a_request_leaves_open_the_settings_say() -> None:
    engine = ScriptedEngine(saying("ok"))
    settings = Settings.model_validate(
        {
            "server": {"served_name": "toy"},
            "sampling": {"temperature": 0.25, "top_k": 7, "min_p": 0.5},
            "engine": {"max_tokens_default": 11},
        }
    )
    async with client_of(create_app(settings, engine=engine)) as client:
        await client.post("/v1/chat/completions", json=chat(temperature=None, top_k=0))
    assert engine.last.sampling.temperature == 0.25
    assert engine.last.sampling.top_k == 0, "a zero of the request is a value"
    assert engine.last.sampling.min_p == 0.5
    assert engine.last.max_tokens == 11


async def test_other_spellings_of_nothing_and_of_one_penalty() -> None:
    engine = ScriptedEngine(saying("ok"))
    await ask(engine, top_p=0, top_k=-1, max_tokens=-1, repetition_penalty=1.2)
    sampling = engine.last.sampling
    assert 0 < sampling.top_p < 1e-300, "the likeliest token alone"
    assert (sampling.top_k, sampling.repeat_penalty) == (0, 1.2)
    assert engine.last.max_tokens is None


@pytest.mark.parametrize(
    "limits", [{"max_tokens": 5}, {"max_tokens": 5, "max_completion_tokens": 5}]
)
async def test_both_names_of_the_token_limit_work(limits: dict[str, int]) -> None:
    engine = ScriptedEngine(saying("ok"))
    await ask(engine, **limits)
    assert engine.last.max_tokens == 5


async def test_a_single_stop_string_is_a_list_of_one() -> None:
    engine = ScriptedEngine(saying("ok"))
    await ask(engine, stop="END")
    assert engine.last.stop == ("END",)


async def test_several_choices_differ_by_their_seeds() -> None:
    engine = ScriptedEngine(
        lambda request: [piece(str(request.sampling.seed)), finished(tokens=1, cached=4)]
    )
    answer = await ask(engine, n=3, seed=10)
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert [c["message"]["content"] for c in answer["choices"]] == ["10", "11", "12"]
    assert answer["usage"]["prompt_tokens"] == 7, "the prompt counts once"
    assert answer["usage"]["completion_tokens"] == 3


async def test_log_probabilities_have_openais_shape() -> None:
    engine = ScriptedEngine(
        lambda _: [piece("é", -0.5), piece("!", float("-inf")), finished(tokens=2)]
    )
    answer = await ask(engine, logprobs=True, top_logprobs=1)
    assert engine.last.top_logprobs == 1
    first, second = answer["choices"][0]["logprobs"]["content"]
    assert first == {
        "token": "é",
        "logprob": -0.5,
        "bytes": [195, 169],
        "top_logprobs": [{"token": "é", "logprob": -0.5, "bytes": [195, 169]}],
    }
    assert second["logprob"] == -9999.0, "JSON has no infinity"


async def test_log_probabilities_without_alternatives() -> None:
    engine = ScriptedEngine(saying("ok"))
    await ask(engine, logprobs=True)
    assert engine.last.top_logprobs == 0


async def test_reasoning_is_kept_apart() -> None:
    """The response template that fits this chat template knows `<think>`."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n{# <think></think> <tool_call> enable_thinking #}"
    )
    engine = ScriptedEngine(
        saying("<think>", "Hm", ".", "</think>", "\n\nYes."), chat_template=template
    )
    settings = Settings.model_validate(
        {"server": {"served_name": "toy"}, "model": {"response_template": "qwen3"}}
    )
    async with client_of(create_app(settings, engine=engine)) as client:
        response = await client.post("/v1/chat/completions", json=chat())
    message = response.json()["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm."
    assert message["content"] == "Yes."
    details = response.json()["usage"]["completion_tokens_details"]
    assert details == {"reasoning_tokens": 4}, "the delimiters are two of them"


async def test_template_arguments_and_reasoning_effort_reach_the_template() -> None:
    engine = ScriptedEngine(saying("ok"), chat_template="{{ style }}|{{ reasoning_effort }}")
    await ask(engine, chat_template_kwargs={"style": "terse"}, reasoning_effort="low")
    assert engine.detokenize(engine.last.prompt) == "terse|low"


async def test_earlier_tool_calls_reach_the_template_as_objects() -> None:
    engine = ScriptedEngine(
        saying("ok"),
        chat_template="{{ messages[1].tool_calls[0].function.arguments.values() | join }}|"
        "{{ messages[2].content }}|{{ messages[2].tool_call_id }}|{{ messages[2].name }}",
    )
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 41}'}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    await ask(engine, messages=messages)
    assert engine.detokenize(engine.last.prompt) == "41|42|c1|f"


HARMLESS = {
    "user": "u",
    "metadata": {"a": "b"},
    "store": True,
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "implicit"},
    "service_tier": "auto",
    "verbosity": "low",
    "parallel_tool_calls": False,
    "tools": [],
    "tool_choice": "none",
    "functions": [],
    "function_call": "none",
    "modalities": ["text"],
    "audio": None,
    "prediction": None,
    "web_search_options": None,
    "moderation": None,
    "response_format": {"type": "text"},
    "stop": None,
    "n": None,
    "stream": False,
    "stream_options": None,
    "logprobs": False,
    "top_logprobs": None,
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_harmless_fields_change_nothing(name: str) -> None:
    plain, with_field = ScriptedEngine(saying("ok")), ScriptedEngine(saying("ok"))
    await ask(plain)
    await ask(with_field, **{name: HARMLESS[name]})
    assert _requested(plain.last) == _requested(with_field.last)


def _requested(request: GenerationRequest) -> tuple[object, ...]:
    return (request.prompt, request.max_tokens, request.sampling, request.stop, request.grammar)


async def test_the_model_may_be_called_default() -> None:
    answer = await ask(ScriptedEngine(saying("ok")), model="default")
    assert answer["model"] == "toy"
