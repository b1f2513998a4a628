"""A model's vocabulary as the grammar engine sees it: byte strings, special ids, end ids.

Invariant: a special token has no bytes here. It never stands for its text, so a delimiter such as
``<|im_end|>`` can't appear inside a string by one token, whatever the mask of that string says.

Per vocabulary and shared by every grammar on it: the byte trie (kept on disk under the
fingerprint, if a directory is given), the *plain* tokens that may stand anywhere in a JSON string
(no quote, backslash or control byte; whole UTF-8 characters only), and the trie of the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from grammar.bodies import FreeBodies
from grammar.budget import Clock
from grammar.charset import general_categories
from grammar.closers import Closers
from grammar.plain import PlainTokens, item_tokens
from grammar.safe import Below
from grammar.trie import TokenTrie
from grammar.walk import Walk
from grammar.workspace import Workspace

_TRIE_FORMAT = 1
_TWO_KEYS = re.compile(rb'"[ \t\r\n]*:.*,[ \t\r\n]*"', re.DOTALL)


class Vocabulary:
    """An immutable vocabulary of V tokens.

    Args:
        tokens: the bytes of every token, in id order; what stands for a special id is ignored.
        special: id -> text of control tokens; they are never matched by their text.
        eos: ids that end a generation; they are treated as special too.
        trie_dir: where the byte trie is kept between runs; None keeps it in memory only.

    Raises:
        ValueError: an id is out of range, or there is no end-of-sequence id.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        special: Mapping[int, str],
        eos: Collection[int],
        *,
        trie_dir: Path | None = None,
    ) -> None:
        if not eos:
            raise ValueError("a vocabulary needs at least one end-of-sequence token")
        for token in (*special, *eos):
            if not 0 <= token < len(tokens):
                raise ValueError(f"token id {token} is outside the vocabulary of {len(tokens)}")
        hidden = set(special) | set(eos)
        self.tokens: tuple[bytes, ...] = tuple(
            b"" if i in hidden else bytes(t) for i, t in enumerate(tokens)
        )
        self.special: Mapping[int, str] = dict(special)
        self.eos: frozenset[int] = frozenset(eos)
        self._trie_dir = trie_dir

    def __repr__(self) -> str:
        return f"<Vocabulary of {self.size} tokens, {self.fingerprint[:12]}>"

    @property
    def size(self) -> int:
        """V, the number of token ids."""
        return len(self.tokens)

    @property
    def mask_words(self) -> int:
        """Length of a packed mask in 32-bit words: ceil(V / 32)."""
        return (self.size + 31) // 32

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over every token's bytes, the special ids and the end ids."""
        digest = hashlib.sha256(struct.pack("<II", _TRIE_FORMAT, self.size))
        digest.update(struct.pack(f"<{self.size}I", *map(len, self.tokens)))
        digest.update(b"".join(self.tokens))
        for token, text in sorted(self.special.items()):
            digest.update(struct.pack("<I", token) + text.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(b"eos" + struct.pack(f"<{len(self.eos)}I", *sorted(self.eos)))
        return digest.hexdigest()

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token; a counter above it can't run out within one token."""
        return max(map(len, self.tokens))

    @cached_property
    def trie(self) -> TokenTrie:
        """The byte trie of all ordinary tokens, read from ``trie_dir`` where it is there."""
        path = self._trie_dir / f"trie-{self.fingerprint[:32]}.npz" if self._trie_dir else None
        if path is not None and path.exists():
            try:
                with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                    return TokenTrie({name: stored[name] for name in TokenTrie.ARRAYS})
            except (OSError, ValueError, KeyError, zipfile.BadZipFile):
                pass  # a damaged file is rebuilt below and replaced
        trie = TokenTrie.build(self.tokens, range(self.size))
        if path is not None:
            _store(path, trie.arrays())
        return trie

    def prepare(self) -> None:
        """Make now what is made once for a vocabulary (a server does so before its first request).

        Takes some tenths of a second; without it the first masks that need a part make it.
        """
        with self.workspace.lock:
            self.bodies.prepare()
            _ = self.double_key_tokens, self.end_walk, self.below
            general_categories()

    @contextmanager
    def compiling(self, steps: int, clock: Clock | None = None) -> Iterator[Workspace]:
        """The workspace for a new grammar, locked, with so many steps for regular languages.

        The work gives way at the builder's safe points, so others may use the workspace meanwhile.

        Raises:
            RegexBudgetError: the work needed more steps.
            OutOfTimeError: it took more time than the clock allows.
        """
        with self.workspace.lock as lock:
            workspace = self.current_workspace()
            with workspace.builder.working(steps, lock, clock):
                yield workspace

    @cached_property
    def workspace(self) -> Workspace:
        """The terminals that all grammars on this vocabulary share; see ``begin_generation``."""
        return Workspace(self)

    def begin_generation(self) -> None:
        """Let grammars from now on share a new workspace; the others keep theirs."""
        with self.workspace.lock:
            before = self.workspace
            self.__dict__["workspace"] = Workspace(self, before.limit_bytes, before=before)

    def current_workspace(self) -> Workspace:
        """The workspace for a new grammar; its lock, which never changes, must be held."""
        if self.workspace.is_due():
            self.begin_generation()
        return self.workspace

    def item_tokens(self, *, inside: bool, begun: bool) -> npt.NDArray[np.uint32]:
        """uint32[ceil(V/32)]: tokens that may end an array's item and begin another.

        Args:
            inside: the token begins within a string, which must end first.
            begun: only those with more of the next item than its first bracket or quote.
        """
        return self._item_tokens[inside, begun]

    @cached_property
    def _item_tokens(self) -> dict[tuple[bool, bool], npt.NDArray[np.uint32]]:
        return item_tokens(self.tokens)

    @cached_property
    def short_first(self) -> npt.NDArray[np.int32]:
        """int32[n]: the ordinary tokens, letters and digits first, short ones first."""
        ids = [i for i, text in enumerate(self.tokens) if text]
        other = [not self.tokens[i].isalnum() for i in ids]
        sizes = [len(self.tokens[i]) for i in ids]
        order = np.lexsort((ids, sizes, other))
        return np.array(ids, dtype=np.int32)[order]

    @cached_property
    def closers(self) -> Closers:
        """The tokens that end a string."""
        return Closers(self.tokens, self.trie)

    @cached_property
    def plain(self) -> PlainTokens:
        """The tokens that can stand anywhere in the body of a JSON string."""
        return PlainTokens(self.tokens)

    @property
    def plain_lengths(self) -> npt.NDArray[np.int32]:
        """int32[V]: the token's length in characters if it is plain, else 0."""
        return self.plain.lengths

    @cached_property
    def single_bytes(self) -> frozenset[int]:
        """The bytes that are ordinary tokens by themselves."""
        return frozenset(text[0] for text in self.tokens if len(text) == 1)

    @cached_property
    def filler(self) -> int | None:
        """The longest plain token of ASCII characters; None: there is none."""
        texts = self.tokens
        plain = (i for i in np.flatnonzero(self.plain_lengths).tolist() if texts[i].isascii())
        return max(plain, key=lambda i: len(texts[i]), default=None)

    @cached_property
    def end_walk(self) -> Walk:
        """The end-of-sequence tokens, as a part of a mask."""
        return Walk(np.array(sorted(self.eos), dtype=np.int32), None, ())

    @cached_property
    def double_key_tokens(self) -> tuple[int, ...]:
        """Tokens that could hold the end of one key and something of the next (few, if any)."""
        return tuple(i for i, t in enumerate(self.tokens) if _TWO_KEYS.search(t))

    @cached_property
    def below(self) -> Below:
        """What stands below each node of ``trie``."""
        return Below(self.trie, self.plain.wild())

    @cached_property
    def other_trie(self) -> TokenTrie:
        """The byte trie of the ordinary tokens that are not plain."""
        return TokenTrie.build(self.tokens, np.flatnonzero(self.plain_lengths == 0).tolist())

    @cached_property
    def bodies(self) -> FreeBodies:
        """The walks of free strings; the first use scans the vocabulary."""
        bodies = FreeBodies(self)
        self.workspace.bodies = bodies
        return bodies

    @cached_property
    def other_nodes(self) -> npt.NDArray[np.int32]:
        """int32[nodes of ``other_trie``]: the same nodes in ``trie``."""
        return self.other_trie.nodes_in(self.trie)


def _store(path: Path, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
    """Write atomically; a directory that can't be written only costs the next start some time."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub wants one dtype
            os.replace(name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
