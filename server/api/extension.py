"""`gabarito`: the one object in which an answer says more than OpenAI's API has words for.

    schema            what of the schema was enforced while generating, and what was not
    validation        whether the finished answer is complete and valid
    repair            the attempts that an accepted answer took
    grounding         which values the source does not state
    diagnostics       what the grammar did to the model
    warnings          what the client should know and did not ask
    closed_by_budget  the answer was brought to a legal end because its budget ran out
    tools             how tool calls were bound
    response_template where the answer wasn't what the response template promised

It stands beside `choices`, in a stream on the last chunk that has a `finish_reason`. A member that
has nothing to say is absent, and so is the object when all of them are.

`schema`, `warnings`, `tools` and `response_template` are about the whole request, the others about
one choice. Of an answer with one choice they stand in the object itself; with several, `choices`
lists them, each with its `index`.

Invariant: facts only, in plain data that JSON can write; nothing here is computed unless somebody
asked for it.

Read next: `server/api/chat.py`, which fills it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

#: A member's content: names to plain data.
Facts = Mapping[str, Any]


@dataclass(slots=True)
class ChoiceFacts:
    """What there is to say about one choice; None: nothing."""

    validation: Facts | None = None
    repair: Facts | None = None
    grounding: Facts | None = None
    diagnostics: Facts | None = None
    closed_by_budget: bool | Facts | None = None

    def as_dict(self) -> dict[str, Any]:
        """The members that have something to say."""
        return _said(self)


@dataclass(slots=True)
class RequestFacts:
    """What there is to say about all choices alike; None or empty: nothing."""

    schema: Facts | None = None
    tools: Facts | None = None
    response_template: Facts | None = None
    warnings: list[str] = field(default_factory=list)


class Extension:
    """Collects the facts of one answer while it is made: `extension.request.tools = {...}`,
    `extension.choices[0].diagnostics = {...}`."""

    __slots__ = ("choices", "request")

    def __init__(self, choices: int = 1, *, schema: Facts | None = None) -> None:
        """
        Args:
            choices: how many choices the answer has, at least one.
            schema: what of the schema is enforced.
        """
        self.request = RequestFacts(schema=schema)
        self.choices = tuple(ChoiceFacts() for _ in range(choices))

    def warn(self, text: str) -> None:
        """Add a warning, once."""
        if text not in self.request.warnings:
            self.request.warnings.append(text)

    def as_dict(self) -> dict[str, Any]:
        """The object itself; empty if there is nothing to say."""
        facts = _said(self.request)
        if len(self.choices) == 1:
            return {**facts, **self.choices[0].as_dict()}
        each = [
            {"index": index, **said}
            for index, choice in enumerate(self.choices)
            if (said := choice.as_dict())
        ]
        return {**facts, "choices": each} if each else facts

    def members(self) -> dict[str, Any]:
        """What it adds to a completion, or to the last chunk of one: `gabarito`, or nothing."""
        said = self.as_dict()
        return {"gabarito": said} if said else {}


def _said(facts: ChoiceFacts | RequestFacts) -> dict[str, Any]:
    """The members that say something, by name."""
    values = {member.name: getattr(facts, member.name) for member in fields(facts)}
    return {name: value for name, value in values.items() if value is not None and value != []}
