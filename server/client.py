"""For programs that ask a server: a pydantic object out of a text, or a typed failure.

    from openai import OpenAI
    from server.client import ExtractionFailed, extract

    try:
        person = extract(OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="-"), Person, text)
    except ExtractionFailed as failure:
        print(failure.failure, [attempt.outcome for attempt in failure.attempts])

The same loop as the server's `repair`: an answer that was cut off gets a larger budget, one that is
invalid or says what the source doesn't state goes back into the prompt with the reasons, and one
that comes a second time ends it. A Gabarito server runs the loop itself; for any other server of
the API it runs here, on the plain openai client. Either way the object has passed the model's own
validators, and what they object to goes back into the prompt, too.

Invariant: what is returned passed every check that was asked for; nothing is guessed or left out.

Read next: `server/repair.py` (when to go on, and with what), `server/grounding/`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ValidationError

from server.grounding import Source, check, rules
from server.pointers import pointer_of
from server.repair import Accept, Attempt, GiveUp, Reason, RepairLoop

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI
    from openai.types.chat import ChatCompletion

_Model = TypeVar("_Model", bound=BaseModel)

#: Who runs the loop: `auto` asks the server who it is.
Side: TypeAlias = Literal["auto", "server", "client"]

INSTRUCTIONS = (
    "Fill in the fields from the text that the user gives. Write what the text states, as it "
    "states it; where it states nothing, write null if the field allows it."
)

#: Keywords whose members are schemas by name.
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties"})

#: What a server that isn't ours is assumed to have room for; its own limit ends an attempt.
_ROOM = 1 << 20

#: Whether the server behind a client is a Gabarito.
_KNOWN: WeakKeyDictionary[object, bool] = WeakKeyDictionary()


class ExtractionFailed(Exception):  # noqa: N818 - reads as what it is where it is caught
    """No answer was good enough.

    failure   why it ended: `attempts_exhausted`, `repeated_answer`, `budget_exhausted`,
              `context_exhausted`, or `refused` (the model declined, or a filter stopped it)
    attempts  all of them, as plain data: `outcome`, `content`, `reasons`, ...
    """

    def __init__(
        self, failure: str, message: str, attempts: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message
        self.attempts = tuple(attempts)


@dataclass(frozen=True, slots=True)
class Extraction(Generic[_Model]):
    """An accepted object and the attempts that it took."""

    value: _Model
    attempts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class _Task(Generic[_Model]):
    """What is to be done, with everything that stays the same over the attempts."""

    model: type[_Model]
    source: str
    messages: tuple[Mapping[str, str], ...]
    grounding: Any
    max_attempts: int
    max_tokens: int | None
    more: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _WhoIsIt:
    """A step: ask the server for its models."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """A step: a chat completion with these arguments."""

    arguments: dict[str, Any]


#: The loop without its input and output: it yields steps and is sent their results.
_Steps: TypeAlias = Generator[_WhoIsIt | _Ask, Any, Extraction[_Model]]


def extract(client: OpenAI, model_class: type[_Model], source: str, **options: Any) -> _Model:
    """The object that `source` states.

    Args:
        client: the openai SDK's, for any server of its API that knows `json_schema`.
        model_class: the pydantic model of the object; `x-ground` in a field's
            `json_schema_extra` says how the field is to be grounded.
        source: the text; it is the user's message, and what values are grounded in.
        options: `model` (name; default "default"), `instructions` (the system message),
            `grounding` (as the server's request field; default: what the schema says),
            `max_attempts` (4), `max_tokens` (512; of the first attempt), `side` ("auto"),
            and anything else for `chat.completions.create`, such as `temperature` (default 0).

    Raises:
        ExtractionFailed: no attempt was good enough.
        openai.APIError: the server could not be asked, or refused the request.
    """
    return extraction(client, model_class, source, **options).value


def extraction(
    client: OpenAI, model_class: type[_Model], source: str, **options: Any
) -> Extraction[_Model]:
    """As `extract`, with the attempts that it took."""
    from openai import APIStatusError

    side = _side(client, options)
    steps = _steps(_task(model_class, source, options), side)
    result: Any = None
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, _WhoIsIt):
                result = _KNOWN[client] = _is_ours(client.models.list().data)
                continue
            try:
                result = client.chat.completions.create(**step.arguments)
            except APIStatusError as error:
                if (failure := _failure(error)) is not None:
                    raise failure from error
                raise
    except StopIteration as end:
        return cast("Extraction[_Model]", end.value)


async def aextract(
    client: AsyncOpenAI, model_class: type[_Model], source: str, **options: Any
) -> _Model:
    """As `extract`, for the SDK's asynchronous client."""
    from openai import APIStatusError

    side = _side(client, options)
    steps = _steps(_task(model_class, source, options), side)
    result: Any = None
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, _WhoIsIt):
                result = _KNOWN[client] = _is_ours((await client.models.list()).data)
                continue
            try:
                result = await client.chat.completions.create(**step.arguments)
            except APIStatusError as error:
                if (failure := _failure(error)) is not None:
                    raise failure from error
                raise
    except StopIteration as end:
        return cast("Extraction[_Model]", end.value).value


