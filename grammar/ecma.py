"""The language of an ECMA-262 regular expression, look-around and anchors included, exactly.

A term is compiled together with what follows it: `compile(term, K)` is the language of all that may
stand from the term's position to the end of the string, where `K` is the same for the position
after the term. So an assertion is a Boolean operation on whole rests of the string: `(?=A)K` is
`A any* & K`, `(?!A)K` is `K & ~(A any*)`, `$K` is `K & ""`.

Assertions that look back (`^`, `\\b`, a look-behind of one character) depend on the character
before. So `K` is not one language but a `Rest`: one language for each *block* of characters that
the last one may come from (the blocks are the finest classes that the pattern's assertions can tell
apart), and one for the *origin*, the place where nothing has been consumed yet. A longer
look-behind is accepted at the beginning of the pattern, where it limits the text before the match.

A star over a term with assertions, such as `((?!ab).)*`, is the solution of an equation over
languages; see `RegexBuilder.equation`.

Invariant: a pattern's language is exact or the pattern is refused by name. Lazy and greedy
quantifiers have the same language; groups capture nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from grammar.charset import EVERYTHING, WORD, CharSet
from grammar.ecma_syntax import (
    Assertion,
    Chars,
    Choice,
    Look,
    RegexSyntaxError,
    RegexUnsupportedError,
    Repeat,
    Sequence,
    Term,
    parse,
)
from grammar.regular import RegexBuilder
from grammar.rx import Kind, Rx

__all__ = ["RegexSyntaxError", "RegexUnsupportedError", "parse_full", "parse_search"]

#: Copies that are written out of a counted term with assertions in it.
MAX_COPIES: Final = 256
_MAX_BLOCKS: Final = 32
_START: Final = -1


def parse_search(builder: RegexBuilder, pattern: str) -> Rx:
    """All strings in which the pattern matches somewhere (the meaning of JSON Schema's `pattern`).

    Raises:
        RegexSyntaxError: the text is no pattern.
        RegexUnsupportedError: a construct is refused by name.
        RegexBudgetError: the builder's fuel ran out.
    """
    compiler = _Compiler(builder, parse(pattern, builder.properties))
    return builder.union(*(compiler.search(branch) for branch in compiler.branches()))


def parse_full(builder: RegexBuilder, pattern: str) -> Rx:
    """All strings that the pattern matches from end to end. Raises as `parse_search`."""
    compiler = _Compiler(builder, parse(pattern, builder.properties))
    return compiler.compile(compiler.tree, compiler.rest(builder.epsilon)).origin


@dataclass(frozen=True, slots=True)
class Rest:
    """What may follow a position, by what came before it.

    `before` is the block of the character before the origin, or -1 at the start of the string;
    `origin` is what may follow when nothing was consumed since, `after[i]` when the last character
    consumed came from block i.
    """

    before: int
    origin: Rx
    after: tuple[Rx, ...]

    def contexts(self) -> Iterator[tuple[int, Rx]]:
        """The origin and the blocks, each as (block or -1, what may follow)."""
        yield self.before, self.origin
        yield from enumerate(self.after)

    def rebuilt(self, parts: list[Rx]) -> Rest:
        """The same shape with other languages, in the order of `contexts`."""
        return Rest(self.before, parts[0], tuple(parts[1:]))


class _Compiler:
    def __init__(self, builder: RegexBuilder, tree: Term) -> None:
        self.builder = builder
        self.tree = tree
        self._pure: dict[int, tuple[Term, bool]] = {}  # by id; the term is kept alive
        self._blocks = self._find_blocks(tree)

    # -- the whole pattern -----------------------------------------------------------------------

    def branches(self) -> list[Term]:
        """The top-level alternatives, those without assertions as one."""
        pure: list[Term] = []
        others: list[Term] = []
        for branch in _branches(self.tree):
            (pure if self._is_pure(branch) else others).append(branch)
        return [*others, Choice(tuple(pure))] if pure else others

    def search(self, branch: Term) -> Rx:
        """One top-level alternative, anywhere in the string."""
        builder = self.builder
        before, term = self._leading_look_behind(branch)
        rest = self.compile(term, self.rest(builder.universe))
        found = [rest.origin] if before.nullable else []
        unlimited = before is builder.universe
        if unlimited and all(after is rest.origin for after in rest.after):
            return builder.concat(builder.universe, rest.origin)
        if len(set(rest.after)) == 1:
            prefix = self._nonempty(before)
            found.append(builder.concat(prefix, rest.after[0]))
        else:
            for block, after in zip(self._blocks, rest.after, strict=True):
                ending = builder.concat(builder.universe, builder.chars(block))
                found.append(builder.concat(builder.intersect(before, ending), after))
        return builder.union(*found)

    def rest(self, language: Rx) -> Rest:
        """The same language in every context."""
        return Rest(_START, language, (language,) * len(self._blocks))

    def _leading_look_behind(self, branch: Term) -> tuple[Rx, Term]:
        """Take look-behinds off the front: (the text that may stand before, the other terms)."""
        builder = self.builder
        items = branch.items if isinstance(branch, Sequence) else (branch,)
        before, count = builder.universe, 0
        while count < len(items):
            item = items[count]
            if not isinstance(item, Look) or item.ahead or self._single_behind(item) is not None:
                break
            if not self._is_pure(item.body):
                break
            ending = builder.concat(builder.universe, self._pure_language(item.body))
            if item.negative:
                ending = builder.complement(ending)
            before = builder.intersect(before, ending)
            count += 1
        return before, Sequence(items[count:]) if count else branch

    # -- terms -----------------------------------------------------------------------------------

    def compile(self, term: Term, rest: Rest) -> Rest:
        """What may stand from a term's position to the end, given the same for after it."""
        uniform = len(set(rest.after)) == 1
        if uniform and self._is_pure(term):
            return self._followed(self._pure_language(term), rest)
        match term:
            case Chars(chars):
                step = self._step(chars, rest)
                return rest.rebuilt([step] * (1 + len(rest.after)))
            case Sequence(items):
                for item in reversed(items):
                    rest = self.compile(item, rest)
                return rest
            case Choice(options):
                found = [self.compile(option, rest) for option in options]
                columns = zip(*((rx for _, rx in one.contexts()) for one in found), strict=True)
                return rest.rebuilt([self.builder.union(*column) for column in columns])
            case Repeat():
                return self._repeat(term, rest)
            case Assertion(symbol):
                return self._assertion(symbol, rest)
            case Look():
                return self._look(term, rest)

    def _step(self, chars: CharSet, rest: Rest) -> Rx:
        builder = self.builder
        if len(set(rest.after)) == 1:
            return builder.concat(builder.chars(chars), rest.after[0])
        return builder.union(
            *(
                builder.concat(builder.chars(chars & block), after)
                for block, after in zip(self._blocks, rest.after, strict=True)
            )
        )

    def _followed(self, language: Rx, rest: Rest) -> Rest:
        """An assertion-free language before a rest that is the same after every block."""
        builder, after = self.builder, rest.after[0]
        joined = builder.concat(language, after)
        if rest.origin is after or not language.nullable:
            origin = joined
        else:
            moved = builder.concat(self._nonempty(language), after)
            origin = builder.union(rest.origin, moved)
        return Rest(rest.before, origin, (joined,) * len(rest.after))

    def _repeat(self, term: Repeat, rest: Rest) -> Rest:
        builder, body, lo, hi = self.builder, term.body, term.lo, term.hi
        if hi == 0:
            return rest
        if isinstance(body, Look):
            return rest if lo == 0 else self.compile(body, rest)
        if self._is_pure(body):
            # Only the last iteration that consumes something meets the rest.
            language = self._pure_language(body)
            lo = 0 if language.nullable else lo
            last = self.compile(body, Rest(_START, builder.empty, rest.after)).origin
            earlier = builder.repeat(language, max(lo - 1, 0), None if hi is None else hi - 1)
            moved = builder.concat(earlier, last)
            if lo > 0:
                return rest.rebuilt([moved] * (1 + len(rest.after)))
            return rest.rebuilt([builder.union(stay, moved) for _, stay in rest.contexts()])
        if max(lo, hi or 0) > MAX_COPIES:
            raise RegexUnsupportedError(
                f"an assertion inside a repetition of more than {MAX_COPIES}", term.position
            )
        if hi is None:
            rest = self._star(body, rest)
        else:
            done = rest
            for _ in range(hi - lo):
                again = self.compile(body, rest)
                pairs = zip(done.contexts(), again.contexts(), strict=True)
                rest = rest.rebuilt([builder.union(x, y) for (_, x), (_, y) in pairs])
        for _ in range(lo):
            rest = self.compile(body, rest)
        return rest

    def _star(self, body: Term, rest: Rest) -> Rest:
        """Solve `Y = rest | body Y`, one unknown for each context, over non-empty iterations."""
        builder = self.builder
        unknowns = tuple(
            builder.equation((body, self._blocks, block, stay, rest.after), stay.nullable)
            for block, stay in rest.contexts()
        )
        for unknown, (block, stay) in zip(unknowns, rest.contexts(), strict=True):
            if not unknown.parts:
                again = self.compile(body, Rest(block, builder.empty, unknowns[1:]))
                solution = builder.union(stay, again.origin)
                if not unknown.parts:  # nobody who compiles the same has found it meanwhile
                    builder.define(unknown, solution)
        return rest.rebuilt(list(unknowns))

    def _assertion(self, symbol: str, rest: Rest) -> Rest:
        builder = self.builder
        out: list[Rx] = []
        word_next = builder.concat(builder.chars(WORD), builder.universe)
        for block, follows in rest.contexts():
            if symbol == "$":
                out.append(builder.intersect(follows, builder.epsilon))
            elif symbol == "^":
                out.append(follows if block == _START else builder.empty)
            else:
                word_before = block != _START and self._blocks[block].ranges[0][0] in WORD
                wants_word = word_before == (symbol == "B")
                after = word_next if wants_word else builder.complement(word_next)
                out.append(builder.intersect(follows, after))
        return rest.rebuilt(out)

    def _look(self, term: Look, rest: Rest) -> Rest:
        builder = self.builder
        if term.ahead:
            universe = builder.universe
            free = Rest(rest.before, universe, (universe,) * len(rest.after))
            seen = [found for _, found in self.compile(term.body, free).contexts()]
            if term.negative:
                seen = [builder.complement(found) for found in seen]
            pairs = zip(rest.contexts(), seen, strict=True)
            return rest.rebuilt(
                [builder.intersect(follows, found) for (_, follows), found in pairs]
            )
        behind = self._single_behind(term)
        if behind is None:
            raise RegexUnsupportedError(
                "a look-behind of more than one character inside a pattern", term.position
            )
        at_start, chars = behind
        out: list[Rx] = []
        for block, follows in rest.contexts():
            found = at_start if block == _START else self._blocks[block].ranges[0][0] in chars
            out.append(follows if found != term.negative else builder.empty)
        return rest.rebuilt(out)

    def _single_behind(self, term: Look) -> tuple[bool, CharSet] | None:
        """A look-behind of `^`s and single characters, as (holds at the start, characters)."""
        at_start, chars = False, CharSet()
        for branch in _branches(term.body):
            match branch:
                case Chars(found):
                    chars = chars | found
                case Assertion("^"):
                    at_start = True
                case _:
                    return None
        return at_start, chars

    # -- assertion-free terms --------------------------------------------------------------------

    def _is_pure(self, term: Term) -> bool:
        """Whether no assertion is inside."""
        known = self._pure.get(id(term))
        if known is None:
            known = term, not any(isinstance(part, Assertion | Look) for part in _walk(term))
            self._pure[id(term)] = known
        return known[1]

    def _pure_language(self, term: Term) -> Rx:
        builder = self.builder
        match term:
            case Chars(chars):
                return builder.chars(chars)
            case Sequence(items):
                return builder.concat(*(self._pure_language(item) for item in items))
            case Choice(options):
                return builder.union(*(self._pure_language(option) for option in options))
            case Repeat(body, lo, hi):
                return builder.repeat(self._pure_language(body), lo, hi)
            case _:
                raise AssertionError("an assertion has no language of its own")

    def _nonempty(self, language: Rx) -> Rx:
        """The language without the empty word, as an expression that shows it."""
        builder = self.builder
        if not language.nullable:
            return language
        if language is builder.epsilon:
            return builder.empty
        if language.kind is Kind.REPEAT and not language.parts[0].nullable:
            return builder.repeat(language.parts[0], 1, language.hi)
        if language.kind is Kind.UNION:
            return builder.union(*(self._nonempty(part) for part in language.parts))
        return builder.intersect(language, builder.repeat(builder.any_char, 1, None))

    def _find_blocks(self, tree: Term) -> tuple[CharSet, ...]:
        """The finest classes of characters that the look-back of the pattern tells apart."""
        blocks = [EVERYTHING]
        for part in _walk(tree):
            cut: CharSet | None = None
            if isinstance(part, Assertion) and part.symbol in "bB":
                cut = WORD
            elif isinstance(part, Look) and not part.ahead:
                behind = self._single_behind(part)
                cut = None if behind is None else behind[1]
            if cut is not None:
                halves = [half for block in blocks for half in (block & cut, block - cut)]
                blocks = [half for half in halves if half]
            if len(blocks) > _MAX_BLOCKS:
                raise RegexUnsupportedError("so many different look-behinds", 0)
        return tuple(blocks)


def _branches(term: Term) -> tuple[Term, ...]:
    return term.options if isinstance(term, Choice) else (term,)


def _walk(term: Term) -> Iterator[Term]:
    """A term and all terms inside it."""
    stack = [term]
    while stack:
        top = stack.pop()
        yield top
        match top:
            case Sequence(parts) | Choice(parts):
                stack.extend(parts)
            case Repeat(body) | Look(body):
                stack.append(body)
            case _:
                pass
