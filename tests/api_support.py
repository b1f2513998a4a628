"""Test doubles for the HTTP layer: an engine that says what a test tells it to, and ASGI by hand.

`ScriptedEngine` has a byte vocabulary (token i is byte i) plus a few special tokens, so that what
a prompt became can be read off its tokens.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from grammar import Vocabulary
from server.api.app import create_app
from server.engine.engine import LocalEngine
from server.engine.generation import Generation
from server.engine.model import ModelInfo
from server.engine.toy import ToyModel
from server.engine.types import (
    EngineStats,
    Finished,
    GenerationEvent,
    GenerationRequest,
    TextPiece,
    Timings,
    TokenRecord,
    Usage,
)
from server.settings import Settings

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>")
EOS = 257

#: What every server calls its model, too.
MODEL = "default"

Script = Callable[[GenerationRequest], list[GenerationEvent]]

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def piece(text: str, logprob: float | None = None) -> TextPiece:
    """A piece of one token."""
    data = text.encode()
    top = () if logprob is None else ((0, data, logprob),)
    return TextPiece(text, (TokenRecord(0, data, logprob, top),))


def finished(
    reason: str = "stop", tokens: int = 3, cached: int = 0, stop_sequence: str | None = None
) -> Finished:
    """A regular end."""
    return Finished(
        reason,  # type: ignore[arg-type]
        stop_sequence,
        Usage(prompt_tokens=7, completion_tokens=tokens, cached_tokens=cached),
        Timings(
            queue_ms=1.0,
            prompt_ms=2.0,
            decode_ms=6.0,
            mask_ms=1.5,
            sample_ms=0.5,
            tokens=tokens,
            forced_tokens=1,
        ),
    )


def saying(*texts: str, reason: str = "stop") -> Script:
    """A script that gives the same pieces to every request."""
    return lambda _: [*(piece(text) for text in texts), finished(reason, len(texts))]


class ScriptedEngine:
    """An `Engine` whose generations say what `script` returns, or what a test delivers later."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        chat_template: str | None = TEMPLATE,
        refuse: Callable[[GenerationRequest], None] = lambda _: None,
    ) -> None:
        self.script = script
        self.refuse = refuse
        self.generations: list[Generation] = []
        self.submitted = asyncio.Event()
        self.closed = False
        tokens = [bytes([i]) for i in range(256)] + [text.encode() for text in SPECIAL]
        special = {256 + i: text for i, text in enumerate(SPECIAL)}
        self.vocabulary = Vocabulary(tokens, special, {EOS})
        self.info = ModelInfo(
            name="scripted",
            path="",
            architecture="none",
            n_ctx_train=1000,
            n_params=0,
            size_bytes=0,
            chat_template=chat_template,
            bos_token="<|im_start|>",
            eos_token="<|im_end|>",
            add_bos=False,
            eos_ids=frozenset({EOS}),
        )
        self.n_ctx = 1000

    @property
    def ready(self) -> bool:
        return not self.closed

    def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        tokens: list[int] = [256] if add_special else []
        while text:
            found = next((s for s in SPECIAL if parse_special and text.startswith(s)), None)
            if found is None:
                tokens += text[0].encode()
                text = text[1:]
            else:
                tokens.append(256 + SPECIAL.index(found))
                text = text[len(found) :]
        return tokens

    def detokenize(self, ids: Iterable[int]) -> str:
        parts = [bytes([i]) if i < 256 else SPECIAL[i - 256].encode() for i in ids]
        return b"".join(parts).decode("utf-8", "replace")

    def submit(self, request: GenerationRequest) -> Generation:
        self.refuse(request)
        generation = Generation(request, asyncio.get_running_loop(), lambda: None)
        self.generations.append(generation)
        if self.script is not None:
            generation.deliver(self.script(request))
        self.submitted.set()
        return generation

    def stats(self) -> EngineStats:
        running = sum(not g.cancelled for g in self.generations)
        return EngineStats(4, running, 0, 1000, 0, 0, len(self.generations), 0, 0, 0, 0, 0, 0, 0)

    def close(self) -> None:
        self.closed = True

    @property
    def last(self) -> GenerationRequest:
        """The request that was submitted last."""
        return self.generations[-1].request


def settings(**server: Any) -> Settings:
    """Default settings, the model served as `toy`."""
    return Settings.model_validate({"server": {"served_name": "toy", **server}})


def app_with(engine: ScriptedEngine, **server: Any) -> FastAPI:
    """An application over a scripted engine."""
    return create_app(settings(**server), engine=engine)


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client that talks to the application without a socket."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@asynccontextmanager
async def toy_client(spec: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application over the toy model of this description."""
    engine = LocalEngine(ToyModel.from_spec(spec))
    try:
        async with client_of(create_app(settings(), engine=engine)) as client:
            yield client
    finally:
        engine.close()


def odd_template(directory: Path) -> str:
    """A file with a response template whose calls can't be written by a grammar: the opener
    repeats itself."""
    fields = {
        "tool_calls": {
            "open_pattern": "(?P<mark>[@#])call(?P=mark)",
            "close": "!",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|im_end|>"},
    }
    path = directory / "odd.json"
    path.write_text(json.dumps({"start_anchor": "<|im_start|>assistant\n", "fields": fields}))
    return str(path)


def chat(content: Any = "hi", **fields: Any) -> dict[str, Any]:
    """A chat request's body."""
    return {"model": "toy", "messages": [{"role": "user", "content": content}], **fields}


def user(content: str) -> Any:
    """A conversation of one message."""
    return [{"role": "user", "content": content}]


def strict_format(schema: Any) -> Any:
    """A strict `response_format`."""
    return {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event: its name (None for an ordinary one) and its data."""

    name: str | None
    data: Any


def events_of(body: str) -> list[Event]:
    """Parse an SSE body strictly: every line must be a comment, `event:` or `data:`."""
    events: list[Event] = []
    assert body.endswith("\n\n")
    for block in body[:-2].split("\n\n"):
        name, data = None, None
        for line in block.strip("\n").split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                assert data is None, "one line of data an event"
                data = line.removeprefix("data: ")
            else:
                assert line.startswith(":"), f"not SSE: {line!r}"
        if data is not None:
            events.append(Event(name, data if data == "[DONE]" else json.loads(data)))
    return events


@dataclass
class HandDriven:
    """One HTTP exchange in plain ASGI: the test sends messages, and sees what comes back."""

    app: FastAPI
    path: str
    body: bytes
    sent: list[dict[str, Any]] = field(default_factory=list)
    inbox: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    headers: list[tuple[bytes, bytes]] = field(
        default_factory=lambda: [(b"content-type", b"application/json")]
    )

    async def run(self) -> None:
        """Serve the exchange to its end."""
        self.inbox.put_nowait({"type": "http.request", "body": self.body, "more_body": False})
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "headers": self.headers,
            "scheme": "http",
            "server": ("test", 80),
            "client": ("test", 1),
        }

        async def send(message: Any) -> None:
            self.sent.append(message)

        await self.app(scope, self.inbox.get, send)

    def disconnect(self) -> None:
        """The client goes away."""
        self.inbox.put_nowait({"type": "http.disconnect"})

    @property
    def text(self) -> str:
        """The body so far."""
        parts = [m["body"] for m in self.sent if m["type"] == "http.response.body"]
        return b"".join(parts).decode()


async def soon(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until a condition holds; fails after a while."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)