def _side(client: object, options: dict[str, Any]) -> Side:
    side: Side = options.pop("side", "auto")
    if side not in ("auto", "server", "client"):
        raise ValueError(f"side must be 'auto', 'server' or 'client', not {side!r}")
    if side == "auto" and client in _KNOWN:
        return "server" if _KNOWN[client] else "client"
    return side


def _task(model_class: type[_Model], source: str, options: dict[str, Any]) -> _Task[_Model]:
    instructions = options.pop("instructions", INSTRUCTIONS)
    return _Task(
        model=model_class,
        source=source,
        messages=(
            {"role": "system", "content": instructions},
            {"role": "user", "content": source},
        ),
        grounding=options.pop("grounding", None),
        max_attempts=options.pop("max_attempts", 4),
        max_tokens=options.pop("max_tokens", 512),
        more={"model": "default", "temperature": 0, **options},
    )


def _is_ours(models: Sequence[Any]) -> bool:
    return any(model.owned_by == "gabarito" for model in models)


def _steps(task: _Task[_Model], side: Side) -> _Steps[_Model]:
    if side == "auto":
        side = "server" if (yield _WhoIsIt()) else "client"
    if side == "server":
        return (yield from _by_server(task))
    return (yield from _by_client(task))


# --- the loop on this side ------------------------------------------------------------------------


def _by_client(task: _Task[_Model]) -> _Steps[_Model]:
    schema = _schema(task.model)
    grounded = rules(schema, task.grounding)
    source = Source(task.source)
    loop = RepairLoop(max_attempts=task.max_attempts, max_tokens=task.max_tokens)
    added: Sequence[Mapping[str, str]] = ()
    plain = _without_extensions(schema)
    while True:
        answer: ChatCompletion = yield _Ask(_arguments(task, plain, added, loop.budget))
        content = _content(answer, loop.attempts)
        cut = answer.choices[0].finish_reason == "length"
        value, reasons = (None, (_TRUNCATED,)) if cut else _checked(task.model, content)
        if not reasons:
            faults = check(json.loads(content), grounded, source)
            reasons = tuple(
                Reason("ungrounded", fault.reason, fault.pointer, {"value": fault.value})
                for fault in faults
            )
        tokens = answer.usage.completion_tokens if answer.usage else 0
        step = loop.next(content, reasons, tokens=tokens, room=_ROOM)
        if isinstance(step, Accept):
            assert value is not None
            return Extraction(value, _shown(loop.attempts))
        if isinstance(step, GiveUp):
            raise ExtractionFailed(step.failure, _because(step), _shown(loop.attempts))
        added = step.messages


_TRUNCATED = Reason("truncated", "the answer was cut off by its token budget")


def _because(step: GiveUp) -> str:
    return f"The extraction failed: {step.message}."


def _shown(attempts: Sequence[Attempt]) -> tuple[Mapping[str, Any], ...]:
    return tuple(attempt.as_dict() for attempt in attempts)


