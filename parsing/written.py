"""One tool call as an answer of a response template has it: for prompts that tell a model how.

What is written is read back before it counts, so that nobody is told of a notation in which calls
are not found.

Read next: `inverse.py`, which says where name and arguments stand; `server/toolprompt.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parsing.content import Content
from parsing.errors import ResponseParseError
from parsing.inverse import CALLS, Region, inverse_of
from parsing.parser import parse_response
from parsing.shapes import NotInvertible, example, marks_of
from parsing.template import ResponseTemplate


def written_call(
    template: ResponseTemplate,
    name: str,
    arguments: Mapping[str, Any],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str | None:
    """The text of a call, as short as the template allows; None where it reads none that calls
    `name` with these arguments. What ends the whole answer is left out.

    Args:
        tools: in OpenAI's form; they give plain-text arguments their types.
    """
    inverse = inverse_of(template)
    region = inverse.regions.get(CALLS)
    if region is None or region.call is None:
        return None
    ends = inverse.implicit.closes if inverse.implicit is not None else ()
    of_turn = {mark.needle for mark in ends}
    closers = [mark for mark in region.closes if mark.place != "end" and mark.ahead is None]
    closer = example(closers[0].pattern, {}) if closers else ""
    for mark in region.opens:
        group = region.call.group
        opener = example(mark.pattern, {} if group is None else {group: name})
        for body in _bodies(region, name, arguments):
            text = mark.before + opener + body + closer
            if _reads(template, text, name, arguments, tools):
                shown = closer if closers and closers[0].needle not in of_turn else ""
                return (opener + body + shown).strip()
    return None


def _reads(
    template: ResponseTemplate,
    text: str,
    name: str,
    arguments: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
) -> bool:
    try:
        message = parse_response(
            text, template, prefix="", tools=list(tools) or None, deep_types=True
        )
    except ResponseParseError:
        return False
    calls = message.get(CALLS)
    if not isinstance(calls, list) or len(calls) != 1 or not isinstance(calls[0], dict):
        return False
    function = calls[0].get("function")
    return bool(function == {"name": name, "arguments": dict(arguments)})


def _bodies(region: Region, name: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Ways to write the body of a region, the ones that are easier to read first."""
    call, content = region.call, region.content
    assert call is not None
    match content.name:
        case "json" if call.group is not None:
            yield _json(arguments)
        case "json":
            values = {
                "name": _json(name),
                "arguments": _json(arguments),
                "type": _json("function"),
            }
            for order in call.orders:
                members = [member for member in order if member.kind in values]
                for chosen in ([m for m in members if not m.optional], members):
                    body = ", ".join(f"{_json(m.key)}: {values[m.kind]}" for m in chosen)
                    yield f"[{{{body}}}]" if call.listed else f"{{{body}}}"
        case "python-call-list":
            listed = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            yield f"[{name}({listed})]"
        case "xml-inline" | "kv-lines":
            try:
                parts = [_part(content, key, value) for key, value in arguments.items()]
            except NotInvertible:
                return
            yield "\n" + "\n".join([*parts, ""]) if parts else "\n"
            yield "".join(parts)


def _part(content: Content, key: str, value: Any) -> str:
    """One argument. Raises NotInvertible: its tag's pattern can't be read backwards."""
    as_text = isinstance(value, str) and (content.value is None or content.value.name == "text")
    text = value if as_text else _json(value)
    if content.name == "kv-lines":
        space = " " if content.strip else ""
        separator, end = content.args.get("kv_sep", ":"), content.args.get("line_sep", "\n")
        return f"{key}{separator}{space}{text}{end}".removesuffix("\n")
    assert content.tag is not None
    return example(marks_of(content.tag)[0].pattern, {"key": key, "value": str(text)})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
