"""The model families whose response templates are shipped, as the tests know them.

`FAMILIES` has one entry a chat template of `tests/chat_templates/`: short ones, written for these
tests, with the marks that tell the family. `SAMPLES` are answers as such models write them, with
the message that they mean. `MESSAGES` are for round trips: what a chat template renders, the
response template must read again.
"""

# ruff: noqa: RUF001 - DeepSeek's marks are written with full-width bars

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parent / "chat_templates"

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
    }
    for name, properties in (
        ("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),
        ("note", {"text": {"type": "string"}, "tags": {"type": "array"}}),
        ("now", {}),
    )
]


@dataclass(frozen=True, slots=True)
class Family:
    """What a family can say, and the response template that must be chosen for it.

    ends  the marks that end a turn; the model's runtime leaves the last one out of the text
    """

    template: str
    ends: tuple[str, ...]
    reasoning: bool = True
    calls: bool = True
    parallel: bool = True
    mixed: bool = True  # content and calls in one answer
    ids: bool = False  # calls have ids that the text holds

    def can_say(self, message: dict[str, Any]) -> bool:
        calls = message.get("tool_calls", [])
        return not (
            ("reasoning_content" in message and not self.reasoning)
            or (calls and not self.calls)
            or (len(calls) > 1 and not self.parallel)
            or (calls and "content" in message and not self.mixed)
        )


IM_END = ("<|im_end|>",)
EOT = ("<|eot_id|>",)
DEEPSEEK = ("<｜end▁of▁sentence｜>",)

FAMILIES: dict[str, Family] = {
    "plain": Family("plain", ("\n",), reasoning=False, calls=False),
    "chatml": Family("chatml", IM_END, reasoning=False, calls=False),
    "smollm3": Family("smollm3", IM_END),
    "qwen3": Family("qwen3", IM_END),
    "qwq": Family("qwen3", IM_END, calls=False),
    "qwen3_coder": Family("qwen3_coder", IM_END, reasoning=False),
    "qwen3_5": Family("qwen3_coder", IM_END),
    "nemotron3": Family("qwen3_coder", IM_END),
    "hermes": Family("hermes", IM_END),
    "hermes4_llama": Family("hermes", EOT),
    "llama3": Family("llama3", EOT, reasoning=False, parallel=False, mixed=False),
    "llama3_pythonic": Family("llama_pythonic", EOT, reasoning=False, mixed=False),
    "llama4": Family("llama4", ("<|eot|>",), reasoning=False, parallel=False, mixed=False),
    "llama4_pythonic": Family("llama_pythonic", ("<|eot|>",), reasoning=False, mixed=False),
    "mistral": Family("mistral", ("</s>",)),
    "mistral_v3": Family("mistral_v3", ("</s>",), reasoning=False),
    "inst": Family("inst", ("</s>",), reasoning=False, calls=False),
    "gemma3": Family("gemma3", ("<end_of_turn>",), reasoning=False, calls=False),
    "gemma4": Family("gemma4", ("<turn|>",)),
    "functiongemma": Family(
        "functiongemma", ("<end_of_turn>", "<start_function_response>"), reasoning=False
    ),
    "harmony": Family("harmony", ("<|return|>", "<|call|>"), mixed=False),
    "deepseek_r1": Family("deepseek_r1", DEEPSEEK),
    "deepseek_v3_1": Family("deepseek_v3_1", DEEPSEEK),
    "deepseek_v3_2": Family("deepseek_v3_2", DEEPSEEK),
    "glm4_5": Family("glm4_5", ()),
    "cohere": Family("cohere", ("<|END_OF_TURN_TOKEN|>",)),
    "cohere_a": Family("cohere", ("<|END_OF_TURN_TOKEN|>",)),
    "cohere_r": Family("cohere_r", ("<|END_OF_TURN_TOKEN|>",), reasoning=False),
    "phi3": Family("phi4_mini", ("<|end|>",), reasoning=False, calls=False),
    "phi4": Family("phi4", IM_END, calls=False),
    "phi4_mini": Family("phi4_mini", ("<|end|>",), reasoning=False),
    "phi4_functools": Family("phi4_functools", ("<|end|>",), reasoning=False),
    "granite": Family("granite", ("<|end_of_text|>",)),
    "granite4": Family("granite4", ("<|end_of_text|>",), reasoning=False),
    "kimi_k2": Family("kimi_k2", IM_END, ids=True),
    "minimax_m2": Family("minimax_m2", ("[e~[",)),
    "nemotron": Family("nemotron", EOT),
    "nemotron_nano2": Family("nemotron", ("<SPECIAL_12>",)),
    "lfm2": Family("lfm2", IM_END),
    "ernie": Family("ernie", IM_END),
    "ernie_base": Family("ernie", ("<|end_of_sentence|>",), reasoning=False, calls=False),
}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


