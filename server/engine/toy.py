"""A scripted model: small enough to follow by hand, stubborn enough to need a grammar.

It has learnt a few documents by heart (one *answer*, some *habits*) and always wants to go on with
one of them. Because it stands behind the same protocol as a real model, the whole engine can be
tested and shown with it (`gabarito trace --toy`).

How it scores a token, given the text so far:

    base    ln((occurrences of the token in the split documents + 1) / (all occurrences + V))
    bonus   take the longest end of the text that occurs in a document; each place where it occurs
            offers the rest of that document; a token that begins such a rest scores the document's
            bonus + 0.1 per character of the token; where nothing is left, the end token scores it
    score   the best of all these. With no text, or none that occurs, the documents are the rests

The text so far begins after the last end token of the sequence: `tokenize(…, add_special=True)`
puts one behind the prompt, so the model ignores what it was asked. Invariant: the logits depend on
that text alone, never on how it was cut into batches. Read next: `model.py` (the protocol).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grammar import Vocabulary
from server.engine.errors import DecodeError
from server.engine.model import BatchItem, Logits, ModelInfo

_END_TEXT = "<eos>"
_CHARACTER_BONUS = 0.1
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}" + _END_TEXT + "{% endif %}"
)


class _Cell:
    """A token at its place; compared by identity, since sequences may share it."""

    __slots__ = ("token",)

    def __init__(self, token: int) -> None:
        self.token = token


class ToySpecError(ValueError):
    """A toy model's description lacks something or contradicts itself."""


