"""What the engine needs from a language model, and nothing more.

`LlamaModel` (llama.py) and `ToyModel` (toy.py) implement it. A model is a table of sequences,
each a row of cells; `decode` fills cells and returns logits:

    sequence s owns the positions [0, kv_length(s)), without gaps
    decode      appends at kv_length(s), in order
    kv_remove   cuts [p0, p1) out, at the end of a sequence only (p1 = -1: to the end)
    kv_copy     gives an empty sequence the beginning of another; the two share these cells

Invariant: at most `n_ctx` cells are in use by all sequences together, shared ones counted once;
the scheduler sees to that.
`decode`, the `kv_*` methods and `close` belong to one thread; `tokenize` and `token_text` may be
called from any. Read next: `scheduler.py`, the only caller of `decode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from grammar import Vocabulary

Logits = NDArray[np.float32]


class BatchItem(NamedTuple):
    """A token to evaluate at position `pos` of sequence `seq`; is its row of `logits` wanted?"""

    token: int
    pos: int
    seq: int
    logits: bool


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model file says about itself. Sizes in bytes; `n_ctx_train` in tokens."""

    name: str
    path: str
    architecture: str
    n_ctx_train: int
    n_params: int
    size_bytes: int
    chat_template: str | None
    bos_token: str
    eos_token: str
    add_bos: bool
    eos_ids: frozenset[int]
    bos_id: int | None = None
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class LanguageModel(Protocol):
    """A model with a key-value cache shared by `n_seq_max` sequences."""

    @property
    def n_ctx(self) -> int:
        """Cells in the cache, shared by all sequences."""

    @property
    def n_seq_max(self) -> int:
        """How many sequences there are; their ids are 0..n_seq_max-1."""

    @property
    def n_threads(self) -> int:
        """How many threads `decode` computes on, the caller's included."""

    @property
    def vocab_size(self) -> int:
        """Length of a row of logits."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens' bytes, the special tokens, the end tokens."""

    @property
    def info(self) -> ModelInfo:
        """The model's own description."""

    def tokenize(self, text: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """The model's own split of UTF-8 text.

        `add_special` adds what the model wants around a prompt (a begin token, say);
        `parse_special` recognises special tokens by their text.
        """

    def token_text(self, token: int, *, special: bool = True) -> bytes:
        """A token's bytes; a special token's text if `special`, else nothing."""

    def decode(self, batch: Sequence[BatchItem]) -> Logits:
        """Evaluate a batch; returns float32 [wanted rows, vocab_size] in batch order.

        The rows are valid until the next call and must not be written to. Raises `DecodeError`;
        the cells of the batch's sequences are then undefined and must be removed.
        """

    def kv_remove(self, seq: int, p0: int, p1: int) -> bool:
        """Forget the positions [p0, p1) of a sequence (p1 = -1: all from p0).

        False if the model cannot forget a part (then nothing was removed); `kv_remove(s, 0, -1)`
        always succeeds.
        """

    def kv_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        """Share the positions [p0, p1) of `src` with the empty sequence `dst`.

        Afterwards `kv_length(dst)` is p1; if it is not, the model cannot share a part of a
        sequence, and `dst` must be emptied.
        """

    def kv_length(self, seq: int) -> int:
        """One past the highest position held for a sequence; 0 when it is empty."""

    def close(self) -> None:
        """Free the model. Further calls do nothing."""
