"""The regular languages of a schema's strings, keys and numbers, made once per workspace.

Patterns, formats and bounds are shared by their text: two schemas with the same ``pattern`` use the
same automaton, and every mask that was ever computed of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from grammar.content import Content
from grammar.decide import length_part
from grammar.ecma import RegexSyntaxError, RegexUnsupportedError, parse_full, parse_search
from grammar.errors import Issue, SchemaBudgetError
from grammar.formats import WHOLE, format_language, may_be_of_format
from grammar.numbers import integer_language, multiple_of_number, number_language
from grammar.regular import RegexBudgetError, RegexBuilder, Rx
from grammar.schema import keywords as kw
from grammar.schema.bounds import Bounds, Others
from grammar.schema.document import NONE, NOT_ENCODING, NOT_FORMAT, NOT_PATTERN, Document
from grammar.schema.extraction import Extractions
from grammar.schema.flatten import Conjunction
from grammar.workspace import Workspace

if TYPE_CHECKING:
    from grammar.schema.merge import Merger

EXACT_INTEGER = "-?[0-9]{1,15}"
"""Only these are also written with ``.0``: readers take that as a double, which must hold them."""
BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
"""RFC 4648, section 4, with padding and without line breaks."""

_JSON_TYPE = re.compile(r"(?i)^[a-z]+/(?:[\w.-]+\+)?json\b")
"""Media types of JSON (RFC 8259, and RFC 6839 for the suffix), with parameters or without."""


class Languages:
    """Languages over one workspace; the caller holds its lock, and says where the schema stood if
    ``RegexBudgetError`` ends the work.

    Args:
        workspace: where languages are kept.
        report: called with every issue met.
        note: called with every bound that is narrower than the schema.
        source: what ``x-extract`` extracts from.
    """

    def __init__(
        self,
        workspace: Workspace,
        document: Document,
        report: Callable[[Issue], None],
        note: Callable[[str], None],
        source: str | None = None,
    ) -> None:
        self.builder = workspace.builder
        self._kept = workspace.languages
        self._schema = document.schema
        self._asserts_content = document.asserts_content
        self._float_integers = document.float_integers
        self._report = report
        self._note = note
        #: The terminals of ``x-extract``.
        self.extractions = Extractions(source, workspace.builder)

    def _keep(self, key: Hashable, make: Callable[[], Rx]) -> Rx:
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = make()
        assert isinstance(found, Rx)
        return found

    # -- strings --------------------------------------------------------------------------------

    def _pattern(self, pattern: Any, pointer: str, keyword: str) -> Rx | None:
        if not isinstance(pattern, str):
            raise kw.fault(keyword, pointer, "must be a string")
        try:
            return self._keep(("pattern", pattern), lambda: parse_search(self.builder, pattern))
        except RegexSyntaxError as error:
            raise kw.fault(keyword, pointer, f"no regular expression: {error}") from None
        except RegexUnsupportedError as error:
            self._report(Issue(keyword, pointer, str(error)))
        except RegexBudgetError as error:
            raise SchemaBudgetError(str(error), pointer=pointer, keyword=keyword) from None
        return None

    def of_string(self, schema: Mapping[str, Any], pointer: str) -> list[Rx]:
        """The languages of ``pattern`` and ``format``; what can't be had is reported."""
        result = []
        if "pattern" in schema:
            language = self._pattern(schema["pattern"], pointer, "pattern")
            result += [] if language is None else [language]
        if NOT_PATTERN in schema:
            language = self._pattern(schema[NOT_PATTERN], pointer, "pattern")
            result += [] if language is None else [self.builder.complement(language)]
        if NOT_FORMAT in schema:
            result.append(self._no_format(schema[NOT_FORMAT]))
        if NOT_ENCODING in schema:
            result.append(self.builder.complement(self._base64()))
        words = [value for value in schema.get(NONE, ()) if isinstance(value, str)]
        if words:
            result.append(self.builder.complement(self.builder.literals(sorted(set(words)))))
        name = kw.string(schema, "format", pointer)
        if name is not None:
            language = self._format(name, pointer)
            result += [] if language is None else [language]
        self._report_content(schema, pointer)
        encoding = kw.string(schema, "contentEncoding", pointer)
        if encoding is not None and encoding.lower() == "base64":
            result.append(self._base64())
        elif encoding is not None:
            self._note(f"contentEncoding {encoding!r} is an annotation: ignored")
        return result

    def _report_content(self, schema: Mapping[str, Any], pointer: str) -> None:
        """Draft 7 lets a media type be an assertion (Validation 8); others have an annotation."""
        media = kw.string(schema, "contentMediaType", pointer)
        if media is not None and self._asserts_content and _JSON_TYPE.search(media):
            reason = f"that a string holds {media!r:.60} is not enforced"
            self._report(Issue("contentMediaType", pointer, reason))

    def _base64(self) -> Rx:
        return self._keep("base64", lambda: parse_full(self.builder, BASE64))

    def _no_format(self, name: str) -> Rx:
        """What is certainly not of a format."""
        if name not in WHOLE:
            self._note(f"strings that must not be of format {name} don't resemble one")
        return self._keep(
            ("no format", name),
            lambda: self.builder.complement(may_be_of_format(self.builder, name)),
        )

    def _format(self, name: str, pointer: str) -> Rx | None:
        early = not self._float_integers  # drafts up to 4
        key = ("format", name, early)
        if key not in self._kept:
            language = format_language(self.builder, name, early=early)
            if language is None:
                if name in kw.FORMATS:
                    self._report(Issue("format", pointer, f"{name!r} is not enforced"))
                else:
                    self._note(f"format {name!r} is not one that JSON Schema defines: ignored")
                return None
            self._kept[key] = language
        return self._keep(key, lambda: self.builder.empty)

    def content(self, parts: list[Rx], least: int, most: int | None) -> Content | None:
        """What a string may hold, or None if nothing fits."""
        if most is not None and least > most:
            return None
        if not parts:
            return Content(None, least, most)
        language = self.builder.intersect(*parts)
        if language.is_empty():
            return None
        language, least, most = _counted(language, least, most)
        if language.is_universal():
            return Content(None, least, most)
        bounded = least > 0 or most is not None
        if bounded and not self.builder.length_window_nonempty(language, least, most):
            return None
        return Content(language, least, most)

    def matches(self, pointer: str, text: str) -> bool:
        """Whether a constant satisfies one schema object's ``pattern`` and ``format``."""
        schema = self._schema(pointer)
        assert isinstance(schema, dict)
        if not self.extractions.holds(schema, pointer, text):
            return False
        return all(language.matches(text) for language in self.of_string(schema, pointer))

    # -- keys -----------------------------------------------------------------------------------

    def key_pattern(self, pattern: str, pointer: str) -> Rx:
        """The language of a pattern of ``patternProperties``; everything, if that is reported."""
        language = self._pattern(pattern, pointer, "patternProperties")
        return self.builder.star(self.builder.any_char) if language is None else language

    def key_matches(self, pattern: str, pointer: str, key: str) -> bool:
        """Whether a key matches a pattern of ``patternProperties``."""
        return self.key_pattern(pattern, pointer).matches(key)

    def of_keys(self, merger: Merger, conjunction: Conjunction) -> Rx:
        """The strings that a conjunction (of ``propertyNames``) accepts."""
        from grammar.schema.merge import ExtractSpec, StringSpec, WordsSpec  # which uses this

        builder = self.builder
        parts: list[Rx] = []
        for alternative in merger.conjunction(conjunction):
            for spec in merger.specs(alternative):
                if isinstance(spec, StringSpec):
                    language, least, most = spec.content
                    any_char = builder.any_char
                    own = builder.repeat(any_char, least, most)
                    if language is not None:
                        assert isinstance(language, Rx)
                        own = builder.intersect(own, language)
                    parts.append(own)
                elif isinstance(spec, ExtractSpec):
                    reason = "is not enforced on the keys of an object"
                    self._report(Issue("x-extract", conjunction[-1], reason))
                    parts.append(builder.universe)
                elif isinstance(spec, WordsSpec):
                    values = [json.loads(text) for text in spec.texts]
                    parts.append(builder.literals([v for v in values if isinstance(v, str)]))
        return builder.union(*parts) if parts else builder.empty

    # -- numbers --------------------------------------------------------------------------------

    def number(self, bounds: Bounds, integer: bool, divided: str, others: Others) -> Rx | None:
        """The numbers within bounds, as JSON texts; None if there are none.

        ``divided`` is the pointer of the schema object that says ``multipleOf``, for reports;
        ``others`` are numbers left out (then none is written with an exponent).
        """
        if bounds.is_empty():
            return None
        language = self._keep(
            ("number", bounds.undivided(), integer), lambda: self._number(bounds, integer)
        )
        multiples = [self._multiple(divisor, divided) for divisor in bounds.divisors]
        found = [language, *(m for m in multiples if m is not None)]
        language = self.builder.intersect(*found) if len(found) > 1 else language
        if integer and self._float_integers and not language.is_empty():  # 1.0, Core 4.2.3
            exact = self._keep("exact", lambda: parse_full(self.builder, EXACT_INTEGER))
            small = self.builder.intersect(language, exact)
            written = self.builder.concat(small, self.builder.literal(".0"))
            language = self.builder.union(language, written)
        if others:
            language = self._without(language, others, divided)
        return None if language.is_empty() else language

    def _without(self, language: Rx, others: Others, pointer: str) -> Rx:
        builder = self.builder
        plain = parse_full(builder, "-?[0-9]+(\\.[0-9]+)?")
        out = []
        for value in others.values:
            builder.breathe()
            out.append(_spellings(builder, value))
        if others.integers:
            out.append(parse_full(builder, "-?[0-9]+(\\.0+)?"))
        for divisor in others.divisors:
            multiples = self._multiple(divisor, pointer)
            if multiples is not None:
                whole = parse_full(builder, "-?[0-9]+")
                zeros = builder.repeat(builder.literal("0"), 0, None)
                out += [
                    builder.concat(builder.difference(multiples, whole), zeros),
                    builder.concat(
                        builder.intersect(multiples, whole), parse_full(builder, "(\\.0+)?")
                    ),
                    _spellings(builder, Fraction(0)),
                ]
        kept = [language, plain]
        if others.integers:
            kept.append(self._keep("fractional", lambda: _fractional(builder)))
        return builder.difference(builder.intersect(*kept), builder.union(*out))

    def _multiple(self, divisor: Fraction, pointer: str) -> Rx | None:
        try:
            return self._keep(
                ("multiple", divisor), lambda: multiple_of_number(self.builder, divisor)
            )
        except RegexBudgetError:
            raise
        except ValueError as error:
            self._report(Issue("multipleOf", pointer, str(error)))
            return None

    def _number(self, bounds: Bounds, integer: bool) -> Rx:
        if integer:
            return integer_language(self.builder, *bounds.integers())
        return number_language(
            self.builder,
            minimum=None if bounds.open_minimum else bounds.minimum,
            maximum=None if bounds.open_maximum else bounds.maximum,
            exclusive_minimum=bounds.minimum if bounds.open_minimum else None,
            exclusive_maximum=bounds.maximum if bounds.open_maximum else None,
        )