class ToyModel:
    """The scripted model; see the module's docstring."""

    def __init__(
        self,
        pieces: Sequence[str],
        documents: Sequence[tuple[str, float]],
        *,
        n_ctx: int = 1024,
        n_seq_max: int = 4,
    ) -> None:
        """`pieces` are all tokens but the last, the end token; `documents` are (text, bonus)."""
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        if len(self._ids) != len(pieces) or not all(pieces):
            raise ToySpecError("the tokens must be distinct and not empty")
        self._pieces = tuple(pieces)
        self._longest = max(map(len, pieces))
        self._end = len(pieces)
        self._documents = tuple(documents)
        self._base = self._base_scores()
        self._cells: list[list[_Cell]] = [[] for _ in range(n_seq_max)]
        self._n_ctx = n_ctx
        self._vocabulary = Vocabulary(
            [piece.encode() for piece in pieces] + [b""], {self._end: _END_TEXT}, {self._end}
        )
        self._info = ModelInfo(
            name="toy",
            path="",
            architecture="toy",
            n_ctx_train=n_ctx,
            n_params=0,
            size_bytes=0,
            chat_template=_CHAT_TEMPLATE,
            bos_token="",
            eos_token=_END_TEXT,
            add_bos=False,
            eos_ids=frozenset({self._end}),
            bos_id=self._end,
        )

    @classmethod
    def from_spec(
        cls, spec: Mapping[str, Any], *, n_ctx: int = 1024, n_seq_max: int = 4
    ) -> ToyModel:
        """Build a model from a description (`config/toy.json` is one).

        The vocabulary is `multi_character_tokens`, then the printable ASCII characters and the
        newline, then the end token. `model.answer` scores 12, each of `model.habits` 8.
        `vocabulary_size`, if given, is checked. Raises `ToySpecError`.
        """
        try:
            pieces = [str(piece) for piece in spec["multi_character_tokens"]]
            answer = str(spec["model"]["answer"])
            habits = [str(habit) for habit in spec["model"]["habits"]]
        except (KeyError, TypeError) as error:
            raise ToySpecError(f"the toy model's description lacks {error}") from error
        pieces += [chr(code) for code in range(32, 127)] + ["\n"]
        pieces = list(dict.fromkeys(pieces))
        expected = spec.get("vocabulary_size", len(pieces) + 1)
        if expected != len(pieces) + 1:
            raise ToySpecError(f"vocabulary_size is {expected}, the tokens are {len(pieces) + 1}")
        documents = [(answer, 12.0)] + [(habit, 8.0) for habit in habits]
        return cls(pieces, documents, n_ctx=n_ctx, n_seq_max=n_seq_max)

    # --- LanguageModel ---------------------------------------------------------------------

    @property
    def n_ctx(self) -> int:
        """Cells shared by all sequences."""
        return self._n_ctx

    @property
    def n_seq_max(self) -> int:
        """Number of sequences."""
        return len(self._cells)

    @property
    def n_threads(self) -> int:
        """It computes on its caller's."""
        return 1

    @property
    def vocab_size(self) -> int:
        """The pieces and the end token."""
        return len(self._pieces) + 1

    @property
    def vocabulary(self) -> Vocabulary:
        """The pieces' bytes; the end token is special."""
        return self._vocabulary

    @property
    def info(self) -> ModelInfo:
        """A description in the form of a model file's."""
        return self._info

    def tokenize(self, text: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """Greedy longest match. What the vocabulary cannot spell becomes a question mark."""
        parts = text.decode("utf-8", "replace").split(_END_TEXT if parse_special else "\0")
        tokens: list[int] = []
        for i, part in enumerate(parts):
            tokens += [self._end] * (i > 0) + self._split(part)
        return tokens + [self._end] * add_special

    def token_text(self, token: int, *, special: bool = True) -> bytes:
        """The piece; the end token's text only if `special`."""
        if token == self._end:
            return _END_TEXT.encode() if special else b""
        return self._pieces[token].encode()

    def decode(self, batch: Sequence[BatchItem]) -> Logits:
        """Append the tokens and score what may follow; float32 [wanted, V]."""
        rows = []
        for token, pos, seq, wanted in batch:
            cells = self._cells[seq]
            if pos != len(cells):
                raise DecodeError(f"position {pos} of sequence {seq} follows {len(cells)} cells")
            cells.append(_Cell(token))
            if wanted:
                rows.append(self._score(self._text_so_far([cell.token for cell in cells])))
        if len(set().union(*self._cells)) > self._n_ctx:
            raise DecodeError("the context is full")
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.vocab_size)

    def kv_remove(self, seq: int, p0: int, p1: int) -> bool:
        """Forget the end of a sequence."""
        cells = self._cells[seq]
        assert p1 < 0 or p1 >= len(cells), "only the end of a sequence can be removed"
        del cells[p0:]
        return True

    def kv_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        """Share the beginning of `src` with `dst`; shared cells count once."""
        assert p0 == 0, "only from the beginning"
        assert not self._cells[dst], "only into an empty sequence"
        self._cells[dst] = self._cells[src][: p1 if p1 >= 0 else None]

    def kv_length(self, seq: int) -> int:
        """Cells held for a sequence."""
        return len(self._cells[seq])

    def close(self) -> None:
        """Nothing to free."""

    # --- the script ------------------------------------------------------------------------

    def _split(self, text: str) -> list[int]:
        tokens, at = [], 0
        while at < len(text):
            for size in range(min(self._longest, len(text) - at), 0, -1):
                token = self._ids.get(text[at : at + size])
                if token is not None:
                    break
            else:
                token, size = self._ids.get("?", 0), 1
            tokens.append(token)
            at += size
        return tokens

    def _base_scores(self) -> Logits:
        counts = Counter(token for text, _ in self._documents for token in self._split(text))
        size = len(self._pieces) + 1
        total = sum(counts.values()) + size
        return np.array([math.log((counts[i] + 1) / total) for i in range(size)], np.float32)

    def _text_so_far(self, tokens: list[int]) -> str:
        ends = [i for i, token in enumerate(tokens) if token == self._end]
        return "".join(self._pieces[token] for token in tokens[ends[-1] + 1 if ends else 0 :])

    def _score(self, text: str) -> Logits:
        scores = self._base.copy()
        for rest, bonus in self._rests(text):
            if not rest:
                scores[self._end] = max(scores[self._end], bonus)
            for size in range(1, min(self._longest, len(rest)) + 1):
                token = self._ids.get(rest[:size])
                if token is not None:
                    scores[token] = max(scores[token], bonus + _CHARACTER_BONUS * size)
        return scores

    def _rests(self, text: str) -> list[tuple[str, float]]:
        """What every place where the longest known end of `text` occurs offers, with its bonus."""
        for start in range(len(text)):
            known = text[start:]
            rests = [
                (document[at + len(known) :], bonus)
                for document, bonus in self._documents
                for at in range(len(document) - len(known) + 1)
                if document.startswith(known, at)
            ]
            if rests:
                return rests
        return list(self._documents)
