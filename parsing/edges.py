r"""Rewrites a pattern so that one search says "decided" or "undecided" about an unfinished text.

A text is streamed; what we hold is the beginning of a whole text that we don't know. A match found
now counts only if no continuation can change it. The `regex` module's own partial matching can't
tell: it prefers a complete match anywhere to a partial one further left, and judges `\b`, `$` and
look-aheads as if the text ended here.

So, with E = `\Z(?P<mark>)` (true at the edge only, and leaves a mark):

| piece                  | becomes                           | meaning at the edge              |
|------------------------|-----------------------------------|----------------------------------|
| one character X        | `(?:X\|E)`                        | X may still come: marked         |
| `X*`                   | `(?:X*+E\|X*)`                    | more X may come: marked          |
| `\b`                   | `(?:\b(?!\Z)\|E)`                 | depends on the next character    |
| `$`                    | `(?:\Z\|(?=\n\Z))` + mark         | true only if nothing follows     |
| `^`, look-behind B     | `(?:B\|E)`                        | reads what has not come yet      |
| `(?=Y)` without groups | `(?:(?=sure Y)\|(?=edge Y))`      | sure first, else marked          |
| `(?!Y)`                | `(?:(?!edge Y)\|(?!sure Y)mark)`  | neither sure nor excluded        |

A backtracking matcher tries paths in a fixed order and takes the first that succeeds. The rewritten
pattern tries the same paths in the same order, and a path that needs a character beyond the edge
succeeds there, marked. So the leftmost match of the rewritten pattern is either unmarked, and then
is the match in every whole text that starts like this one; or marked, and then everything from its
start on is undecided; and no match means none can start anywhere in the text held.
"sure Y" is Y with the tests that look at the edge made strict; "edge Y" is the same rewriting
without marks or names.

Searches are guarded against quadratic cost too: where a pattern starts with `C*`, a match that
starts inside a run of C would have started at the run's beginning, so it may start there or where
the search starts (`\G`), and nowhere else in the run.
"""

from __future__ import annotations

from collections.abc import Callable

from parsing.measures import group_names
from parsing.syntax import (
    Ahead,
    Alt,
    Assertion,
    Atom,
    Behind,
    Group,
    Node,
    Repeat,
    Seq,
)

_Writer = Callable[[Node], str]

MARK = "gabarito_edge_mark"
_MARKED = rf"\Z(?P<{MARK}>)"
_SET_MARK = f"(?P<{MARK}>)"


def undecided_form(node: Node) -> str:
    """The source of the rewritten pattern (see above), guarded."""
    form = _guarded(node, lambda part: _edge(part, mark=True))
    return form if MARK in form else f"{form}(?:(?!){_SET_MARK}|)"


def guarded_form(node: Node, source: str) -> str:
    """The pattern itself for a whole text, with a guard where that can be put in front."""
    guard = _guard_class(node)
    return source if guard is None else f"{_guard(guard)}(?:{source})"


def _edge(node: Node, *, mark: bool) -> str:
    """The piece by piece rewriting; without `mark` it only tells that the edge could be reached."""
    edge = _MARKED if mark else r"\Z"
    match node:
        case Atom():
            return f"(?:{node.source}|{edge})"
        case Seq():
            return _edge_sequence(node.items, mark)
        case Alt():
            return "(?:" + "|".join(_edge(option, mark=mark) for option in node.options) + ")"
        case Group():
            opening = "(?:" if node.name and not mark else node.opening
            return f"{opening}{_edge(node.item, mark=mark)})"
        case Repeat():
            return _edge_repeat(node, mark)
        case Assertion():
            return _edge_assertion(node, mark)
        case Behind():
            return f"(?:{node.source}|{edge})"
        case Ahead(negative=True):
            possible, sure = _edge(node.item, mark=False), _sure(node.item)
            return f"(?:(?!{possible})|(?!{sure}){_SET_MARK if mark else ''})"
        case Ahead():
            if group_names(node.item):
                return f"(?={_edge(node.item, mark=mark)})"
            return f"(?:(?={_sure(node.item)})|(?={_edge(node.item, mark=mark)}))"


