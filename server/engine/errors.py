"""The engine's errors, one tree.

    EngineError
    ├── ModelLoadError            the model file cannot be used            (at start)
    ├── InvalidRequestError       a value is out of range (a ValueError)   (at submit)
    ├── BudgetTooSmallError       no valid answer has so few tokens        (at submit)
    ├── ContextOverflowError      the prompt does not fit the context      (at submit)
    ├── QueueFullError            too many requests wait already           (at submit)
    ├── QueueTimeoutError         it has waited too long for a slot        (as Failed)
    ├── EngineClosedError         the engine takes no more requests        (at submit, or as Failed)
    ├── DecodeError               the model could not evaluate a batch     (as Failed)
    ├── BadLogitsError            the model returned NaN or infinity       (as Failed)
    └── IntegrityError            the bookkeeping disagrees with the model (a bug of ours)

Invariant: whatever leaves `server.engine` is one of these or an error of `grammar`
(`NoLegalContinuation`); everything else is a bug. Read next: `types.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grammar import Fewest


class EngineError(Exception):
    """Base of every error raised or delivered by the engine."""


class ModelLoadError(EngineError):
    """The model file is missing, is not a usable GGUF, or does not fit into memory."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot load the model {path}: {reason}")
        self.path = path
        self.reason = reason


class InvalidRequestError(EngineError, ValueError):
    """A value of a generation request is out of range; `field` names it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class BudgetTooSmallError(EngineError):
    """The answer is to be closed within its tokens, and every valid one has more.

    `needed`: no valid answer has fewer tokens, and `is_exact` says that one has so many; `allowed`:
    what the request or (`is_context`) the rest of the context leaves.
    """

    def __init__(self, fewest: Fewest, allowed: int, *, is_context: bool) -> None:
        limit = "the context leaves" if is_context else "max_tokens allows"
        self.needed = fewest.at_least
        self.is_exact = fewest.is_exact
        needs = "needs" if self.is_exact else "needs at least"
        super().__init__(
            f"the shortest valid answer {needs} {self.needed} tokens, and {limit} {allowed}"
        )
        self.allowed = allowed
        self.is_context = is_context


class ContextOverflowError(EngineError):
    """The prompt leaves no room in the context for even one token of an answer."""

    def __init__(self, prompt_tokens: int, n_ctx: int) -> None:
        super().__init__(
            f"the prompt has {prompt_tokens} tokens; the context holds {n_ctx}, "
            "and at least one must be left for the answer"
        )
        self.prompt_tokens = prompt_tokens
        self.n_ctx = n_ctx


class QueueFullError(EngineError):
    """The bounded queue is full, or the client's part of it (`of_client`); `retry_after_seconds`
    guesses when a place will be free."""

    def __init__(self, retry_after_seconds: int, *, of_client: bool = False) -> None:
        whose = "too many requests of this client" if of_client else "too many requests"
        super().__init__(f"{whose} are waiting; try again in {retry_after_seconds} s")
        self.of_client = of_client
        self.retry_after_seconds = retry_after_seconds


class QueueTimeoutError(EngineError):
    """The request waited for a slot longer than the settings allow."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the request has waited for more than {seconds:g} s")
        self.seconds = seconds


class EngineClosedError(EngineError):
    """The engine was closed, or its thread ended because of a failure (then `__cause__` is set)."""


class DecodeError(EngineError):
    """The model could not evaluate a batch. `status` is the model's own code, if it has one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class BadLogitsError(EngineError):
    """The model returned logits that are not finite numbers, so that nothing can be sampled."""


class IntegrityError(EngineError):
    """Slots or cached positions are not what the bookkeeping says."""