HERE = call("get_weather", city="São Paulo", days=3)
NOTED = call("note", text='line 1\n  "line" 2', tags=["a", "it's b"])
NOW = call("now")

MESSAGES: tuple[dict[str, Any], ...] = (
    {"content": "Hello there."},
    {"content": "A list:\n\n- one {1}\n- two [2] <b>\n\nThat's all, c'est ça. 🙂"},
    {"reasoning_content": "A greeting.\nBe short.", "content": "Hello there."},
    {"tool_calls": [HERE]},
    {"tool_calls": [NOW]},
    {"tool_calls": [NOTED, NOW, HERE]},
    {"content": "Let me look.", "tool_calls": [HERE, NOTED]},
    {"reasoning_content": "I need the weather.", "tool_calls": [HERE]},
    {"reasoning_content": "Both.", "content": "One moment.", "tool_calls": [NOW, HERE]},
)


def with_ids(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls with the ids that such a family gives them: name and place."""
    return [
        {"id": f"functions.{each['function']['name']}:{index}", **each}
        for index, each in enumerate(calls)
    ]


def messages_of(family: Family) -> Iterator[dict[str, Any]]:
    """The messages that a family can say, with ids on their calls where it has such."""
    for message in MESSAGES:
        if not family.can_say(message):
            continue
        if family.ids and "tool_calls" in message:
            message = {**message, "tool_calls": with_ids(message["tool_calls"])}
        yield message


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer, the end of the prompt before it, and the message that it means."""

    template: str
    prefix: str
    text: str
    message: dict[str, Any]


CHATML = "<|im_start|>assistant\n"
LLAMA3 = "<|start_header_id|>assistant<|end_header_id|>\n\n"
LLAMA4 = "<|header_start|>assistant<|header_end|>\n\n"
GRANITE = "<|start_of_role|>assistant<|end_of_role|>"
COHERE = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"

SAMPLES: tuple[Sample, ...] = (
    Sample("plain", "Q: hi\nA:", " Hi, <think> you.\n", {"content": " Hi, <think> you.\n"}),
    Sample("chatml", CHATML, "Hi!<|im_end|>\n", {"content": "Hi!"}),
    Sample(
        "smollm3",
        CHATML,
        '<think>\nhm\n</think>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        {"reasoning_content": "hm", "tool_calls": [NOW]},
    ),
    Sample(
        "qwen3",
        CHATML + "<think>\n\n</think>\n\n",
        '391<tool_call>{"name": "now", "arguments": {}}</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n<|im_end|>\n',
        {"content": "391", "tool_calls": [NOW, NOW]},
    ),
    Sample(
        "qwen3_coder",
        CHATML + "<think>\n",
        "First the\nfile.\n</think>\n\nI write it.\n\n<tool_call>\n<function=note>\n"
        "<parameter=text>\n    if x:\n        return 1\n\n</parameter>\n"
        '<parameter=tags>\n["py", "<b>"]\n</parameter>\n</function>\n</tool_call><|im_end|>',
        {
            "reasoning_content": "First the\nfile.",
            "content": "I write it.",
            "tool_calls": [call("note", text="    if x:\n        return 1\n", tags=["py", "<b>"])],
        },
    ),
    Sample(
        "hermes",
        CHATML,
        "Sure.\n<tool_call>\n{'arguments': {'city': \"L'Aquila\", 'days': 1}, "
        "'name': 'get_weather'}\n</tool_call><|im_end|>",
        {"content": "Sure.", "tool_calls": [call("get_weather", city="L'Aquila", days=1)]},
    ),
    Sample(
        "llama3",
        LLAMA3,
        '<|python_tag|>{"type": "function", "name": "get_weather", "parameters": '
        '{"city": "São Paulo", "days": 3}}<|eom_id|>',
        {"tool_calls": [HERE]},
    ),
    Sample("llama3", LLAMA3, '{"name": "no call"}<|eot_id|>', {"content": '{"name": "no call"}'}),
    Sample("llama4", LLAMA4, '{"name": "now", "parameters": {}}<|eot|>', {"tool_calls": [NOW]}),
    Sample("llama4", LLAMA4, "{ int i; }<|eot|>", {"content": "{ int i; }"}),
    Sample(
        "llama_pythonic",
        LLAMA4,
        "<|python_start|>[get_weather(city='São Paulo', days=3), now()]<|python_end|><|eot|>",
        {"tool_calls": [HERE, NOW]},
    ),
    Sample("llama_pythonic", LLAMA3, "[1, 2] is a list.", {"content": "[1, 2] is a list."}),
    Sample(
        "mistral",
        "[INST]Hi[/INST]",
        "[THINK]hm[/THINK]Wait.[TOOL_CALLS]now[CALL_ID]abc123XYZ[ARGS]{}[TOOL_CALLS]now{}</s>",
        {"reasoning_content": "hm", "content": "Wait.", "tool_calls": [NOW, NOW]},
    ),
    Sample(
        "mistral",
        "[TOOL_RESULTS]3[/TOOL_RESULTS]",
        "<think>\nthree\n</think>\nIt is 3.</s>",
        {"reasoning_content": "three", "content": "It is 3."},
    ),
    Sample(
        "mistral_v3",
        "[INST] Hi [/INST]",
        ' [TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "VvvODy9mT"}]</s>',
        {"tool_calls": [NOW]},
    ),
    Sample("inst", "[INST] Hi [/INST]", " Hello! </s>", {"content": "Hello!"}),
    Sample("gemma3", "<start_of_turn>model\n", "Hi!<end_of_turn>\n", {"content": "Hi!"}),
    Sample(
        "gemma4",
        "<|turn>model\n<|channel>thought\n<channel|>",
        '<|tool_call>call:note{text:<|"|>q(<|"|><|"|><|"|>S<|"|><|"|><|"|>)<|"|>,tags:["d",<|"|>e'
        '<|"|>]}<tool_call|><|tool_response>',
        {"tool_calls": [call("note", text='q("""S""")', tags=["d", "e"])]},
    ),
    Sample(
        "gemma4",
        "<|turn>model\n",
        "<|channel>thought\nTwo and\ntwo.<channel|>Four.<turn|>\n",
        {"reasoning_content": "Two and\ntwo.", "content": "Four."},
    ),
    Sample(
        "functiongemma",
        "<start_of_turn>model\n",
        "<start_function_call>call:get_weather{city:<escape>a{b},c:d<escape>,days:2}"
        "<end_function_call><start_function_call>call:now{}<end_function_call>"
        "<start_function_response>",
        {"tool_calls": [call("get_weather", city="a{b},c:d", days=2), NOW]},
    ),
    Sample(
        "harmony",
        "<|start|>assistant",
        "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "São Paulo", "days": 3}'
        "<|call|>",
        {"reasoning_content": "Look it up.", "tool_calls": [HERE]},
    ),
    Sample(
        "harmony",
        "<|start|>assistant",
        "<|channel|>analysis to=functions.now code<|message|>{}<|call|>",
        {"tool_calls": [NOW]},
    ),
    Sample(
        "deepseek_r1",
        "<｜Assistant｜><think>\n",
        "hm\n</think>\n\nOk.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
        "```json\n{}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        '```json\n{"city": "São Paulo", "days": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        {"reasoning_content": "hm", "content": "Ok.", "tool_calls": [NOW, HERE]},
    ),
    Sample(
        "deepseek_v3_1",
        "<｜Assistant｜></think>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        {"tool_calls": [NOW]},
    ),
    Sample(
        "deepseek_v3_1",
        "<｜Assistant｜></think><｜tool▁calls▁begin｜>...<｜tool▁output▁begin｜>3<｜tool▁output▁end｜>",
        "It is 3.",
        {"content": "It is 3."},
    ),
    Sample(
        "deepseek_v3_2",
        "<｜Assistant｜></think>old\n\n<function_results>\n<result>3</result>\n"
        "</function_results>\n\n<think>",
        'hm</think>So.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">São Paulo</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        {"reasoning_content": "hm", "content": "So.", "tool_calls": [HERE, NOW]},
    ),
    Sample(
        "glm4_5",
        "<|assistant|>",
        "\n<think>hm</think>\nOk.\n<tool_call>now</tool_call>\n<tool_call>get_weather\n"
        "<arg_key>city</arg_key>\n<arg_value>São Paulo</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call><|observation|>",
        {"reasoning_content": "hm", "content": "Ok.", "tool_calls": [NOW, HERE]},
    ),
    Sample(
        "cohere",
        COHERE,
        "<|START_THINKING|>plan<|END_THINKING|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>'
        "<|END_OF_TURN_TOKEN|>",
        {"reasoning_content": "plan", "tool_calls": [NOW]},
    ),
    Sample(
        "cohere",
        COHERE + "<|START_THINKING|>",
        "plan<|END_THINKING|>Without marks.",
        {"reasoning_content": "plan", "content": "Without marks."},
    ),
    Sample("cohere", COHERE, "Without marks.", {"content": "Without marks."}),
    Sample(
        "cohere_r",
        COHERE,
        'Action: ```json\n[\n    {"tool_name": "now", "parameters": {}}\n]\n```',
        {"tool_calls": [NOW]},
    ),
    Sample(
        "phi4",
        "<|im_start|>assistant<|im_sep|>",
        "<think>hm</think>\n\nHi.<|im_end|>",
        {"reasoning_content": "hm", "content": "Hi."},
    ),
    Sample(
        "phi4_mini",
        "<|assistant|>",
        '<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|><|end|>',
        {"tool_calls": [NOW]},
    ),
    Sample(
        "phi4_functools",
        "<|assistant|>",
        'functools[{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]',
        {"tool_calls": [NOW, NOW]},
    ),
    Sample(
        "granite",
        GRANITE,
        "Here is my thought process:\nhm\n\nHere is my response:\nHi.<|end_of_text|>\n",
        {"reasoning_content": "hm", "content": "Hi."},
    ),
    Sample(
        "granite",
        GRANITE,
        "<think>hm</think>\n<response>Hi.</response>"
        '<|tool_call|>[{"name": "now", "arguments": {}}]',
        {"reasoning_content": "hm", "content": "Hi.", "tool_calls": [NOW]},
    ),
    Sample(
        "granite4",
        GRANITE,
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|end_of_text|>',
        {"tool_calls": [NOW]},
    ),
    Sample(
        "kimi_k2",
        "<|im_assistant|>assistant<|im_middle|>",
        "<think>hm</think>Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>\n<|im_end|>",
        {
            "reasoning_content": "hm",
            "content": "Ok.",
            "tool_calls": [{"id": "functions.now:0", **NOW}],
        },
    ),
    Sample(
        "minimax_m2",
        "]~b]ai\n<think>\n",
        'hm\n</think>\n\n<minimax:tool_call>\n<invoke name="note">\n<parameter name="text"> a\n b'
        '</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>[e~[',
        {"reasoning_content": "hm", "tool_calls": [call("note", text=" a\n b"), NOW]},
    ),
    Sample(
        "nemotron",
        "<SPECIAL_11>Assistant\n<think></think>",
        '<TOOLCALL>[{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]</TOOLCALL>'
        "\n<SPECIAL_12>\n",
        {"tool_calls": [NOW, NOW]},
    ),
    Sample(
        "lfm2",
        CHATML,
        "<|tool_call_start|>[get_weather(city='São Paulo', days=3), now()]<|tool_call_end|>"
        "Checking.<|im_end|>",
        {"content": "Checking.", "tool_calls": [HERE, NOW]},
    ),
    Sample(
        "ernie",
        CHATML + "<think>\n",
        "hm\n</think>\n\n<response>\nHi.\n</response>\n",
        {"reasoning_content": "hm", "content": "Hi."},
    ),
    Sample(
        "ernie",
        CHATML + "<think>\n",
        'hm\n</think>\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n',
        {"reasoning_content": "hm", "tool_calls": [NOW]},
    ),
    Sample("ernie", "User: hi\nAssistant: ", "Hi.<|end_of_sentence|>", {"content": "Hi."}),
)
