"""The tokens that end a JSON string, by what they add to it: which of them make it a given text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from grammar.trie import TokenTrie

_BODY = re.compile(rb'((?:[^"\\]|\\.)*)"', re.DOTALL)
BLANKS = b" \t\r\n"


class Closers:
    """The tokens of a vocabulary that end a string, by what they add to it before its quote."""

    def __init__(self, tokens: Sequence[bytes], trie: TokenTrie) -> None:
        self._tokens = tokens
        self._trie = trie
        self._quoted = [token for token, text in enumerate(tokens) if b'"' in text]
        self._known: dict[int, Mapping[bytes, list[int]]] = {}
        self._blank: dict[int, bool] = {}

    def below(self, node: int, depth: int) -> Mapping[bytes, list[int]]:
        """Tokens below a node of the trie, ``depth`` bytes deep, behind which the string's body
        goes on: by the UTF-8 bytes that the rest adds to it."""
        found = self._known.get(node)
        if found is None:
            made: dict[bytes, list[int]] = {}
            among = self._trie.tokens_below(node).tolist() if node else self._quoted
            for token in among:
                match = _BODY.match(self._tokens[token], depth)
                body = None if match is None else _decoded(match[1])
                if body is not None:
                    made.setdefault(body, []).append(token)
            found = self._known[node] = made
        return found

    def only_blanks(self, node: int) -> bool:
        """Whether no token below a node, which white space leads to, has anything else."""
        found = self._blank.get(node)
        if found is None:
            below = self._trie.tokens_below(node).tolist()
            found = self._blank[node] = not any(self._tokens[t].strip(BLANKS) for t in below)
        return found


def _decoded(body: bytes) -> bytes | None:
    """The UTF-8 of a piece of a string's body; None where its escapes make no text."""
    if b"\\" not in body:
        return body
    try:
        # A piece may begin or end within a character.
        text: str = json.loads(f'"{body.decode(errors="surrogateescape")}"')
        return text.encode(errors="surrogateescape")
    except ValueError:
        return None
