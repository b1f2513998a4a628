"""Other languages than JSON over the same automaton: patterns, choices, GBNF, free text.

All of them describe the *whole* text, from its first character to its end. They are compiled under
the same budget as schemas, and what is wrong with them is one ``GrammarSourceError``.

Read next: ``gbnf.py`` for grammars that are not regular, ``text.py`` for the terminals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from grammar.budget import Budget, Clock, OutOfTimeError
from grammar.ecma import RegexSyntaxError, RegexUnsupportedError, parse_full
from grammar.errors import GrammarSourceError
from grammar.gbnf import compile_rules
from grammar.gbnf_syntax import source_error
from grammar.matcher import Grammar, Report
from grammar.nodes import Node, Terminal
from grammar.regular import RegexBudgetError, Rx
from grammar.rules import as_content
from grammar.style import COMPACT
from grammar.text import OneOf
from grammar.vocabulary import Vocabulary
from grammar.workspace import Workspace

MAX_PATTERN = 100_000
"""Characters of the longest regular expression that is compiled."""


def compile_regex(pattern: str, vocabulary: Vocabulary, *, budget: Budget | None = None) -> Grammar:
    """Compile a regular expression to a grammar of the texts that it matches from end to end.

    Unlike JSON Schema's ``pattern``, which looks for a match anywhere, this is anchored at both
    ends: ``[0-9]+`` is digits and nothing else. ``^`` and ``$`` are allowed and change nothing
    there.

    Args:
        pattern: ECMA-262 syntax in Unicode mode, no flags: ``.`` is any character but a line break.
        budget: what the compilation may cost; None for the default.

    Raises:
        GrammarSourceError: it is no pattern, uses what is not supported (back-references), matches
            nothing, or costs too much.
    """
    limit = _checked(pattern, budget)
    if len(pattern) > MAX_PATTERN:
        raise GrammarSourceError(
            f"{len(pattern)} characters; at most {MAX_PATTERN} are compiled", problem="too complex"
        )
    with _compiling(vocabulary, limit) as workspace:
        try:
            language = parse_full(workspace.builder, pattern)
        except RegexSyntaxError as error:
            raise source_error(pattern, error.position, error.message) from None
        except RegexUnsupportedError as error:
            message = f"{error.construct} is not supported"
            raise source_error(pattern, error.position, message, "unsupported") from None
        if language.is_empty():
            raise GrammarSourceError("the pattern matches no text", problem="unsatisfiable")
        node = _last_text(workspace, language)
        return _grammar(vocabulary, workspace, (node,), Report(enforced=("regex",)))


def compile_choice(choices: Sequence[str], vocabulary: Vocabulary) -> Grammar:
    """Compile a list of texts to a grammar of exactly these. There may be a great many.

    Raises:
        GrammarSourceError: there are none, or one is empty, stands there twice, or is no Unicode
            text.
    """
    if not choices:
        raise GrammarSourceError("at least one choice is needed")
    seen: set[str] = set()
    for choice in choices:
        if not choice:
            raise GrammarSourceError("a choice can't be empty")
        if choice in seen:
            raise GrammarSourceError(f"{choice!r:.100} is there twice")
        seen.add(choice)
    words = [_encoded(choice) for choice in choices]
    workspace = vocabulary.workspace
    with workspace.lock:
        terminal = OneOf(words)
        node = Terminal(terminal, terminal.start())
        own_bytes = sum(map(len, words)) + 64 * len(words)
        return Grammar(
            vocabulary,
            (node,),
            0,
            (COMPACT,),
            Report(enforced=("choice",)),
            workspace=workspace,
            own_bytes=own_bytes,
        )


def compile_gbnf(text: str, vocabulary: Vocabulary, *, budget: Budget | None = None) -> Grammar:
    """Compile a grammar in llama.cpp's GBNF notation; the text must fit its rule ``root``.

    ``<text>`` and ``<[id]>`` stand for one token as a whole, a special one usually, and ``!<text>``
    for any token but that one; tokens that end the text are not among them. A rule that can never
    be completed is left out and noted in ``Grammar.report.bounds``.

    Args:
        text: see ``gbnf_syntax.py`` for the notation.
        budget: what the compilation may cost; None for the default.

    Raises:
        GrammarSourceError: it is no GBNF (with line and column), a name is not defined, a rule
            begins with itself, nothing fits the root, or it costs too much.
    """
    limit = _checked(text, budget)
    with _compiling(vocabulary, limit) as workspace:
        compiled = compile_rules(text, workspace, _Tokens(vocabulary), limit.rules)
        report = Report(enforced=("grammar",), bounds=compiled.notes)
        return _grammar(vocabulary, workspace, compiled.nodes, report, compiled.root)


def compile_free_text(
    vocabulary: Vocabulary, *, excluding: Sequence[str] = (), budget: Budget | None = None
) -> Grammar:
    """Any text in which none of some delimiters occurs; it may end anywhere.

    Raises:
        GrammarSourceError: a delimiter is empty or no Unicode text, or they cost too much.
    """
    limit = _checked("".join(excluding), budget)
    for delimiter in excluding:
        if not delimiter:
            raise GrammarSourceError("a delimiter can't be empty")
    with _compiling(vocabulary, limit) as workspace:
        builder = workspace.builder
        language = builder.universe
        if excluding:
            found = builder.literals(excluding)
            with_one = builder.concat(builder.universe, found, builder.universe)
            language = builder.complement(with_one)
        node = _last_text(workspace, language)
        return _grammar(vocabulary, workspace, (node,), Report(enforced=("text",)))


class _Tokens:
    """The tokens that a GBNF text may name."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.ends = vocabulary.eos
        self._vocabulary = vocabulary

    def find(self, token: int | str) -> int | None:
        """By id or by text: a special token's, else that of an ordinary one."""
        if isinstance(token, int):
            return token if token < self._vocabulary.size else None
        for number, text in self._vocabulary.special.items():
            if text == token:
                return number
        node = self._vocabulary.trie.find(token.encode())
        if node is None or not self._vocabulary.trie.ends[node]:
            return None
        return int(self._vocabulary.trie.tokens_at(node)[0])


def _checked(source: str, budget: Budget | None) -> Budget:
    """The budget, if the source is text and not too long for it."""
    limit = budget if budget is not None else Budget()
    size = len(_encoded(source))
    if size > limit.schema_bytes:
        raise GrammarSourceError(
            f"{size} bytes; at most {limit.schema_bytes} are compiled", problem="too complex"
        )
    return limit


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise GrammarSourceError("half of a surrogate pair is no text") from None


@contextmanager
def _compiling(vocabulary: Vocabulary, budget: Budget) -> Iterator[Workspace]:
    """The workspace, locked, with fuel and time for one compilation."""
    try:
        with vocabulary.compiling(budget.regex_steps, Clock(budget.seconds)) as workspace:
            yield workspace
    except (RegexBudgetError, OutOfTimeError) as error:
        raise GrammarSourceError(str(error), problem="too complex") from None


def _last_text(workspace: Workspace, language: Rx) -> Node:
    """A terminal that nothing follows."""
    terminal = workspace.text(last=True)
    return Terminal(terminal, terminal.start(as_content(language)))


def _grammar(
    vocabulary: Vocabulary,
    workspace: Workspace,
    nodes: Sequence[Node],
    report: Report,
    root: int = 0,
) -> Grammar:
    return Grammar(vocabulary, nodes, root, (COMPACT,), report, workspace=workspace)
