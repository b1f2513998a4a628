"""URI references, and dynamic scopes: what ``$dynamicRef`` and ``$recursiveRef`` lead to.

A dynamic reference leads to the outermost schema resource on the way of evaluation that has a
dynamic anchor of its name (2020-12: Core 8.2.3.2; ``$recursiveRef`` in 2019-09: Core 8.2.4.2). So
what a subschema means may depend on the way there. Of that way only this much matters: which
resource came first for each name. A *scope* says that for the names that are still asked for from
its subschema on, so there are finitely many, and schemas without such references have none.

A subschema in a scope has a pointer that begins with ``@`` and the scope's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

RECURSIVE = ""
"""What ``$recursiveAnchor: true`` is called here: no anchor has this name."""


class Anchor(NamedTuple):
    """A dynamic anchor: its resource's root, its name, and where it stands."""

    resource: str
    name: str
    pointer: str


class Scope(NamedTuple):
    """What came first on the way to a resource: for some names the pointer of the outermost
    anchor; and the root of the resource that the last reference led into."""

    anchors: tuple[tuple[str, str], ...]
    resource: str


def defrag(uri: str) -> tuple[str, str]:
    """A URI without its fragment, and the fragment."""
    before, _, fragment = uri.partition("#")
    return before, fragment


def resolve_uri(base: str, reference: str) -> str:
    """A reference resolved against a base URI, of any scheme (RFC 3986, 5.2).

    What is no URI stays as it is.
    """
    if reference.startswith("#"):
        return defrag(base)[0] + reference
    try:
        to, at = urlsplit(reference), urlsplit(base)
    except ValueError:
        return reference
    if to.scheme or not base:
        return reference
    if to.netloc or reference.startswith("//"):
        return to._replace(scheme=at.scheme).geturl()
    if not to.path:
        return SplitResult(
            at.scheme, at.netloc, at.path, to.query or at.query, to.fragment
        ).geturl()
    path = to.path
    if not path.startswith("/"):
        folder = at.path.rpartition("/")[0]
        path = f"{folder}/{path}" if folder or at.netloc or at.path.startswith("/") else path
    path = _without_dots(path)
    return SplitResult(at.scheme, at.netloc, path, to.query, to.fragment).geturl()


def _without_dots(path: str) -> str:
    """RFC 3986, 5.2.4."""
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            if len(kept) > 1 or (kept and kept[0]):
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)


class Scopes:
    """The dynamic scopes of one document.

    Args:
        anchors: all dynamic anchors.
        owner: the root of the resource that a pointer lies in.
        schemas: all schema objects by pointer.
        target: where a static reference leads; raises where it leads nowhere.
    """

    def __init__(
        self,
        anchors: Iterable[Anchor],
        owner: Callable[[str], str],
        schemas: Mapping[str, Mapping[str, Any]],
        target: Callable[[str, Any, str], str | None],
    ) -> None:
        self._owner = owner
        self._schemas = schemas
        self._by_resource: dict[str, dict[str, str]] = {}
        for resource, name, pointer in anchors:
            self._by_resource.setdefault(resource, {}).setdefault(name, pointer)
        self._numbers: dict[Scope, int] = {}
        self._scopes: list[Scope] = []
        self._all = frozenset(name for names in self._by_resource.values() for name in names)
        self._asked = self._find_asked(target)

    def _find_asked(
        self, target: Callable[[str, Any, str], str | None]
    ) -> dict[str, frozenset[str]]:
        """For each resource, the names that references in it, or behind them, may ask for."""
        asked: dict[str, set[str]] = {}
        leads: dict[str, set[str]] = {}
        for pointer, schema in self._schemas.items():
            own = self._owner(pointer)
            names, to = asked.setdefault(own, set()), leads.setdefault(own, set())
            if pointer == own and pointer:  # it may be entered from the one around it
                leads.setdefault(self._owner(pointer.rpartition("/")[0]), set()).add(own)
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                if keyword not in schema:
                    continue
                found = target(keyword, schema[keyword], pointer)
                if found is not None and found not in self._schemas:
                    names |= self._all  # where no schema was expected; nothing is known of it
                elif found is not None:
                    to.add(self._owner(found))
                if keyword != "$ref":
                    name = RECURSIVE
                    if keyword == "$dynamicRef" and isinstance(schema[keyword], str):
                        name = defrag(schema[keyword])[1]
                    names.add(name)
                    to.update(r for r, known in self._by_resource.items() if name in known)
        changed = True
        while changed:
            changed = False
            for resource, others in leads.items():
                mine = asked.setdefault(resource, set())
                size = len(mine)
                mine.update(*(asked.get(other, ()) for other in others))
                changed |= len(mine) > size
        return {resource: frozenset(names) for resource, names in asked.items()}

    def split(self, pointer: str) -> tuple[Scope | None, str]:
        """The scope of a pointer, None if it has none, and the pointer without it."""
        if not pointer.startswith("@"):
            return None, pointer
        root, slash, rest = pointer.partition("/")
        return self._scopes[int(root[1:])], slash + rest

    def anchors_at(self, pointer: str) -> dict[str, str]:
        """The outermost anchor of each name when the subschema at a pointer is evaluated."""
        scope, plain = self.split(pointer)
        found = dict(scope.anchors) if scope is not None else {}
        start = scope.resource if scope is not None else self._owner(plain)
        for resource in self._entered(start, plain):
            for name, anchor in self._by_resource.get(resource, {}).items():
                found.setdefault(name, anchor)
        return found

    def _entered(self, start: str, pointer: str) -> list[str]:
        """The resources on the way from one's root down to a pointer, the outermost first."""
        found = []
        own = self._owner(pointer)
        while True:
            found.append(own)
            if own == start or not own:
                return found[::-1]
            own = self._owner(own.rpartition("/")[0])

    def arrive(self, anchors: Mapping[str, str], target: str) -> str:
        """The pointer of a subschema that a reference leads to, after some outermost anchors."""
        own = self._owner(target)
        asked = self._asked.get(own, frozenset()) if target in self._schemas else self._all
        if not asked:
            return target
        known = dict(anchors)
        for name, anchor in self._by_resource.get(own, {}).items():
            known.setdefault(name, anchor)
        kept = tuple(sorted((n, a) for n, a in known.items() if n in asked))
        scope = Scope(kept, own)
        number = self._numbers.setdefault(scope, len(self._scopes))
        if number == len(self._scopes):
            self._scopes.append(scope)
        return f"@{number}{target}"
