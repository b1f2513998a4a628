"""How many of an answer's tokens were reasoning.

Tokens are counted by the pieces of text that they came in. A piece counts if it lies in reasoning,
opens it or closes it, and nothing else of the answer comes out of it: so the delimiters count as
reasoning, and a piece in which the answer goes on behind it does not.

Read next: `server/deltas.py`; `server/api/chat.py`, which tells of them in `usage`.
"""

from __future__ import annotations

from server.calls import ToolCallDelta
from server.deltas import AnswerReader, ContentDelta, Output
from server.engine.types import TextPiece


class CountingReader:
    """Feeds a reader, and counts. `reasoning_tokens`: those so far."""

    def __init__(self, reader: AnswerReader) -> None:
        self.reader = reader
        self.reasoning_tokens = 0

    def feed(self, piece: TextPiece) -> list[Output]:
        """As the reader's own, with the piece's text."""
        before = self.reader.is_reasoning
        outputs = self.reader.feed(piece.text)
        answered = any(isinstance(output, ContentDelta | ToolCallDelta) for output in outputs)
        if (before or self.reader.is_reasoning) and not answered:
            self.reasoning_tokens += len(piece.tokens)
        return outputs
