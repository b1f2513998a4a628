"""What a compilation says of its schema: what it enforces, what it does not, and the bounds."""

from __future__ import annotations

from collections.abc import Iterable

from grammar.errors import Issue
from grammar.matcher import Report
from grammar.schema import keywords as kw
from grammar.schema.document import Document


def report_of(
    document: Document, issues: Iterable[Issue], notes: Iterable[str], visited: Iterable[str]
) -> Report:
    """What is enforced, what is not, and what was ignored.

    Args:
        document: the schema.
        issues: what can't be enforced.
        notes: bounds that were met.
        visited: the pointers of the schema objects that some rule was made of.
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
    for pointer in sorted({document.origin(p) for p in visited if not p.startswith("!")}):
        schema = document.schema(pointer)
        assert isinstance(schema, dict)
        for keyword in schema:
            if keyword not in kw.KNOWN:
                said.setdefault(f"{keyword} at {pointer or '(root)'} is no keyword: ignored")
            elif keyword not in kw.ANNOTATIONS and (keyword, pointer) not in left_out:
                enforced.add(keyword)
    return Report(tuple(sorted(enforced)), unenforced, tuple(said))
