"""The format `regex`: patterns of ECMA-262 that the engines of common validators compile, too.

Whether a text is a pattern is no regular question (brackets nest), so this is a bounded part:
groups within groups to a depth of `MAX_GROUPS`, and only what ECMA-262's Unicode mode and the
engines of Python and Rust accept alike.

Read next: `grammar.formats`.
"""

from __future__ import annotations

from typing import Final

from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

#: How deep groups nest.
MAX_GROUPS: Final = 3

#: Characters that stand for themselves: those of ASCII that no engine gives a meaning, and letters
#: beyond.
_PLAIN: Final = r"[A-Za-z0-9 _!\"#%&',\-:;<=>@`~\u00a1-\u00ff\u0391-\u03c9\u0410-\u044f]"
_ESCAPE: Final = r"\\(?:[dDwWsStnrfv]|[\^$\\.*+?()\[\]{}|\/]|x[0-7][0-9a-fA-F]|u00[0-9a-fA-F]{2})"
#: Inside a class: nothing that an engine might take for a set operation, ranges that don't run
#: backwards.
_MEMBER: Final = r"(?:a-z|A-Z|0-9|[A-Za-z0-9_ !\"#%',:;<=>@.*+?()$\/]|\\-|" + _ESCAPE + ")"
_QUANTIFIER: Final = r"(?:(?:[*+?]|\{\d{1,2}\}|\{\d{1,2},\}|\{[01],[1-9]\d?\})\??)?"
_ASSERTION: Final = r"[\^$]|\\b"


def regex(builder: RegexBuilder) -> Rx:
    """Patterns: plain characters, escapes, classes, quantifiers, alternatives, assertions, groups
    and look-aheads.

    Narrower: groups nest three deep, none has a name, no look-behind, no back-reference, no `\\p`,
    no `\\B`, no ranges in classes but `a-z`, `A-Z` and `0-9`, counts of at most two digits.
    """
    atom = parse_full(builder, rf"{_PLAIN}|\.|{_ESCAPE}|\[\^?{_MEMBER}+\]")
    quantifier = parse_full(builder, _QUANTIFIER)
    assertion = parse_full(builder, _ASSERTION)
    bar = builder.literal("|")
    pattern = builder.epsilon
    for depth in range(MAX_GROUPS + 1):
        terms = [builder.concat(atom, quantifier), assertion]
        if depth:
            close = builder.literal(")")
            group = builder.concat(parse_full(builder, r"\((?:\?:)?"), pattern, close)
            ahead = builder.concat(parse_full(builder, r"\(\?[=!]"), pattern, close)
            terms += [builder.concat(group, quantifier), ahead]
        row = builder.star(builder.union(*terms))
        pattern = builder.concat(row, builder.star(builder.concat(bar, row)))
    return pattern
