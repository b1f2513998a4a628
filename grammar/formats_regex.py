"""The format `regex`: patterns of ECMA-262 in Unicode mode.

Whether a text is a pattern is no regular question (brackets nest, names recur), so this is a
bounded part: groups within groups to a depth of `MAX_GROUPS`, and one named group.

Read next: `grammar.formats`.
"""

from __future__ import annotations

from string import ascii_lowercase
from typing import Final

from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

#: How deep groups nest.
MAX_GROUPS: Final = 3

#: Characters that stand for themselves: those of ASCII that are no syntax, and letters beyond.
_PLAIN: Final = r"[A-Za-z0-9 _!\"#%&',\-:;<=>@`~\u00a1-\u00ff\u0391-\u03c9\u0410-\u044f]"
_CATEGORY: Final = (
    "C[cfnos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|"
    "Any|ASCII|Alphabetic|Lowercase|Uppercase|White_Space"
)
_ESCAPE: Final = (
    r"\\(?:[dDwWsStnrfv]|c[A-Za-z]|[\^$\\.*+?()\[\]{}|\/]|x[0-9a-fA-F]{2}"
    rf"|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{{3}}|[dD][0-7][0-9a-fA-F]{{2}})|[pP]\{{(?:{_CATEGORY})\}})"
)
#: Ranges that don't run backwards: from the first or to the last of their kind.
_RANGE: Final = "a-[a-z]|[a-z]-z|A-[A-Z]|[A-Z]-Z|0-[0-9]|[0-9]-9"
_MEMBER: Final = (
    rf"(?:{_RANGE}|[A-Za-z0-9_ !\"#%',:;<=>@.*+?()$\/\u00a1-\u00ff\u0391-\u03c9\u0410-\u044f]"
    rf"|\\-|{_ESCAPE})"
)
_QUANTIFIER: Final = r"(?:(?:[*+?]|\{\d{1,2}\}|\{\d{1,2},\}|\{[01],[1-9]\d?\})\??)?"
_ASSERTION: Final = r"[\^$]|\\[bB]"
_NAME: Final = r"[A-Za-z_$][A-Za-z0-9_$]*"


def regex(builder: RegexBuilder) -> Rx:
    """Patterns: plain characters, escapes, classes, quantifiers, alternatives, assertions, groups,
    look-ahead and look-behind.

    Narrower: groups nest three deep; one has a name at most, on the outermost level, and a
    reference back only if the name is a small letter; no references by number; in classes ranges of
    ASCII letters and digits from the first or to the last of their kind; counts of two digits.
    """
    atom = parse_full(builder, rf"{_PLAIN}|\.|{_ESCAPE}|\[\^?(?:-?{_MEMBER}+-?|-?)\]")
    quantifier = parse_full(builder, _QUANTIFIER)
    assertion = parse_full(builder, _ASSERTION)
    bar, close = builder.literal("|"), builder.literal(")")
    pattern = builder.epsilon
    for depth in range(MAX_GROUPS + 1):
        terms = [builder.concat(atom, quantifier), assertion]
        inner = pattern
        if depth:
            group = builder.concat(parse_full(builder, r"\((?:\?:)?"), inner, close)
            look = builder.concat(parse_full(builder, r"\(\?<?[=!]"), inner, close)
            terms += [builder.concat(group, quantifier), look]
        row = builder.star(builder.union(*terms))
        pattern = builder.concat(row, builder.star(builder.concat(bar, row)))
    body = builder.concat(builder.literal(">"), inner, close, quantifier, pattern)
    named = [builder.concat(parse_full(builder, _NAME), body)]
    for letter in ascii_lowercase:
        name = builder.literal(letter)
        back = builder.concat(builder.literal("\\k<"), name, builder.literal(">"), quantifier)
        named.append(builder.concat(name, body, back, pattern))
    once = builder.concat(pattern, builder.literal("(?<"), builder.union(*named))
    return builder.union(pattern, once)