def _content(answer: ChatCompletion, attempts: Sequence[Attempt]) -> str:
    """The answer's text.

    Raises:
        ExtractionFailed: the model refused, or a filter took the answer away.
    """
    choice = answer.choices[0]
    refusal = choice.message.refusal
    if refusal or choice.finish_reason == "content_filter":
        why = refusal or "a content filter stopped the answer"
        raise ExtractionFailed("refused", f"The model declined: {why}", _shown(attempts))
    return choice.message.content or ""


def _checked(model: type[_Model], content: str) -> tuple[_Model | None, tuple[Reason, ...]]:
    """The object, or what the pydantic model has against it."""
    try:
        return model.model_validate_json(content), ()
    except ValidationError as error:
        return None, tuple(
            Reason("invalid", each["msg"], pointer_of(each["loc"]), {"keyword": each["type"]})
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        )


# --- the loop on the server's side ----------------------------------------------------------------


def _by_server(task: _Task[_Model]) -> _Steps[_Model]:
    """The server repairs what it can judge; the model's own validators are asked here."""
    schema = _schema(task.model)
    loop = RepairLoop(max_attempts=task.max_attempts, max_tokens=task.max_tokens)
    added: Sequence[Mapping[str, str]] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    while True:
        left = task.max_attempts - len(history)
        arguments = _arguments(task, schema, added, loop.budget)
        body = dict(arguments.get("extra_body") or {})
        body |= {"repair": {"max_attempts": left}, "source": task.source}
        body |= {"on_ungrounded": "repair"}
        if task.grounding is not None:
            body["grounding"] = task.grounding
        answer: ChatCompletion = yield _Ask({**arguments, "extra_body": body})
        content = _content(answer, loop.attempts)
        value, reasons = _checked(task.model, content)
        tokens = answer.usage.completion_tokens if answer.usage else 0
        step = loop.next(content, reasons, tokens=tokens, room=_ROOM)
        history += _rejected(answer)
        history += ({**loop.attempts[-1].as_dict(), "attempt": len(history) + 1},)
        if isinstance(step, Accept):
            assert value is not None
            return Extraction(value, history)
        if isinstance(step, GiveUp) or len(history) >= task.max_attempts:
            step = step if isinstance(step, GiveUp) else GiveUp("attempts_exhausted")
            raise ExtractionFailed(step.failure, _because(step), history)
        added = step.messages


def _rejected(answer: ChatCompletion) -> tuple[Mapping[str, Any], ...]:
    """The attempts that the server rejected before this answer."""
    facts = (answer.model_extra or {}).get("gabarito") or {}
    return tuple((facts.get("repair") or {}).get("rejected") or ())


def _failure(error: Any) -> ExtractionFailed | None:
    """The failure of the server's own loop; None: the error is another one."""
    body = error.body if isinstance(error.body, dict) else {}
    if body.get("code") != "repair_failed":
        return None
    return ExtractionFailed(
        str(body.get("reason")), str(body.get("message")), body.get("attempts") or ()
    )


# --- the request ----------------------------------------------------------------------------------


def _arguments(
    task: _Task[_Model],
    schema: dict[str, Any],
    added: Sequence[Mapping[str, str]],
    budget: int | None,
) -> dict[str, Any]:
    named = {"name": task.model.__name__[:64], "schema": schema, "strict": True}
    limit = {} if budget is None else {"max_tokens": budget}
    return {
        **task.more,
        **limit,
        "messages": [*task.messages, *added],
        "response_format": {"type": "json_schema", "json_schema": named},
    }


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """The model's schema as strict structured outputs want it: every property required."""
    from openai import pydantic_function_tool

    parameters = pydantic_function_tool(model)["function"]["parameters"]
    return dict(parameters)


def _without_extensions(value: Any, *, names: bool = False) -> Any:
    """A schema without `x-...` keywords, which other servers may refuse.

    `names`: the keys are names of properties or definitions, and no keywords.
    """
    if isinstance(value, list):
        return [_without_extensions(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_extensions(each, names=not names and key in _NAMED)
        for key, each in value.items()
        if names or not key.startswith("x-")
    }
