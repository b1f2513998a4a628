"""The vocabulary: fingerprint, hidden special tokens, and the byte trie on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grammar import Vocabulary, compile_json_schema
from grammar.trie import TokenTrie
from tests.grammar_support import VOCABULARY, ids_of, small_vocabulary


def test_fingerprint_is_stable_and_depends_on_everything() -> None:
    tokens, special, eos = [b"a", b"b", b"", b""], {2: "<x>", 3: "<e>"}, [3]
    one = Vocabulary(tokens, special, eos).fingerprint
    assert one == Vocabulary(list(tokens), dict(special), set(eos)).fingerprint
    assert len(one) == 64
    others = {
        Vocabulary([b"a", b"c", b"", b""], special, eos).fingerprint,
        Vocabulary([b"ab", b"", b"", b""], special, eos).fingerprint,
        Vocabulary(tokens, {2: "<y>", 3: "<e>"}, eos).fingerprint,
        Vocabulary(tokens, special, [2, 3]).fingerprint,
    }
    assert len(others | {one}) == 5


def test_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match="token id 9"):
        Vocabulary([b"a"], {9: "<x>"}, [0])
    with pytest.raises(ValueError, match="end-of-sequence"):
        Vocabulary([b"a"], {}, [])


def test_special_tokens_are_never_matched_by_their_text() -> None:
    think = VOCABULARY.size - 2
    assert VOCABULARY.special[think] == "<think>"
    assert VOCABULARY.tokens[think] == b""
    matcher = compile_json_schema({"type": "string"}, VOCABULARY).start()
    matcher.advance(ord('"'))
    assert think not in ids_of(matcher.mask())
    assert not matcher.is_allowed(think)


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=60))
def test_trie_holds_exactly_the_tokens(tokens: list[bytes]) -> None:
    trie = TokenTrie.build(tokens, range(len(tokens)))
    for token, text in enumerate(tokens):
        if not text:
            continue
        node = trie.find(text)
        assert node is not None
        same = [i for i, t in enumerate(tokens) if t == text]
        assert trie.tokens_at(node).tolist() == same
        assert token in same
        longer = {i for i, t in enumerate(tokens) if t.startswith(text) and t != text}
        assert set(trie.tokens_below(node).tolist()) == longer
    prefixes = {t[:n] for t in tokens for n in range(len(t) + 1)}
    assert len(trie) == len(prefixes | {b""})


def test_trie_is_kept_on_disk_and_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    def make() -> Vocabulary:
        source = small_vocabulary()
        return Vocabulary(source.tokens, source.special, source.eos, trie_dir=tmp_path)

    built = make().trie
    (path,) = tmp_path.glob("trie-*.npz")
    good = path.read_bytes()
    for name in TokenTrie.ARRAYS:
        assert np.array_equal(getattr(make().trie, name), getattr(built, name))
    path.write_bytes(good[: len(good) // 2])
    assert np.array_equal(make().trie.order, built.order)
    assert path.read_bytes() == good
    assert list(tmp_path.iterdir()) == [path]


def test_plain_tokens_may_stand_anywhere_in_a_string() -> None:
    lengths = VOCABULARY.plain_lengths
    by_bytes = {t: int(n) for t, n in zip(VOCABULARY.tokens, lengths, strict=True) if t}
    assert by_bytes[b"abc"] == 3
    assert by_bytes["日本".encode()] == 2
    assert by_bytes[b'{"'] == by_bytes[b"\\n"] == by_bytes[b"\n"] == by_bytes[b"a\xc3"] == 0
    others = set(VOCABULARY.other_trie.order.tolist())
    assert others == {i for i, t in enumerate(VOCABULARY.tokens) if t and not lengths[i]}
