"""What the tests of the other languages share: masks against brute force, and a GBNF recogniser.

The recogniser knows nothing of automata or stacks: it computes, by definition, the set of places
where a term can end that begins at a given place.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from grammar import Grammar
from tests.grammar_support import VOCABULARY, brute_force, ids_of


def check_masks(grammar: Grammar, seed: int, walks: int = 3, steps: int = 7) -> set[bytes]:
    """Random walks: every mask is what brute force finds, and what a replay after a rollback finds.

    Returns the texts of the places that may end.
    """
    rng = random.Random(seed)
    ended: set[bytes] = set()
    for _ in range(walks):
        matcher = grammar.start()
        path: list[int] = []
        for _ in range(steps):
            legal = ids_of(matcher.mask())
            assert legal == brute_force(grammar, path)
            few = matcher.legal_ids()
            assert few is None or few.tolist() == legal
            text = b"".join(VOCABULARY.tokens[t] for t in path)
            forced = matcher.forced_bytes()
            if matcher.is_accepting():
                assert forced == b""
                ended.add(text)
            for token in legal:
                data = VOCABULARY.tokens[token]
                shared = min(len(data), len(forced))
                assert token in VOCABULARY.eos or data[:shared] == forced[:shared]
            going_on = [t for t in legal if t not in VOCABULARY.eos]
            if not going_on:
                break
            token = rng.choice(going_on)
            matcher.advance(token)
            path.append(token)
        if path:
            back = rng.randrange(1, len(path) + 1)
            matcher.rollback(back)
            replay = grammar.start()
            for token in path[: len(path) - back]:
                replay.advance(token)
            assert np.array_equal(matcher.mask(), replay.mask())
    return ended


# -- a grammar to generate, and to recognise by definition ----------------------------------------


@dataclass(frozen=True)
class Lit:
    text: str


@dataclass(frozen=True)
class Cls:
    chars: str
    negated: bool = False


@dataclass(frozen=True)
class Ref:
    name: str


@dataclass(frozen=True)
class Seq:
    items: tuple[Term, ...]


@dataclass(frozen=True)
class Alt:
    options: tuple[Term, ...]


@dataclass(frozen=True)
class Rep:
    body: Term
    lo: int
    hi: int | None


Term = Lit | Cls | Ref | Seq | Alt | Rep


def written(term: Term) -> str:
    """A term in GBNF."""
    match term:
        case Lit(text):
            return f'"{text}"'
        case Cls(chars, negated):
            return f"[{'^' if negated else ''}{chars}]"
        case Ref(name):
            return name
        case Seq(items):
            return "(" + " ".join(map(written, items)) + ")"
        case Alt(options):
            return "(" + " | ".join(map(written, options)) + ")"
        case Rep(body, lo, hi):
            times = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((lo, hi))
            if times is None:
                times = f"{{{lo}}}" if lo == hi else f"{{{lo},{'' if hi is None else hi}}}"
            return f"({written(body)}){times}"


def as_gbnf(rules: Mapping[str, Term]) -> str:
    """Rules in GBNF."""
    return "\n".join(f"{name} ::= {written(term)}" for name, term in rules.items())


class Recogniser:
    """Which texts fit some rules without left recursion."""

    def __init__(self, rules: Mapping[str, Term], text: str) -> None:
        self.rules = rules
        self.text = text
        self._known: dict[tuple[str, int], frozenset[int]] = {}

    def fits(self) -> bool:
        return len(self.text) in self.ends(self.rules["root"], 0)

    def ends(self, term: Term, at: int) -> frozenset[int]:
        text = self.text
        match term:
            case Lit(word):
                return frozenset({at + len(word)}) if text.startswith(word, at) else frozenset()
            case Cls(chars, negated):
                fits = at < len(text) and (text[at] in chars) != negated
                return frozenset({at + 1}) if fits else frozenset()
            case Ref(name):
                if (name, at) not in self._known:
                    self._known[name, at] = self.ends(self.rules[name], at)
                return self._known[name, at]
            case Seq(items):
                here = frozenset({at})
                for item in items:
                    here = frozenset(e for start in here for e in self.ends(item, start))
                return here
            case Alt(options):
                return frozenset(e for option in options for e in self.ends(option, at))
            case Rep(body, lo, hi):
                here, found = frozenset({at}), frozenset({at} if lo == 0 else ())
                # More rounds than characters only repeat the empty text.
                rounds = lo + len(text) + 1 if hi is None else hi
                for count in range(1, rounds + 1):
                    here = frozenset(e for start in here for e in self.ends(body, start))
                    if count >= lo:
                        found |= here
                return found


def all_texts(alphabet: str, length: int) -> list[str]:
    """All texts of up to so many characters."""
    return ["".join(t) for n in range(length + 1) for t in product(alphabet, repeat=n)]
