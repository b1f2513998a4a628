"""Forced runs: text that the grammar leaves no choice about, as tokens that need no step each.

A matcher's `forced_bytes()` is the text that every legal continuation begins with. `Splitter.plan`
cuts it into the tokens that the model's own tokenizer would use in that place, and keeps back those
that what follows may still change; they are left to the model. Where the seams lie:

    … generated tokens | forced text ………………… | choice
                       ^ stays where it is     ^ healed: the last tokens are kept back if
                         (the text so far is     - a longer legal token begins where one of them
                         tokenised with it)        begins, or
                                                 - they lie in a run of one kind of characters that
                                                   may go on (a word, punctuation), or in white
                                                   space, which tokenizers tie to what follows

Tokenizers cut text into words, punctuation and white space before anything else, hence the second
rule: it is what keeps a run canonical where a tokenizer would re-split its last word.
Invariant: a plan is legal token by token, spells a beginning of the forced text, and leaves the
matcher as it was; making it needs no mask. Read next: `sequence.py`, which carries plans out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from server.engine.model import LanguageModel

if TYPE_CHECKING:
    from grammar import Matcher

WINDOW = 16  # how many of the tokens before a forced run are looked at
_WINDOWS = (WINDOW, 4, 1, 0)
_ANCHOR = b"\n"
_SPACE, _WORD, _OTHER = range(3)
_EVERY_BYTE = tuple(range(256))


class Splitter:
    """Plans forced runs for one model. Stateless between calls; one thread at a time."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._tokens = model.vocabulary.tokens
        self._longest = model.vocabulary.longest
        self._anchor: tuple[bytes, list[int]] | None = None

    def plan(self, matcher: Matcher, written: Sequence[int]) -> list[int]:
        """The tokens that must come next, none where there is a choice.

        Args:
            matcher: the answer's place in its grammar; is left unchanged.
            written: the answer's tokens so far, without the prompt; the last `WINDOW` do.
        """
        forced = _whole_characters(matcher.forced_bytes())
        if not forced:
            return []
        tokens = self._split(forced, written)
        advanced = 0
        for token in tokens:
            if not matcher.is_allowed(token):
                break
            matcher.advance(token)
            advanced += 1
        settled = len(forced)
        if advanced == len(tokens):
            settled -= self._unsettled(matcher, forced)
        matcher.rollback(advanced)
        return self._heal(matcher, forced, tokens[:advanced], settled)

    def is_canonical(self, tokens: Sequence[int]) -> bool | None:
        """Whether the tokenizer would have cut the text of some tokens so; special ones part it.

        None where the bytes between are no whole characters.
        """
        anchor, anchor_tokens = self._find_anchor()
        part: list[int] = []
        for token in (*tokens, None):
            if token is not None and self._tokens[token]:
                part.append(token)
                continue
            if part:
                text = anchor + self._spell(part)
                if not _is_utf8(text):
                    return None
                split = self._model.tokenize(text, add_special=False, parse_special=False)
                if split != [*anchor_tokens, *part]:
                    return False
            part = []
        return True

    # --- the seam before -------------------------------------------------------------------

    def _split(self, forced: bytes, written: Sequence[int]) -> list[int]:
        """The tokenizer's split of the forced text behind what was written; empty if it has none.

        Where the tokenizer would not have cut the text so far as the model did, fewer of its tokens
        are looked at, in the end none: the boundary before the forced text is then given.
        """
        anchor, anchor_tokens = self._find_anchor()
        tried = -1
        for size in _WINDOWS:
            window = self._window(written, size)
            if len(window) == tried:
                continue
            tried = len(window)
            text = anchor + b"".join(self._tokens[token] for token in window) + forced
            if not _is_utf8(text):
                continue
            split = self._model.tokenize(text, add_special=False, parse_special=False)
            head = [*anchor_tokens, *window]
            rest = split[len(head) :]
            if split[: len(head)] == head and self._spell(rest) == forced:
                return rest
        return []

    def _window(self, written: Sequence[int], size: int) -> list[int]:
        """The last tokens written, at most `size`, after the last special one."""
        window: list[int] = []
        for token in reversed(written[len(written) - min(size, len(written)) :]):
            if not self._tokens[token]:
                break
            window.append(token)
        return window[::-1]

    def _find_anchor(self) -> tuple[bytes, list[int]]:
        """Text (and its tokens) to put before, for tokenizers that add a space to a beginning."""
        if self._anchor is None:
            probe, text = b"{", b""
            plain = self._model.tokenize(probe, add_special=False, parse_special=False)
            if self._spell(plain) != probe:
                text = _ANCHOR
            tokens = (
                self._model.tokenize(text, add_special=False, parse_special=False) if text else []
            )
            self._anchor = text, tokens
        return self._anchor

    def _spell(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self._tokens[token] for token in tokens)

    # --- the seam behind -------------------------------------------------------------------

    def _unsettled(self, matcher: Matcher, forced: bytes) -> int:
        """Length of the end of the forced text that what follows may make a part of.

        The matcher stands behind the text.
        """
        kind = _kind(forced[-1])
        if not matcher.may_follow(_EVERY_BYTE if kind == _SPACE else _KINDS[kind]):
            return 0  # something else follows, or only the end
        length = 1
        while length < len(forced) and _kind(forced[-length - 1]) == kind:
            length += 1
        return length

    def _heal(self, matcher: Matcher, forced: bytes, tokens: list[int], settled: int) -> list[int]:
        """The tokens within the settled text, up to the first that could be a longer one."""
        begin = advanced = 0
        for token in tokens:
            end = begin + len(self._tokens[token])
            rest = len(forced) - begin
            if end > settled or (rest < self._longest and matcher.may_outgrow(forced[begin:])):
                break
            matcher.advance(token)
            advanced += 1
            begin = end
        matcher.rollback(advanced)
        return tokens[:advanced]


def _kind(byte: int) -> int:
    if byte in b" \t\r\n":
        return _SPACE
    return _WORD if byte >= 0x80 or chr(byte).isalnum() else _OTHER


_KINDS = tuple(
    tuple(byte for byte in _EVERY_BYTE if _kind(byte) == kind) for kind in (_SPACE, _WORD, _OTHER)
)


def _whole_characters(data: bytes) -> bytes:
    """The data without a character begun at its end."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data if size <= back else data[:-back]
        if byte < 0x80:
            break
    return data


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
