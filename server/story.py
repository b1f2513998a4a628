"""A short story about form and truth, told by a scripted model through the whole server.

    alone     the model writes what it has learnt: prose first, and an age in words
    bound     a schema makes it write digits; it knows only wrong ones
    checked   the answer is held against its source, and asked for again, until it repeats itself
    willing   a model that does write digits passes as soon as its budget is large enough

Each scene is one HTTP request to an application in this process, so what is shown is what a client
sees. Invariant: the same story gives the same scenes, every time.

Read next: `config/toy.json`, the story; `server/engine/toy.py`, the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from server.api.app import create_app
from server.engine.engine import LocalEngine
from server.engine.toy import ToyModel, ToySpecError
from server.settings import Settings

#: Attempts of the scenes that are checked.
MAX_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Scene:
    """One request and what came of it.

    name      `alone`, `bound`, `checked` or `willing`
    request   the body
    status    of the HTTP answer
    response  its body
    """

    name: str
    request: dict[str, Any]
    status: int
    response: dict[str, Any]

    @property
    def text(self) -> str | None:
        """The answer; None if there is none."""
        if self.status != 200:
            return None
        text: str = self.response["choices"][0]["message"]["content"]
        return text

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Those that were rejected; of a failure all."""
        found: list[dict[str, Any]]
        if self.status == 200:
            found = self.response.get("gabarito", {}).get("repair", {}).get("rejected", [])
        else:
            found = self.response["error"].get("attempts", [])
        return found


def scenes(spec: Mapping[str, Any], settings: Settings, *, max_tokens: int) -> Iterator[Scene]:
    """Tell the story.

    Args:
        spec: the scripted model (see `ToyModel.from_spec`), its `schema`, what it is asked
            (`prompt`, else the source) and the `source`; `willing_answer` is what the model of the
            last scene has learnt instead of `model.answer`; without it there is no such scene.
        max_tokens: the budget of the first attempt where the answer is checked.

    Raises:
        ToySpecError: the story lacks something.
    """
    try:
        source, schema = str(spec["source"]), spec["schema"]
    except KeyError as error:
        raise ToySpecError(f"the story lacks {error}") from error
    message = {"role": "user", "content": str(spec.get("prompt", source))}
    free: dict[str, Any] = {"model": "default", "messages": [message], "temperature": 0}
    named = {"name": "answer", "schema": schema, "strict": True}
    bound = {**free, "response_format": {"type": "json_schema", "json_schema": named}}
    checked = {
        **bound,
        "max_tokens": max_tokens,
        "source": source,
        "grounding": "auto",
        "repair": {"max_attempts": MAX_ATTEMPTS},
    }
    yield _scene("alone", free, spec, settings)
    yield _scene("bound", bound, spec, settings)
    yield _scene("checked", checked, spec, settings)
    if spec.get("willing_answer") is not None:
        willing = {**spec, "model": {**spec["model"], "answer": str(spec["willing_answer"])}}
        yield _scene("willing", checked, willing, settings)


def _scene(
    name: str, request: dict[str, Any], spec: Mapping[str, Any], settings: Settings
) -> Scene:
    engine = LocalEngine(ToyModel.from_spec(spec), settings.engine)
    try:
        response = asyncio.run(_post(engine, settings, request))
    finally:
        engine.close()
    return Scene(name, request, response.status_code, response.json())


async def _post(engine: LocalEngine, settings: Settings, request: dict[str, Any]) -> httpx.Response:
    transport = httpx.ASGITransport(app=create_app(settings, engine=engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as client:
        return await client.post("/v1/chat/completions", json=request)
