"""Template files: the shipped ones, how one is chosen, and what is wrong with a broken one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parsing import (
    ResponseTemplateError,
    TemplateFile,
    choose_template,
    load_template,
    load_template_file,
    parse_response,
)

CONFIG = Path(__file__).resolve().parent.parent / "config" / "response_templates"
FILES = {path.stem: load_template_file(path) for path in sorted(CONFIG.glob("*.json"))}

CHATML = "<|im_start|>assistant\n"
LLAMA = "<|start_header_id|>assistant<|end_header_id|>\n\n"
TURN = "<start_of_turn>model\n"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


JSON_CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
NAMED_CALL = "<|message|>{}<|call|>"


@pytest.mark.parametrize(
    ("name", "prefix", "text", "wanted"),
    [
        ("plain", "any<prompt>", " Hi<|im_end|>\n", {"content": " Hi<|im_end|>\n"}),
        ("plain", "any<prompt>", "\n", {"content": "\n"}),
        ("chatml", CHATML, "Hi <think>.<|im_end|>\n", {"content": "Hi <think>."}),
        ("chatml", CHATML, '{"a": 1}<|endoftext|>', {"content": '{"a": 1}'}),
        ("gemma3", TURN, "Hi<end_of_turn>\n", {"content": "Hi"}),
        (
            "smollm3",
            CHATML + "<think>\n\n</think>\n",
            f"Hi.\n{JSON_CALL}\n{JSON_CALL}<|im_end|>",
            {"content": "Hi.", "tool_calls": [call("f", a=1), call("f", a=1)]},
        ),
        (
            "qwen3",
            CHATML + "<think>\n",
            f"hm\n</think>\n\nHi.\n{JSON_CALL}<|im_end|>\n",
            {"reasoning_content": "hm", "content": "Hi.", "tool_calls": [call("f", a=1)]},
        ),
        (
            "qwen3",
            CHATML,
            f"<think>x{JSON_CALL}",
            {"reasoning_content": "x", "tool_calls": [call("f", a=1)]},
        ),
        (
            "qwen3",
            CHATML,
            "A<think>b</think>C<|im_end|>",
            {"content": "A\n\nC", "reasoning_content": "b"},
        ),
        (
            "qwen3_coder",
            CHATML,
            "<tool_call>\n<function=f>\n<parameter=a>\n  x\n\n</parameter>\n"
            "</function>\n</tool_call>",
            {"tool_calls": [call("f", a="  x\n")]},
        ),
        (
            "harmony",
            "<|start|>assistant",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
            "<|channel|>final<|message|>Hi<|return|>",
            {"reasoning_content": "hm", "content": "Hi"},
        ),
        (
            "harmony",
            "<|start|>assistant",
            f"<|channel|>commentary to=functions.f <|constrain|>json{NAMED_CALL}",
            {"tool_calls": [call("f")]},
        ),
        (
            "harmony",
            "<|start|>assistant",
            f" to=functions.f<|channel|>commentary json{NAMED_CALL}",
            {"tool_calls": [call("f")]},
        ),
        (
            "harmony",
            "<|start|>assistant",
            f"<|channel|>analysis to=functions.f code{NAMED_CALL}",
            {"tool_calls": [call("f")]},
        ),
        ("llama3", LLAMA, "int main() { }<|eot_id|>", {"content": "int main() { }"}),
        ("llama3", LLAMA, '{"answer": 42}<|eot_id|>', {"content": '{"answer": 42}'}),
        (
            "llama3",
            LLAMA,
            '<|python_tag|>{"name": "f", "parameters": {"a": 1}}<|eom_id|>',
            {"tool_calls": [call("f", a=1)]},
        ),
        (
            "mistral",
            "[INST] Hi [/INST]",
            'Ok.[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g{}</s>',
            {"content": "Ok.", "tool_calls": [call("f", a=1), call("g")]},
        ),
        (
            "mistral_v3",
            "[INST] Hi [/INST]",
            '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]</s>',
            {"tool_calls": [call("f"), call("g")]},
        ),
    ],
)
def test_shipped_templates(name: str, prefix: str, text: str, wanted: dict[str, Any]) -> None:
    message = parse_response(text, FILES[name].template, prefix=f"before {prefix}")
    assert message == {"role": "assistant", **wanted}


def test_names_are_file_names() -> None:
    assert {"plain", "chatml", "smollm3", "qwen3", "gemma3", "harmony", "llama3"} <= set(FILES)
    for name, file in FILES.items():
        assert file.name == name
        assert file.description


@pytest.mark.parametrize(
    ("chat_template", "name"),
    [
        ("{{ messages[0].content }}", "plain"),
        ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% endfor %}", "chatml"),
        ("<|im_start|>assistant<|im_sep|>", "phi4"),
        ("<|im_start|> reasoning_mode custom_instructions <tool_call>", "smollm3"),
        ("<|im_start|>system <tool_call></tool_call> {{ '<think>' }}", "qwen3"),
        ("<|im_start|> <tool_call><function=x><parameter=y></tool_call>", "qwen3_coder"),
        ("{{ '<start_of_turn>' + role }}", "gemma3"),
        ("{{ '<|start|>assistant<|channel|>final<|message|>' }}", "harmony"),
        ("<|start_header_id|>x<|end_header_id|> {{ '<|eot_id|>' }}", "llama3"),
        ("[INST] [/INST] [TOOL_CALLS]{{ name }}[ARGS]", "mistral"),
        ("[INST] [/INST] [TOOL_CALLS]", "mistral_v3"),
    ],
)
def test_the_best_fit_is_chosen(chat_template: str, name: str) -> None:
    files = list(FILES.values())
    assert choose_template(chat_template, files).name == name
    assert choose_template(chat_template, files[::-1]).name == name


def test_nothing_fits() -> None:
    with pytest.raises(ResponseTemplateError, match="plain"):
        choose_template("x", [FILES["chatml"]])


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content) if not isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        [1],
        {"name": "n", "description": "d"},
        {"name": "n", "description": "d", "template": {}},
        {"name": 1, "description": "d", "template": FILES["plain"].name},
        {"name": "n", "description": "d", "detect": {"contains": [""]}, "template": {}},
        {"name": "n", "description": "d", "detect": [], "template": {}},
        {"name": "n", "description": "d", "other": 1, "template": {}},
    ],
)
def test_broken_files_are_named(tmp_path: Path, content: Any) -> None:
    path = write(tmp_path / "broken.json", content)
    with pytest.raises(ResponseTemplateError, match=r"broken\.json"):
        load_template_file(path)
    with pytest.raises(FileNotFoundError):
        load_template_file(tmp_path / "absent.json")


def test_templates_are_found_in_files(tmp_path: Path) -> None:
    described = {"start_anchor": "@", "fields": {"c": {}}}
    for content in (
        described,
        {"name": "n", "template": described},
        {"response_template": described},
    ):
        path = write(tmp_path / "file.json", content)
        assert list(load_template(path).fields) == ["c"]
        assert list(load_template(str(path)).fields) == ["c"]
    for broken in ({"a": 1}, "{", [1]):
        with pytest.raises(ResponseTemplateError):
            load_template(write(tmp_path / "file.json", broken))
    with pytest.raises(FileNotFoundError):
        load_template(tmp_path / "absent.json")


def test_files_are_values() -> None:
    file = FILES["plain"]
    assert isinstance(file, TemplateFile)
    with pytest.raises(AttributeError):
        file.name = "x"  # type: ignore[misc]
