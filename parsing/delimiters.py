"""Delimiters: what opens and closes a region, and where one stands in an unfinished text.

A `Delimiter` is a list of literals or a pattern, compiled twice: `whole` for a complete text and
`partial` (see `edges`) for one that may go on. Literals are patterns too, the longest first, so
"wait while a longer literal is possible" and "hold a suffix that may become a delimiter" come out
of the same rule as everything else about patterns.

A `Watch` is a delimiter on duty: it opens or closes a certain field. `look` asks one watch for its
leftmost find; `choose` picks among all watches of a state. Both are pure: what was found, they say;
who remembers it is `machine`, which is next to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import regex

from parsing.edges import MARK, guarded_form, undecided_form
from parsing.errors import ResponseParseError
from parsing.measures import Chain, group_names, literal, look_back, required
from parsing.syntax import Alt, NotUnderstood, parse

_NOWHERE = 1 << 62
_LONG_TEXT = 4096
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Delimiter:
    """One `open`, `close`, `open_pattern`, `close_pattern` or anchor of a template.

    literals: the literals, or () for a pattern;  pattern: the pattern as written, or None.
    whole: finds it in a complete text;  partial: the same for an unfinished one, None where only
    the complete text can tell.  groups: the names its match may capture.
    undecided: the source of `partial` where it can be a part of another pattern.
    look_back: how many characters before a match may matter to it (None: all of them).
    needs: chains of literals without which there is no match (see `syntax.required`).
    """

    literals: tuple[str, ...]
    pattern: str | None
    groups: frozenset[str]
    look_back: int | None
    needs: tuple[Chain, ...]
    whole: regex.Pattern[str] = field(repr=False)
    partial: regex.Pattern[str] | None = field(repr=False)
    undecided: str | None = field(repr=False)

    @classmethod
    def of_literals(cls, literals: Iterable[str]) -> Delimiter:
        """A delimiter that is any of the given non-empty literals; the longest match counts."""
        unique = tuple(dict.fromkeys(literals))
        assert unique, "a delimiter has at least one literal"
        assert all(unique), "literals are not empty"
        longest_first = sorted(unique, key=len, reverse=True)
        undecided = undecided_form(Alt(tuple(literal(text) for text in longest_first)))
        return cls(
            literals=unique,
            pattern=None,
            groups=frozenset(),
            look_back=0,
            needs=((unique[0],),) if len(unique) == 1 else (),
            whole=regex.compile("|".join(map(regex.escape, longest_first))),
            partial=regex.compile(undecided, regex.DOTALL),
            undecided=undecided,
        )

    @classmethod
    def of_pattern(cls, pattern: str) -> Delimiter:
        """A delimiter given by a pattern. Raises regex.error where it does not compile."""
        written = regex.compile(pattern, regex.DOTALL)
        groups = frozenset(written.groupindex)
        try:
            node, flags = parse(pattern)
            body = pattern[len(flags) :]
            undecided = undecided_form(node)
            partial = regex.compile(flags + undecided, regex.DOTALL)
            # Numbered back-references are not understood, so a guard in front moves no number.
            whole = regex.compile(flags + guarded_form(node, body), regex.DOTALL)
        except (NotUnderstood, regex.error, RecursionError):
            return cls((), pattern, groups, None, (), written, None, None)
        assert group_names(node) == groups, "the syntax reader lost a group"
        needs = () if "i" in flags else required(node)
        reach, source = look_back(node), None if flags else undecided
        return cls((), pattern, groups, reach, needs, whole, partial, source)

    def lacks(self, text: str, since: int) -> list[str]:
        """Of each chain the first literal that `text[since:]` lacks; [] if a match is possible."""
        missing = []
        for chain in self.needs:
            at = since
            for need in chain:
                found = text.find(need, at)
                if found < 0:
                    missing.append(need)
                    break
                at = found + len(need)
        return missing


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """A delimiter on duty. `opens` says whether it opens the field or closes it."""

    field: str
    opens: bool
    delimiter: Delimiter

    @property
    def rank(self) -> tuple[bool, str]:
        """Settles ties of place and length: openers first, then the field's name."""
        return (not self.opens, self.field)


