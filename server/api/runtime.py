"""The loaded model and what is made once for it; and the way there.

    LOADING ──▶ READY ──▶ CLOSED
        └─────▶ FAILED (stays; `/ready` says why)

Invariant: a `Served` is complete and never changes; handlers get one from
`Runtime.served`, or a 503.
Loading runs in its own thread, so that `/health` answers from the first moment.

Read next: `server/api/chat.py`.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from grammar import Budget, GrammarCache
from grammar.warm import warm_up
from parsing import ResponseTemplate
from server.api.errors import ApiError, NotReadyError
from server.api.metrics import Metrics
from server.api.structured import FormatCompiler
from server.catalogue import served_name
from server.engine.engine import Engine
from server.engine.loading import load_engine
from server.engine.types import EngineStats, Finished
from server.fetch import cache_dir, resolve_model
from server.lint import DIALECTS_FILE, Dialect, load_dialects
from server.prompt import ChatTemplate
from server.settings import Settings
from server.templates import AnswerTemplates, answer_templates_for, chat_template_for
from server.toolprompt import FILE as TOOL_PROMPT
from server.toolprompt import ToolPrompt

LOGGER = logging.getLogger("gabarito.api")

#: The name under which the served model can always be asked for.
ALIAS = "default"

#: What `Retry-After` says while the model is being loaded, and after that has failed, in seconds.
_RETRY_LOADING = 2
_RETRY_FAILED = 60

#: Where the vocabularies' byte tries are kept, inside the cache directory.
TRIES = "tries"

#: Young objects are looked through often, which takes a millisecond or two, all others next to
#: never: nothing that a grammar holds refers to itself in a circle.
_GC_THRESHOLDS = (10_000, 1_000, 1_000)


class State(StrEnum):
    """Where the runtime stands."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Served:
    """One loaded model, as the handlers need it.

    templates    the response templates; a request may ask for one by its name
    tool_prompt  how models whose chat template knows no tools are told of them
    dialects     what is known of other servers' JSON Schema, by name
    fingerprint  `system_fingerprint` of the answers: changes with the model
    created      seconds since the epoch
    observe      is told of the regular end of every generation
    """

    name: str
    engine: Engine
    chat_template: ChatTemplate
    templates: AnswerTemplates
    tool_prompt: ToolPrompt
    formats: FormatCompiler
    dialects: Mapping[str, Dialect]
    settings: Settings
    fingerprint: str
    created: int
    observe: Callable[[Finished], None]

    def require_model(self, name: str) -> None:
        """Check the `model` of a request.

        Raises:
            ApiError: 404, it isn't the served one.
        """
        if name not in (self.name, ALIAS):
            raise ApiError(
                404,
                f"The model {name!r} does not exist here; this server serves {self.name!r} "
                f"(also called {ALIAS!r}).",
                param="model",
                code="model_not_found",
            )

    def template_named(self, name: str | None, *, tools: bool) -> ResponseTemplate:
        """The response template that a request asks for; None: the model's own.

        Args:
            tools: whether the request offers tools that may be called.

        Raises:
            ApiError: 400, there is none of that name.
        """
        if name is not None and name not in self.templates.named:
            raise ApiError(
                400,
                f"Invalid value for 'response_template': there is no template {name!r} here; there "
                f"are: {', '.join(sorted(self.templates.named))}.",
                param="response_template",
                code="invalid_value",
            )
        return self.templates.get(name, tools=tools)


def local_runtime(settings: Settings, engine: Engine | None = None) -> Runtime:
    """A runtime for `engine`, or else for the model of the settings."""

    dialects = load_dialects(settings.config_file(DIALECTS_FILE))

    def load() -> Served:
        name, observe = served_name(settings), runtime.metrics.answer
        if engine is not None:
            return serve_engine(name, engine, settings, dialects, observe)
        served = serve_engine(name, _load_engine(settings), settings, dialects, observe)
        _settle(served)
        return served

    runtime = Runtime(
        load,
        max_body_bytes=settings.server.max_body_bytes,
        dialects=dialects,
    )
    return runtime


def _load_engine(settings: Settings) -> Engine:
    """Fetch the model if need be, and load it."""
    path = resolve_model(settings)
    return load_engine(path, settings.engine, trie_dir=cache_dir(settings) / TRIES)