def _counted(language: Rx, least: int, most: int | None) -> tuple[Rx, int, int | None]:
    """The language and its bounds, with a bound that the language itself has among them.

    Beside the language a length is counted only near its bound, so more states share their masks.
    """
    window = length_part(language.builder, language)
    if window is None:
        return language, least, most
    rest, low, high = window
    bound = most if high is None else high if most is None else min(high, most)
    return rest, max(least, low), bound


def _spellings(builder: RegexBuilder, value: Fraction) -> Rx:
    """Every way to write a terminating decimal without an exponent (and nothing else)."""
    sign = "-?" if value == 0 else "-" if value < 0 else ""
    whole, _, digits = format(Decimal(abs(value.numerator)) / value.denominator, "f").partition(".")
    digits = digits.rstrip("0")
    tail = f"\\.{digits}0*" if digits else "(\\.0+)?"
    return parse_full(builder, sign + whole + tail)


def _fractional(builder: RegexBuilder) -> Rx:
    """Numbers without exponent that are no integers, and aren't read as one either.

    A reader keeps a double, which holds any 15 digits apart (IEEE 754, binary64): so of the first
    15 digits those behind the point must not be all ``0``, nor all ``9`` where more follow.
    """
    options = []
    for before in range(1, 15):
        whole = "[0-9]" if before == 1 else f"[1-9][0-9]{{{before - 1}}}"
        behind = 15 - before
        short = builder.difference(
            parse_full(builder, f"[0-9]{{1,{behind}}}"), parse_full(builder, f"0{{1,{behind}}}")
        )
        exact = builder.difference(
            parse_full(builder, f"[0-9]{{{behind}}}"),
            parse_full(builder, f"0{{{behind}}}|9{{{behind}}}"),
        )
        longer = builder.concat(exact, parse_full(builder, "[0-9]+"))
        begin = parse_full(builder, f"-?{whole}\\.")
        options.append(builder.concat(begin, builder.union(short, longer)))
    return builder.union(*options)
