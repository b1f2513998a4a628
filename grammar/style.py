"""White space between the tokens of a JSON text: which gaps a style allows, and where.

A style is fixed for a whole answer. ``adaptive`` is not a style but a set of them that start
together: the first gap that tells them apart settles it, since only one of them survives it.

====================  ==========================================================================
``compact``           no white space at all
``fixed``             ``", "`` and ``": "``, the one-line style that models write most
``pretty2/4``, tab    one item a line, indented; ``": "`` after keys; ``[]`` and ``{}`` empty
``flexible``          any gap of up to 2 line breaks and ``MAX_BLANKS`` blanks after them
====================  ==========================================================================

White space is always bounded: an unbounded run lets a model pad until the token limit.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_BLANKS = 128


@dataclass(frozen=True, slots=True)
class Style:
    """How gaps are written. ``indent`` None means one line; ``flexible`` overrides the rest.

    ``quote`` stands around declared keys: JSON's, or that of a dialect (``dialects.py``).
    """

    name: str
    comma: bytes = b""
    colon: bytes = b""
    indent: bytes | None = None
    flexible: bool = False
    quote: bytes = b'"'

    def line(self, depth: int) -> bytes:
        """The gap after an opening bracket at nesting ``depth``, or before the closing one."""
        return b"" if self.indent is None else b"\n" + self.indent * depth

    def after_comma(self, depth: int) -> bytes:
        """The gap after a comma between items at nesting ``depth``."""
        return self.comma if self.indent is None else b"\n" + self.indent * depth


COMPACT = Style("compact")
FIXED = Style("fixed", comma=b" ", colon=b" ")
PRETTY = Style("pretty", colon=b" ", indent=b"  ")
PRETTY_4 = Style("pretty4", colon=b" ", indent=b"    ")
PRETTY_TAB = Style("tab", colon=b" ", indent=b"\t")
FLEXIBLE = Style("flexible", flexible=True)

WHITESPACE_MODES: dict[str, tuple[Style, ...]] = {
    "compact": (COMPACT,),
    "fixed": (FIXED,),
    "pretty": (PRETTY,),
    "adaptive": (FIXED, COMPACT, PRETTY, PRETTY_4, PRETTY_TAB),
    "flexible": (FLEXIBLE,),
}