@dataclass(frozen=True, slots=True, eq=False)
class Duty:
    """All that is watched in a state of the machine.

    scout: finds the first place where any of them is found or undecided, in one search instead of
    one for each; most pieces of text have none. None where there is no such pattern, or no need.
    """

    watches: tuple[Watch, ...]
    scout: regex.Pattern[str] | None = field(repr=False)

    @classmethod
    def of(cls, watches: Iterable[Watch]) -> Duty:
        """The duty to look for all of them, as one pattern where that can be."""
        listed = tuple(watches)
        sources = [watch.delimiter.undecided for watch in listed]
        known = [source for source in sources if source is not None]
        if len(known) < max(2, len(listed)):
            return cls(listed, None)
        return cls(
            listed, regex.compile("|".join(f"(?:{source})" for source in known), regex.DOTALL)
        )

    def first(self, text: str, since: int) -> int:
        """Where in the unfinished `text[since:]` something is or may become a delimiter; the text's
        end if nowhere. Only for a duty with a scout."""
        assert self.scout is not None
        match = _search(self.scout, text, since, self.watches[0])
        return len(text) if match is None else match.start()


@dataclass(frozen=True, slots=True)
class Find:
    """What one watch found when it searched from `since`.

    Up to `start` there is nothing, whatever follows. With a match, it stands at `start` in every
    continuation; without, it is undecided whether one stands at `start` or after.
    """

    since: int
    start: int
    match: regex.Match[str] | None


def look(watch: Watch, text: str, since: int, complete: bool) -> Find:
    """The leftmost find of a watch in `text[since:]`. `complete`: no more text will come.

    Raises ResponseParseError where a pattern needs longer than a search may take.
    """
    end = _NOWHERE if complete else len(text)
    if since > len(text):
        return Find(since, max(end, since), None)
    delimiter = watch.delimiter
    if complete:
        if delimiter.lacks(text, since):
            return Find(since, end, None)
        compiled = delimiter.whole
    elif delimiter.partial is None:
        return Find(since, since, None)
    else:
        compiled = delimiter.partial
    match = _search(compiled, text, since, watch)
    if match is None:
        return Find(since, end, None)
    if not complete and match.group(MARK) is not None:
        return Find(since, match.start(), None)
    if watch.opens and match.start() == match.end() == len(text):
        # Nothing is opened by nothing: only more text makes an empty opener count.
        return Find(since, end, None)
    return Find(since, match.start(), match)


def _search(
    compiled: regex.Pattern[str], text: str, since: int, watch: Watch
) -> regex.Match[str] | None:
    if len(text) - since < _LONG_TEXT:
        return compiled.search(text, since)
    try:
        return compiled.search(text, since, timeout=_PATIENCE_SECONDS)
    except TimeoutError:
        which = "open_pattern" if watch.opens else "close_pattern"
        raise ResponseParseError(
            f"its {which} needs more than {_PATIENCE_SECONDS:.0f} s on this text", field=watch.field
        ) from None


def choose(finds: Sequence[tuple[Watch, Find]]) -> tuple[Watch, regex.Match[str]] | int:
    """The delimiter that comes next, or the place from which on nothing is decided yet.

    Leftmost, then longest, then openers before closers, then by field name. A match counts only if
    it starts before everything undecided: at the same place, the other one may turn out longer.
    """
    undecided = min((f.start for _, f in finds if f.match is None), default=_NOWHERE)
    best: tuple[Watch, regex.Match[str]] | None = None
    best_key: tuple[int, int, tuple[bool, str]] | None = None
    for watch, find in finds:
        if find.match is None or find.start >= undecided:
            continue
        key = (find.start, -find.match.end(), watch.rank)
        if best_key is None or key < best_key:
            best, best_key = (watch, find.match), key
    return undecided if best is None else best


def captures(match: regex.Match[str]) -> dict[str, str]:
    """The named groups that took part in a match."""
    named = match.groupdict()
    return {name: text for name, text in named.items() if text is not None and name != MARK}