def _edge_sequence(items: tuple[Node, ...], mark: bool) -> str:
    """Runs of single characters are nested, `(?:a(?:b|E)|E)`: what follows is tried once."""
    edge = _MARKED if mark else r"\Z"
    out: list[str] = []
    index = 0
    while index < len(items):
        stop = index
        while stop < len(items) and isinstance(items[stop], Atom) and stop - index < 40:
            stop += 1
        if stop == index:
            out.append(_edge(items[index], mark=mark))
            index += 1
            continue
        sources = [item.source for item in items[index:stop] if isinstance(item, Atom)]
        out.append("".join(f"(?:{source}" for source in sources) + f"|{edge})" * len(sources))
        index = stop
    return "".join(out)


def _edge_repeat(node: Repeat, mark: bool) -> str:
    edge = _MARKED if mark else r"\Z"
    if isinstance(node.item, Atom) and node.high != 0:
        source = node.item.source
        if node.mode != "?":
            before = "" if node.high is None else str(node.high - 1)
            return f"(?:{source}{{0,{before}}}+{edge}|{source}{node.count}{node.mode})"
        if node.high is None and node.low == 0:
            return f"{source}*?(?:|{edge})"
    return f"(?:{_edge(node.item, mark=mark)}){node.count}{node.mode}"


def _edge_assertion(node: Assertion, mark: bool) -> str:
    edge = _MARKED if mark else r"\Z"
    match node.kind:
        case "end":
            return rf"(?:\Z|(?=\n\Z)){_SET_MARK if mark else ''}"
        case "stop":
            return edge
        case "word":
            return rf"(?:{node.source}(?!\Z)|{edge})"
        case _:
            return f"(?:{node.source}|{edge})"


def _sure(node: Node) -> str:
    """The pattern as it is where its truth can't be changed by what comes."""
    match node:
        case Atom() | Behind():
            return node.source
        case Seq():
            return "".join(_sure(item) for item in node.items)
        case Alt():
            return "(?:" + "|".join(_sure(option) for option in node.options) + ")"
        case Group():
            return f"{'(?:' if node.name else node.opening}{_sure(node.item)})"
        case Repeat():
            return f"(?:{_sure(node.item)}){node.count}{node.mode}"
        case Ahead(negative=True):
            return f"(?!{_edge(node.item, mark=False)})"
        case Ahead():
            return f"(?={_sure(node.item)})"
        case Assertion():
            return {
                "end": "(?!)",
                "stop": "(?!)",
                "word": rf"{node.source}(?!\Z)",
            }.get(node.kind, node.source)


# --- the guard against restarting inside a run -----------------------------------------------


def _guard(source: str) -> str:
    return rf"(?:\G|(?<!{source}))"


def _guarded(node: Node, write: _Writer) -> str:
    guard = _guard_class(node)
    if guard is not None:
        return _guard(guard) + write(node)
    if isinstance(node, Seq) and len(node.items) > 1:
        # `A?C*...`: a match that skips A may be guarded, one that starts with A may not.
        first, rest = node.items[0], Seq(node.items[1:])
        guard = _guard_class(rest)
        optional = isinstance(first, Repeat) and (first.low, first.high) == (0, 1)
        if optional and guard is not None and isinstance(first, Repeat) and first.mode == "":
            return f"(?:{write(first.item)}|{_guard(guard)}){write(rest)}"
    return write(node)


def _guard_class(node: Node) -> str | None:
    """C, where every match of the node could as well start one C further left."""
    match node:
        case Repeat(item=Atom(), high=None):
            return node.item.source if node.mode != "+" and isinstance(node.item, Atom) else None
        case Group():
            return _guard_class(node.item) if node.opening == "(?:" or node.name else None
        case Alt():
            classes = {_guard_class(option) for option in node.options}
            return classes.pop() if len(classes) == 1 else None
        case Seq(items=(first, *rest)) if rest:
            if isinstance(first, Repeat) and (first.low, first.high) == (0, 1):
                classes = {_guard_class(first.item), _guard_class(Seq(tuple(rest)))}
                return classes.pop() if len(classes) == 1 else None
            return _guard_class(first)
        case Seq(items=(first,)):
            return _guard_class(first)
        case _:
            return None
