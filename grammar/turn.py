"""A whole turn of a chat as one grammar: free text, delimiters, and values of other languages.

Regular stretches become terminals (``marks.MarkedText``, so special tokens are steps in them), JSON
values keep their own nodes behind a ``Styled``, and ``rules.RuleTable`` ties them together. Nodes
stand in the grammar's list in this order: those of each value, the rules, the ``Styled`` ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from grammar.arguments import Arguments
from grammar.budget import Budget, Clock, OutOfTimeError
from grammar.charset import CharSet
from grammar.dialects import DialectWriter
from grammar.ecma import RegexSyntaxError, RegexUnsupportedError, parse_full
from grammar.errors import (
    GrammarSourceError,
    Issue,
    SchemaBudgetError,
    SchemaError,
    UnsupportedSchemaError,
)
from grammar.gbnf import regular_language
from grammar.gbnf_syntax import source_error
from grammar.marks import TEXT, Marks
from grammar.matcher import Grammar, Report
from grammar.nodes import Node, Styled
from grammar.regular import RegexBudgetError, Rx
from grammar.rules import Alternatives, Called, Item, Language, Made, RuleTable
from grammar.schema.compile import KEY_ORDERS
from grammar.schema.compiler import SchemaCompiler
from grammar.schema.document import Document
from grammar.schema.keywords import FORMAT_MODES
from grammar.style import COMPACT, WHITESPACE_MODES, Style
from grammar.turn_parts import (
    TRIMMED,
    Alt,
    ArgumentsValue,
    Both,
    Chars,
    ChoiceValue,
    Free,
    GbnfValue,
    JsonValue,
    Look,
    Marked,
    Part,
    PatternValue,
    Repeat,
    Seq,
    Text,
    Timed,
    Turn,
    Value,
)
from grammar.vocabulary import Vocabulary
from grammar.workspace import Workspace
from grammar.writing import without

_SPACE = CharSet((code, code) for code in range(0x3001) if chr(code).isspace())
"""What counts as white space at the ends of a text: there is none beyond."""


def compile_turn(
    turn: Turn,
    vocabulary: Vocabulary,
    *,
    whitespace: str = "adaptive",
    budget: Budget | None = None,
) -> Grammar:
    """Compile a turn to a grammar of everything the model may write in it.

    ``Report.unenforced`` has the issues of all values, with pointers as their ``origins`` say.

    Args:
        whitespace: of JSON values, one of ``WHITESPACE_MODES``.
        budget: what the compilation may cost; None for the default.

    Raises:
        SchemaError: a JSON value's schema is at fault; its pointer is as ``origins`` say.
        GrammarSourceError: another value is at fault, no turn fits, or it costs too much.
        ValueError: an unknown white-space mode.
    """
    if whitespace not in WHITESPACE_MODES:
        raise ValueError(f"whitespace must be one of {', '.join(WHITESPACE_MODES)}")
    limit = budget if budget is not None else Budget()
    try:
        with vocabulary.compiling(limit.regex_steps, Clock(limit.seconds)) as workspace:
            maker = _Maker(turn, workspace, Marks(vocabulary), limit, whitespace)
            nodes, root = maker.make()
            return Grammar(vocabulary, nodes, root, (COMPACT,), maker.report(), workspace=workspace)
    except (RegexBudgetError, OutOfTimeError) as error:
        raise GrammarSourceError(str(error), problem="too complex") from None


class _Maker:
    def __init__(
        self, turn: Turn, workspace: Workspace, marks: Marks, budget: Budget, whitespace: str
    ) -> None:
        self._turn = turn
        self._workspace = workspace
        self._builder = workspace.builder
        self._marks = marks
        self._budget = budget
        self._styles = WHITESPACE_MODES[whitespace]
        self._issues: dict[Issue, None] = {}
        self._notes: dict[str, None] = {}
        self._enforced: set[str] = set()
        self._text = self._builder.star(self._builder.chars(TEXT))
        self._languages: dict[tuple[Part, bool], Rx] = {}

    def make(self) -> tuple[list[Node], int]:
        """The nodes and the root's number."""
        nodes: list[Node] = []
        made: list[Styled | None] = []
        waiting: dict[int, tuple[Arguments, tuple[Style, ...]]] = {}
        for at, value in enumerate(self._turn.values):
            root = len(nodes)
            styled = None
            if isinstance(value, JsonValue):
                found, styles = self._json(value, root)
                nodes += found
                styled = Styled(root, styles)
            elif isinstance(value, ArgumentsValue):
                found, arguments, styles = self._arguments(value, root)
                nodes += found
                waiting[at] = (arguments, styles)
            made.append(styled)
        table = RuleTable(self._workspace, self._budget.rules, self._too_many, base=len(nodes))
        table.new()  # the root, which ``_Filler`` fills
        items: list[Item] = []
        for at, value in enumerate(self._turn.values):
            styled = made[at]
            if styled is not None:
                table.made.append(styled)
                items.append(Made(len(table.made) - 1))
            elif at in waiting:
                arguments, styles = waiting[at]
                items.append(Called(arguments.fill(table, styles)))
            else:
                assert not isinstance(value, JsonValue | ArgumentsValue)
                items.append(Language(self._regular_value(value)))
        _Filler(self, table, items).fill(self._turn.root)
        table.halve()
        productive = table.productive()
        if not productive[0]:
            raise GrammarSourceError("no turn fits", problem="unsatisfiable")
        rules, first = table.nodes(productive, self._marks.ids)
        return nodes + rules, first

    def report(self) -> Report:
        """What is enforced of all values."""
        return Report(tuple(sorted(self._enforced)), tuple(self._issues), tuple(self._notes))

    def _too_many(self) -> Exception:
        return GrammarSourceError(f"more than {self._budget.rules} rules", problem="too complex")

    # -- values ---------------------------------------------------------------------------------

    def _json(self, value: JsonValue, base: int) -> tuple[list[Node], tuple[Style, ...]]:
        compiler, writer = self._compiler(value, base, value.key_order)
        with _shown(value):
            compiler.run()
            nodes = compiler.nodes()
        self._take(value, compiler.report())
        compiler.release()
        return nodes, value.dialect.styles(writer.names, self._styles)

    def _arguments(
        self, value: ArgumentsValue, base: int
    ) -> tuple[list[Node], Arguments, tuple[Style, ...]]:
        compiler, writer = self._compiler(value, base, "schema")
        arguments = Arguments(value, compiler, writer, self.language)
        with _shown(value):
            nodes = arguments.nodes()
        report = compiler.report()
        self._take(value, replace(report, unenforced=(*report.unenforced, *arguments.issues)))
        return nodes, arguments, value.dialect.styles(writer.names, self._styles)

    def _compiler(
        self, value: JsonValue | ArgumentsValue, base: int, key_order: str
    ) -> tuple[SchemaCompiler, DialectWriter]:
        schema = value.schema if isinstance(value.schema, bool) else dict(value.schema)
        try:
            size = len(json.dumps(schema, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise SchemaError(f"is no JSON: {error}") from None
        if size > self._budget.schema_bytes:
            raise SchemaBudgetError(
                f"{size} bytes; at most {self._budget.schema_bytes} are compiled"
            )
        formats = value.formats if isinstance(value, JsonValue) else "assert"
        workspace = self._workspace
        writer = DialectWriter(workspace, value.barred, value.dialect, self._marks)
        with _shown(value):
            compiler = SchemaCompiler(
                Document(schema, FORMAT_MODES[formats]),
                workspace,
                self._budget,
                KEY_ORDERS[key_order],
                writer=writer,
                base=base,
                source=value.source,
            )
        return compiler, writer

    def _take(self, value: JsonValue | ArgumentsValue, report: Report) -> None:
        """Add a value's report to that of the turn."""
        strict: list[Issue] = []
        for issue in report.unenforced:
            shown, is_error = _origin(value, issue.pointer)
            named = Issue(issue.keyword, shown, issue.reason)
            if is_error:
                strict.append(named)
            self._issues[named] = None
        if strict:
            raise UnsupportedSchemaError(tuple(strict))
        self._notes.update(dict.fromkeys(report.bounds))
        self._enforced.update(report.enforced)
        if value.barred:
            listed = ", ".join(map(repr, value.barred))
            self._notes[f"no string may hold {listed}, which would end its region"] = None

    def _regular_value(self, value: PatternValue | ChoiceValue | GbnfValue) -> Rx:
        builder = self._builder
        if isinstance(value, ChoiceValue):
            language = builder.literals(value.choices)
            self._enforced.add("choice")
        elif isinstance(value, PatternValue):
            language = _pattern(self._workspace, value.pattern)
            self._enforced.add("regex")
        else:
            language = regular_language(value.source, self._workspace)
            self._enforced.add("grammar")
        language = builder.intersect(language, self._text, without(builder, value.barred))
        if language.is_empty():
            raise GrammarSourceError(
                f"no text of {value.label or 'the value'} is without its delimiters",
                problem="unsatisfiable",
            )
        return self._trimmed(value, language) if value.trimmed else language

    def _trimmed(self, value: PatternValue | ChoiceValue | GbnfValue, language: Rx) -> Rx:
        """The texts without white space at their ends."""
        builder = self._builder
        everything, space = builder.universe, builder.chars(_SPACE)
        rimmed = builder.union(builder.concat(space, everything), builder.concat(everything, space))
        if builder.intersect(language, rimmed).is_empty():
            return language
        language = builder.difference(language, rimmed)
        if language.is_empty():
            raise GrammarSourceError(
                f"all texts of {value.label or 'the value'} begin or end with white space, which "
                "would be taken off",
                problem="unsatisfiable",
            )
        self._notes[TRIMMED] = None
        return language

    # -- regular parts --------------------------------------------------------------------------

    def language(self, part: Part, *, marked: bool = False) -> Rx:
        """The language of a regular part."""
        found = self._languages.get((part, marked))
        if found is None:
            found = self._languages[part, marked] = self._language(part, marked)
        return found

    def _language(self, part: Part, marked: bool) -> Rx:
        builder = self._builder
        match part:
            case Chars(ranges):
                return builder.chars(CharSet(ranges) & TEXT)
            case Text(text):
                return self._marks.language(builder, text) if marked else builder.literal(text)
            case Seq(items):
                return self._row(items, marked)
            case Alt(options):
                return builder.union(*(self.language(o, marked=marked) for o in options))
            case Repeat(item, low, high):
                return builder.repeat(self.language(item, marked=marked), low, high)
            case Look():
                return self._row((part,), marked)
            case Both(left, right):
                both = (self.language(left, marked=marked), self.language(right, marked=marked))
                return builder.intersect(*both)
            case Free(bars):
                found = builder.union(*map(self.language, bars))
                everything = builder.universe
                barred = builder.complement(builder.concat(everything, found, everything))
                return builder.intersect(self._text, barred)
            case Marked(item):
                return self.language(item, marked=True)
            case _:
                raise AssertionError(f"{part} is not regular")

    def _row(self, items: tuple[Part, ...], marked: bool) -> Rx:
        """A sequence, from its end, so that a look-ahead sees what follows it."""
        builder = self._builder
        rest = builder.epsilon
        for item in reversed(items):
            if isinstance(item, Look):
                sought = self.language(item.item, marked=marked)
                begun = builder.concat(sought, builder.universe)
                rest = builder.intersect(
                    rest, builder.complement(begun) if item.negative else begun
                )
            else:
                rest = builder.concat(self.language(item, marked=marked), rest)
        return rest


class _Filler:
    """Fills a table of rules with the parts of a turn."""

    def __init__(self, maker: _Maker, table: RuleTable, values: list[Item]) -> None:
        self._maker = maker
        self._table = table
        self._values = values
        self._pending: list[tuple[int, Part]] = []
        self._known: dict[Part, int] = {}

    def fill(self, root: Part) -> None:
        """Make rule 0, which is there, of a part, and all others that it needs."""
        self._known[root] = 0
        self._pending.append((0, root))
        while self._pending:
            number, part = self._pending.pop()
            self._table.rules[number] = self._alternatives(part)

    def _rule(self, part: Part) -> int:
        found = self._known.get(part)
        if found is None:
            found = self._known[part] = self._table.new()
            self._pending.append((found, part))
        return found

    def _alternatives(self, part: Part) -> Alternatives:
        options = part.options if isinstance(part, Alt) else (part,)
        return [self._table.joined(self._items(option)) for option in options]

    def _items(self, part: Part) -> list[Item]:
        maker = self._maker
        if is_regular(part):
            return [Language(maker.language(part))]
        match part:
            case Seq(items):
                return [found for item in items for found in self._items(item)]
            case Value(index):
                return [self._values[index]]
            case Timed(text, closing):
                end = maker.language(closing)
                whole = self._table.builder.concat(maker.language(text), end)
                return [Language(whole, end)]
            case Repeat(item, low, high):
                return [Called(self._rule(item), low, high)] if high != 0 else []
            case _:
                return [Called(self._rule(part))]


def is_regular(part: Part) -> bool:
    """Whether a part is text of a regular language."""
    match part:
        case Value() | Timed():
            return False
        case Seq(items) | Alt(items):
            return all(map(is_regular, items))
        case Repeat(item):
            return is_regular(item)
        case _:
            return True


@contextmanager
def _shown(value: JsonValue | ArgumentsValue) -> Iterator[None]:
    """Errors about a value's schema, with the pointers that its ``origins`` say."""
    try:
        yield
    except SchemaError as error:
        error.pointer, _ = _origin(value, error.pointer)
        raise


def _origin(value: JsonValue | ArgumentsValue, pointer: str) -> tuple[str, bool]:
    """What to show for a pointer into a value's schema, and whether issues there are errors."""
    fitting = [
        origin
        for origin in value.origins
        if pointer == origin[0] or pointer.startswith(origin[0] + "/") or not origin[0]
    ]
    prefix, shown, strict = max(fitting, key=lambda origin: len(origin[0]), default=("", "", True))
    return shown + pointer[len(prefix) :], strict


def _pattern(workspace: Workspace, pattern: str) -> Rx:
    try:
        return parse_full(workspace.builder, pattern)
    except RegexSyntaxError as error:
        raise source_error(pattern, error.position, error.message) from None
    except RegexUnsupportedError as error:
        message = f"{error.construct} is not supported"
        raise source_error(pattern, error.position, message, "unsupported") from None
