"""`GET /metrics`: figures for Prometheus, kept by its own client library.

Three sources: requests are counted as they are answered (`Counting`), answers when they end
(`answer`), and what the engine and the grammar cache count themselves is read at a scrape. Names
follow Prometheus's rules: base units, `_total` for counters.

Invariant: nothing here waits for the engine; a scrape costs some look-ups.

Read next: `server/api/app.py`, which hangs it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response
from starlette.routing import Match, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.engine.types import EngineStats, Finished

_PREFIX = "gabarito"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_MICROSECONDS = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 0.1)
_NATS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)

#: Of the engine's snapshot: what can go down again, with its help text, …
_GAUGES: Mapping[str, str] = {
    "slots": "Answers that can be generated at once.",
    "slots_used": "Answers that are being generated.",
    "queued": "Requests that wait for a slot.",
    "kv_cells": "Cells of the model's cache.",
    "kv_cells_used": "Cells of the model's cache that hold something.",
}
#: … and what only grows.
_TOTALS: Mapping[str, str] = {
    "steps": "Batches evaluated.",
    "requests": "Generations begun.",
    "finished": "Generations that came to a regular end.",
    "failed": "Generations that failed.",
    "cancelled": "Generations that were cancelled.",
    "preempted": "Times that a generation lost its cells to an older one.",
    "prompt_tokens": "Tokens of prompts.",
    "cached_tokens": "Tokens of prompts that were not evaluated again.",
    "completion_tokens": "Tokens generated.",
    "step_seconds": "Time spent in steps.",
    "decode_seconds": "Time spent inside the model.",
}


class Metrics:
    """All figures of one server. `stats`, `cache` and `withheld` read what others count; None:
    nothing yet."""

    def __init__(
        self,
        stats: Callable[[], EngineStats | None],
        cache: Callable[[], Mapping[str, int] | None],
        withheld: Callable[[], int | None],
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Snapshots(stats, cache, withheld))
        registry = self._registry
        self.requests = Counter(
            f"{_PREFIX}_http_requests",
            "HTTP requests answered.",
            ["endpoint", "status"],
            registry=registry,
        )
        self._answers = Counter(
            f"{_PREFIX}_answers",
            "Answers by how they ended.",
            ["finish_reason", "steered"],
            registry=registry,
        )
        self._forced = Counter(
            f"{_PREFIX}_forced_tokens", "Tokens taken without a step.", registry=registry
        )
        self._forced_share = self._histogram(
            "forced_share", "Share of an answer's tokens that were taken without a step.", _SHARES
        )
        told = "of answers with diagnostics"
        self._kl = self._histogram(
            "kl_nats_per_token",
            f"Mean KL of the masked from the raw distribution, {told}.",
            _NATS,
        )
        self._total_kl = self._histogram("kl_nats", f"The same in total, {told}.", _NATS)
        self._overruled_share = self._histogram(
            "overruled_share",
            f"Share of the tokens where the model's favourite was illegal, {told}.",
            _SHARES,
        )
        self._legal_mass = self._histogram(
            "legal_mass",
            f"Probability that the model gave to legal tokens, in the mean, {told}.",
            _SHARES,
        )
        self._splits = Counter(
            f"{_PREFIX}_answer_splits",
            f"Whether the tokens are the tokenizer's own split, {told}.",
            ["canonical"],
            registry=registry,
        )
        self._queue = self._histogram("queue_seconds", "From a request to its slot.", _SECONDS)
        self._first = self._histogram(
            "first_token_seconds", "From a request to its first logits.", _SECONDS
        )
        self._decode = self._histogram(
            "token_seconds", "Time of a generated token, in the mean of an answer.", _SECONDS
        )
        self._mask = self._histogram(
            "mask_seconds", "Grammar's part of a token's time, in the mean of an answer.",
            _MICROSECONDS,
        )  # fmt: skip

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}", text, buckets=buckets, registry=self._registry)

    def answer(self, end: Finished) -> None:
        """A generation has come to its regular end."""
        steered = "no" if end.steered is None else end.steered.cause
        self._answers.labels(end.reason, steered).inc()
        timings = end.timings
        self._queue.observe(timings.queue_ms / 1e3)
        self._first.observe((timings.queue_ms + timings.prompt_ms) / 1e3)
        if timings.tokens:
            self._forced.inc(timings.forced_tokens)
            self._forced_share.observe(timings.forced_tokens / timings.tokens)
            self._decode.observe(timings.decode_ms / 1e3 / timings.tokens)
            self._mask.observe(timings.mask_ms / 1e3 / timings.tokens)
        found = end.diagnostics
        if found is not None and found.tokens:
            count = len(found.tokens)
            self._kl.observe(found.total_kl / count)
            self._total_kl.observe(found.total_kl)
            self._overruled_share.observe(found.overruled_share)
            self._legal_mass.observe(sum(one.step.legal_mass for one in found.tokens) / count)
            split = {True: "yes", False: "no", None: "unknown"}[found.canonical]
            self._splits.labels(split).inc()

    def response(self) -> Response:
        """The figures in Prometheus's text format."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class _Snapshots:
    """Reads the engine's and the cache's own counts when they are asked for."""

    def __init__(
        self,
        stats: Callable[[], EngineStats | None],
        cache: Callable[[], Mapping[str, int] | None],
        withheld: Callable[[], int | None],
    ) -> None:
        self._stats = stats
        self._cache = cache
        self._withheld = withheld

    def collect(self) -> Iterable[Metric]:
        """Called by the library at every scrape."""
        stats = self._stats()
        if stats is not None:
            for name, text in _GAUGES.items():
                value = getattr(stats, name)
                yield GaugeMetricFamily(f"{_PREFIX}_{name}", text, value)
            for name, text in _TOTALS.items():
                value = getattr(stats, name)
                yield CounterMetricFamily(f"{_PREFIX}_engine_{name}", text, value)
        withheld = self._withheld()
        if withheld is not None:
            text = "Answers withheld, since they were not what the grammar should have made them."
            yield CounterMetricFamily(f"{_PREFIX}_answers_withheld", text, withheld)
        cache = self._cache()
        if cache is not None:
            for name, value in cache.items():
                full = f"{_PREFIX}_grammar_cache_{name}"
                text = f"Grammar cache: {name}."
                if name in ("entries", "bytes"):
                    yield GaugeMetricFamily(full, text, value)
                else:
                    yield CounterMetricFamily(full, text, value)


class Counting:
    """ASGI middleware: counts requests by route and status; what no route takes is `other`."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._requests = metrics.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests.labels(_endpoint(scope), str(message["status"])).inc()
            await send(message)

        await self._app(scope, receive, counting_send)


def _endpoint(scope: Scope) -> str:
    """The path of the route that serves a request, with its parameters by name."""
    router: Any = getattr(scope.get("app"), "router", None)
    if isinstance(router, Router):
        for route in router.routes:
            match, _ = route.matches(scope)
            if match is not Match.NONE:
                return str(getattr(route, "path", "other"))
    return "other"
