"""From token bytes to text pieces: whole characters, and nothing of a stop string.

Invariant: the pieces' text, concatenated, is the UTF-8 decoding of the token bytes up to the
first stop string, however the bytes were cut into tokens; and every token record leaves with the
piece that completes its text. The stop string found is the one that is complete first (the
longest, if several are complete at once), which does not depend on the cuts either.

Positions are counted in characters of the whole answer:

    [0, sent)        given out
    [sent, total)    held back: it may be the beginning of a stop string
    total..          bytes inside the decoder: the beginning of a character

Read next: `sequence.py`, which owns one assembler per answer.
"""

from __future__ import annotations

import codecs
from collections import deque
from typing import NamedTuple

from server.engine.types import TextPiece, TokenRecord

_new_decoder = codecs.getincrementaldecoder("utf-8")


class _Held(NamedTuple):
    """A record that has not left yet, with the interval [start, end) of its text."""

    record: TokenRecord
    start: int
    end: int


class TextAssembler:
    """Turns (bytes, record) pairs into `TextPiece`s. Not thread-safe; one per answer."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._stop = stop
        self._decoder = _new_decoder("replace")
        self._held_text = ""
        self._sent = 0
        self._records: deque[_Held] = deque()
        self.stop_sequence: str | None = None

    def push(self, data: bytes, record: TokenRecord) -> TextPiece | None:
        """Add a token; returns the text that can be given out now, if there is any.

        After a stop string was found (`stop_sequence` is set) nothing may be pushed any more.
        """
        assert self.stop_sequence is None, "the answer has ended"
        start = self._total
        self._held_text += self._decoder.decode(data)
        # A token that ends within a character is complete when that one character is.
        unfinished = 1 if self._decoder.getstate()[0] else 0
        self._records.append(_Held(record, start, self._total + unfinished))
        return self._give()

    def finish(self) -> TextPiece | None:
        """The rest: what was held back, U+FFFD for an unfinished character, leftover records."""
        if self.stop_sequence is not None:
            return None
        self._held_text += self._decoder.decode(b"", final=True)
        piece = self._give(final=True)
        if self.stop_sequence is not None or not self._records:
            return piece
        rest = tuple(held.record for held in self._records)
        self._records.clear()
        return TextPiece(piece.text, piece.tokens + rest) if piece else TextPiece("", rest)

    @property
    def _total(self) -> int:
        return self._sent + len(self._held_text)

    def _give(self, *, final: bool = False) -> TextPiece | None:
        """Move the boundary `sent` as far as the stop strings allow."""
        found = self._find_stop()
        if found is not None:
            cut, self.stop_sequence = found
        else:
            cut = len(self._held_text) - (0 if final else self._possible_beginning())
        text, self._held_text = self._held_text[:cut], self._held_text[cut:]
        self._sent += cut
        records = self._take_records(stopped=found is not None)
        return TextPiece(text, records) if text or records else None

    def _take_records(self, *, stopped: bool) -> tuple[TokenRecord, ...]:
        """Records whose text is out; at a stop string also one of which a part is out."""
        taken = []
        while self._records:
            held = self._records[0]
            if held.end > self._sent and not (stopped and held.start < self._sent):
                break
            taken.append(self._records.popleft().record)
        if stopped:
            self._records.clear()
        return tuple(taken)

    def _find_stop(self) -> tuple[int, str] | None:
        """(position in the held text, stop string) of the stop string that is complete first."""
        best: tuple[int, int, str] | None = None
        for stop in self._stop:
            at = self._held_text.find(stop)
            if at >= 0 and (best is None or (at + len(stop), at) < best[:2]):
                best = (at + len(stop), at, stop)
        return None if best is None else (best[1], best[2])

    def _possible_beginning(self) -> int:
        """Length of the longest end of the held text that begins some stop string."""
        longest = 0
        for stop in self._stop:
            for size in range(min(len(stop) - 1, len(self._held_text)), longest, -1):
                if self._held_text.endswith(stop[:size]):
                    longest = size
                    break
        return longest
