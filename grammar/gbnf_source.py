"""The rules of a GBNF text: what can be said of them by name, and which of them are regular.

Invariant: after ``Source.check`` every name is defined and no rule can begin with itself, so that
walks over rules in order of their first parts come to an end.

Read next: ``gbnf.py``, which makes nodes of what is not regular.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from grammar import gbnf_syntax as syntax
from grammar.errors import GrammarSourceError
from grammar.gbnf_syntax import Chars, Choice, Name, Repeat, Sequence, Term, Text, Token
from grammar.regular import RegexBuilder, Rx

ROOT: Final = "root"
MAX_REGULAR_SIZE: Final = 50_000
"""A rule whose regular expression would have more parts than this is called, not written out."""


class Source:
    """The rules of a text by name, and what can be said of them without their languages."""

    def __init__(self, text: str) -> None:
        self.text = text
        parsed = syntax.parse(text)
        self.rules: dict[str, Term] = {name: term for name, (term, _) in parsed.items()}
        self._defined = {name: at for name, (_, at) in parsed.items()}
        self.names = {name: list(_names(term)) for name, term in self.rules.items()}
        self.users: dict[str, list[str]] = {name: [] for name in self.rules}

    def check(self) -> None:
        """
        Raises:
            GrammarSourceError: a rule is missing, or begins with itself.
        """
        if ROOT not in self.rules:
            raise GrammarSourceError(f"there is no rule named {ROOT!r}")
        for name, used in self.names.items():
            for reference in used:
                if reference.name not in self.rules:
                    raise self.error(reference.at, f"the rule {reference.name!r} is not defined")
                self.users[reference.name].append(name)
        self._refuse_left_recursion(self._nullable())

    def error(self, at: int, message: str, problem: str = "invalid") -> GrammarSourceError:
        """An error at an offset of the text."""
        return syntax.source_error(self.text, at, message, problem)

    def _nullable(self) -> set[str]:
        """The rules that can be empty: a least fixed point."""
        found: set[str] = set()
        pending = list(self.rules)
        while pending:
            name = pending.pop()
            if name not in found and _can_be_empty(self.rules[name], found):
                found.add(name)
                pending += self.users[name]
        return found

    def _refuse_left_recursion(self, nullable: set[str]) -> None:
        firsts = {name: _first_names(term, nullable) for name, term in self.rules.items()}
        done: set[str] = set()
        for start in self.rules:
            path: dict[str, Iterator[str]] = {} if start in done else {start: iter(firsts[start])}
            while path:
                top = next(reversed(path))
                following = next(path[top], None)
                if following is None:
                    done.add(top)
                    del path[top]
                elif following in path:
                    names = list(path)
                    cycle = [*names[names.index(following) :], following]
                    raise self.error(
                        self._defined[following],
                        f"left recursion is not supported: {' -> '.join(cycle)}",
                        "unsupported",
                    )
                elif following not in done:
                    path[following] = iter(firsts[following])


def _parts(term: Term) -> tuple[Term, ...]:
    match term:
        case Sequence(parts) | Choice(parts):
            return parts
        case Repeat(body):
            return (body,)
        case _:
            return ()


def _walk(term: Term) -> Iterator[Term]:
    stack = [term]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(_parts(top)))


def _names(term: Term) -> Iterator[Name]:
    return (part for part in _walk(term) if isinstance(part, Name))


def _can_be_empty(term: Term, nullable: set[str]) -> bool:
    match term:
        case Text(text):
            return not text
        case Name(name):
            return name in nullable
        case Sequence(items):
            return all(_can_be_empty(item, nullable) for item in items)
        case Choice(options):
            return any(_can_be_empty(option, nullable) for option in options)
        case Repeat(body, lo):
            return lo == 0 or _can_be_empty(body, nullable)
        case _:
            return False


def _first_names(term: Term, nullable: set[str]) -> list[str]:
    """The rules that a term may begin with."""
    match term:
        case Name(name):
            return [name]
        case Sequence(items):
            found: list[str] = []
            for item in items:
                found += _first_names(item, nullable)
                if not _can_be_empty(item, nullable):
                    break
            return found
        case Choice(options):
            return [name for option in options for name in _first_names(option, nullable)]
        case Repeat(body, _, hi):
            return [] if hi == 0 else _first_names(body, nullable)
        case _:
            return []


class Regular:
    """The rules that are regular, and their languages."""

    def __init__(self, source: Source, builder: RegexBuilder) -> None:
        self.builder = builder
        self._source = source
        self._languages: dict[str, Rx] = {}
        self._order: list[str] = []
        sizes: dict[str, int] = {}
        waiting = {name: len(used) for name, used in source.names.items()}
        ready = [name for name, count in waiting.items() if not count]
        while ready:
            name = ready.pop()
            size = _size(source.rules[name], sizes)
            if size is not None and size <= MAX_REGULAR_SIZE:
                sizes[name] = size
                self._order.append(name)
            for user in source.users[name]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        self.names = frozenset(sizes)
        self._sizes = sizes

    def includes(self, term: Term) -> bool:
        """Whether a term is regular (and not too large)."""
        size = _size(term, self._sizes)
        return size is not None and size <= MAX_REGULAR_SIZE

    def of(self, term: Term) -> Rx:
        """The language of a regular term."""
        needed: set[str] = set()
        pending = [name.name for name in _names(term)]
        while pending:
            name = pending.pop()
            if name not in needed and name not in self._languages:
                needed.add(name)
                pending += [used.name for used in self._source.names[name]]
        if needed:
            for name in self._order:  # what a rule uses comes before it
                if name in needed:
                    self._languages[name] = self._language(self._source.rules[name])
        return self._language(term)

    def _language(self, term: Term) -> Rx:
        builder = self.builder
        match term:
            case Text(text):
                return builder.literal(text)
            case Chars(chars):
                return builder.chars(chars)
            case Name(name):
                return self._languages[name]
            case Sequence(items):
                return builder.concat(*map(self._language, items))
            case Choice(options):
                texts = [option.text for option in options if isinstance(option, Text)]
                others = [option for option in options if not isinstance(option, Text)]
                return builder.union(builder.literals(texts), *map(self._language, others))
            case Repeat(body, lo, hi):
                return builder.repeat(self._language(body), lo, hi)
            case Token():
                raise AssertionError("a token is no text")


def _size(term: Term, sizes: dict[str, int]) -> int | None:
    """How many parts a term's regular expression has; None if it is not regular."""
    total = 0
    for part in _walk(term):
        match part:
            case Text(text):
                total += len(text)
            case Name(name):
                size = sizes.get(name)
                if size is None:
                    return None
                total += size
            case Token():
                return None
            case _:
                total += 1
    return total