def _settle(served: Served) -> None:
    """Do now what the first request would otherwise wait for, and spare the collector the result.

    What is there by now stays for good: without `gc.freeze` every full collection would walk over
    the vocabulary and its trie, which takes longer than a token.
    """
    warm_up(served.engine.vocabulary)
    served.formats.warm_up()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def serve_engine(
    name: str,
    engine: Engine,
    settings: Settings,
    dialects: Mapping[str, Dialect],
    observe: Callable[[Finished], None],
) -> Served:
    """Make everything that is made once for a loaded engine.

    Raises:
        ValueError: the chat template or the response template can't be used.
    """
    chat_template = chat_template_for(engine, settings)
    limits = Budget(seconds=settings.grammar.compile_seconds)
    if settings.grammar.budget is not None:
        limits = replace(limits, regex_steps=settings.grammar.budget)
    cache = GrammarCache(
        max_bytes=settings.grammar.cache_bytes,
        budget=limits,
    )
    return Served(
        name=name,
        engine=engine,
        chat_template=chat_template,
        templates=answer_templates_for(chat_template, settings),
        tool_prompt=ToolPrompt.of_file(settings.config_file(TOOL_PROMPT)),
        formats=FormatCompiler(
            cache,
            engine.vocabulary,
            settings.grammar.whitespace,
            settings.grammar.key_order,
            settings.grammar.formats,
        ),
        dialects=dialects,
        settings=settings,
        fingerprint="fp_"
        + hashlib.sha256(
            f"{engine.info.name}\0{engine.vocabulary.fingerprint}".encode()
        ).hexdigest()[:12],
        created=int(time.time()),
        observe=observe,
    )


class Runtime:
    """Holds the state, and the `Served` once there is one. Safe to use from any thread."""

    def __init__(
        self,
        load: Callable[[], Served],
        *,
        max_body_bytes: int,
        dialects: Mapping[str, Dialect] | None = None,
    ) -> None:
        """`load` does the work; it is called once, by `start()`.

        `dialects`: what is known of other servers' JSON Schema, by name; needs no model.
        """
        self.max_body_bytes = max_body_bytes
        self.dialects = dict(dialects or {})
        self.metrics = Metrics(self._engine_stats, self._cache_stats, self._withheld)
        self._load = load
        self._lock = threading.Lock()
        self._state = State.LOADING
        self._served: Served | None = None
        self._reason = "The model is being loaded."

    def _engine_stats(self) -> EngineStats | None:
        return None if self._served is None else self._served.engine.stats()

    def _cache_stats(self) -> dict[str, int] | None:
        return None if self._served is None else self._served.formats.stats()

    def _withheld(self) -> int | None:
        return None if self._served is None else self._served.formats.faults

    @property
    def state(self) -> State:
        """Where the runtime stands; READY also means that the engine takes requests."""
        if self._state is State.READY and self._served and not self._served.engine.ready:
            return State.FAILED
        return self._state

    @property
    def served(self) -> Served:
        """The loaded model.

        Raises:
            NotReadyError: there is none (yet).
        """
        state = self.state
        if state is State.READY:
            assert self._served is not None
            return self._served
        if state is State.LOADING:
            raise NotReadyError(
                self._reason, code="model_loading", retry_after_seconds=_RETRY_LOADING
            )
        reason = self._reason if self._state is State.FAILED else "The engine has stopped."
        raise NotReadyError(reason, code="model_failed", retry_after_seconds=_RETRY_FAILED)

    def start(self, *, in_background: bool = True) -> None:
        """Load the model; in a daemon thread unless told otherwise."""
        if in_background:
            threading.Thread(target=self._run, name="gabarito-load", daemon=True).start()
        else:
            self._run()

    def close(self) -> None:
        """Stop the engine, or whatever is being loaded as soon as it is there."""
        with self._lock:
            self._state = State.CLOSED
            served, self._served = self._served, None
        if served is not None:
            served.engine.close()

    def _run(self) -> None:
        try:
            served = self._load()
        except Exception as error:  # whatever it is: the server stays up and says so
            LOGGER.error("the model can't be served", exc_info=error)
            with self._lock:
                if self._state is State.LOADING:
                    self._state = State.FAILED
                    self._reason = f"The model can't be served: {error}"
            return
        with self._lock:
            wanted = self._state is State.LOADING
            if wanted:
                self._served = served
                self._state = State.READY
        if not wanted:
            served.engine.close()
