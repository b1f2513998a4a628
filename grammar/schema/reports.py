"""What a compilation says of its schema: what it enforces, what it does not, and the bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grammar.errors import Issue
from grammar.matcher import Report
from grammar.schema import keywords as kw
from grammar.schema.document import Document


def report_of(
    document: Document,
    issues: Iterable[Issue],
    notes: Iterable[str],
    visited: Mapping[str, Mapping[str, Any]],
) -> Report:
    """What is enforced, what is not, and what was ignored.

    Args:
        document: the schema.
        issues: what can't be enforced.
        notes: bounds that were met.
        visited: the schema objects that some rule was made of, by pointer.
    """
    enforced: set[str] = set()
    unenforced = tuple(issues)
    said = dict.fromkeys(notes)
    left_out = {(issue.keyword, issue.pointer) for issue in unenforced}
    for keyword, pointer in document.ignored:
        if keyword in document.annotations:
            why = "asserts nothing, since formats are annotations here"
        else:
            why = f"is no keyword of {document.dialect(pointer).draft}: ignored"
        said.setdefault(f"{keyword} at {pointer or '(root)'} {why}")
    ours = [p for p in visited if p[:1] != "!"]
    for pointer in ours:
        enforced.update(visited[pointer])
    if left_out or not enforced <= kw.KNOWN:
        enforced.clear()
        for pointer in sorted(set(map(document.origin, ours))):
            schema = document.schema(pointer)
            assert isinstance(schema, dict)
            for keyword in schema:
                if keyword not in kw.KNOWN:
                    said.setdefault(f"{keyword} at {pointer or '(root)'} is no keyword: ignored")
                elif (keyword, pointer) not in left_out:
                    enforced.add(keyword)
    enforced -= kw.ANNOTATIONS
    return Report(tuple(sorted(enforced)), unenforced, tuple(said))
