"""One grammar for a whole turn of the model: the response template and what its regions may hold.

`turn_grammar` is the door. The template says how reasoning, content and tool calls are told apart
(`parsing.inverse`), the request what each may hold, and `turn_plan` makes one description of both,
which `grammar.compile_turn` compiles. Grammars are cached by all that determines them.

Where a template can't be inverted, or not for what is asked, there is no grammar but a reason:
generation is then free, and the parser reads what comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from grammar import (
    Budget,
    Grammar,
    GrammarCache,
    Issue,
    Marks,
    SchemaError,
    UnsatisfiableSchemaError,
    Vocabulary,
    compile_turn,
)
from grammar.cache import extracts
from grammar.turn_parts import ValueSource
from parsing import ResponseTemplate
from parsing.inverse import CALLS, Beginning, Inverse, beginning_of, inverse_of
from parsing.shapes import NotInvertible
from parsing.written import written_call
from server.turn_plan import Plan
from server.turn_regions import Wishes
from server.turn_tools import Mode, Tool, choose, read_tools

#: Keywords of the issues that say why a tool is never called: its name can't be written in the
#: model's format; no arguments fit its parameters, or none that do can be written in that format.
UNCALLABLE = frozenset({"name", "parameters"})


@dataclass(frozen=True, slots=True)
class TurnGrammar:
    """What a turn is bound to.

    grammar   None: nothing is bound; then `reason` says why, or is None if nothing was asked for
    reason    why the template can't be inverted for this request, by field
    issues    what of the schemas is not enforced, with pointers into the request; those of the
              keywords in `UNCALLABLE` are about tools that can't be called at all
    key       of the grammar in the cache, with `hit` and `compile_ms` (None without a grammar)
    begins    where the prompt leaves the model
    """

    grammar: Grammar | None
    reason: str | None = None
    issues: tuple[Issue, ...] = ()
    key: str | None = None
    hit: bool = False
    compile_ms: float | None = None
    begins: Beginning = field(default_factory=Beginning)


def turn_grammar(
    template: ResponseTemplate,
    *,
    vocabulary: Vocabulary,
    cache: GrammarCache,
    content: ValueSource | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: str | Mapping[str, Any] | None = None,
    parallel: bool = True,
    reasoning_limit: int | None = None,
    prefix: str = "",
    source: str | None = None,
    whitespace: str = "adaptive",
    budget: Budget | None = None,
) -> TurnGrammar:
    """The grammar of a turn. Blocks while it compiles: call it off the event loop.

    Args:
        template: the response template that the answer will be read with.
        content: what the content must be (`grammar.turn_parts.JsonValue` and its like), or None.
        tools: the request's tools, in OpenAI's form; `strict` ones must be enforceable.
        tool_choice: OpenAI's: none, auto, required, a function, allowed_tools; None: auto if there
            are tools.
        parallel: whether there may be several calls.
        reasoning_limit: the most tokens of reasoning; 0 for none, None for no limit.
        prefix: the prompt as text, which may leave a region open.
        source: what `x-extract` in the tools' schemas extracts from (the content has its own).
        whitespace: of JSON values.
        budget: of the compilation.

    Raises:
        ToolChoiceError: `tool_choice` names a tool that isn't there.
        SchemaError: the content's schema, or a strict tool's, can't be enforced; a call is required
            and no arguments of any tool would do.
        GrammarSourceError: the content's pattern, choices or grammar is at fault, or the whole is
            too complex.
    """
    all_tools = read_tools(tools)
    mode, chosen = choose(all_tools, tool_choice)
    begins = beginning_of(template, prefix)
    inverse = inverse_of(template)
    calls = mode == "required" or (bool(all_tools) and CALLS in template.fields)
    if content is None and not calls and reasoning_limit is None:
        return TurnGrammar(None, begins=begins)
    if inverse.faults:
        return TurnGrammar(None, inverse.reason, begins=begins)
    if not any(extracts(dict(tool.parameters)) for tool in chosen):
        source = None
    schemas = _Schemas(vocabulary, cache, source)
    issues: list[Issue] = []
    try:
        if mode != "none":
            chosen = _callable(template, inverse, chosen, issues)
            chosen = _satisfiable(mode, chosen, schemas, issues)
            mode = mode if chosen else _without_calls(mode, inverse)
        wishes = Wishes(content, mode, chosen, parallel, reasoning_limit != 0, source)
    except NotInvertible as reason:
        return TurnGrammar(None, str(reason), tuple(issues), begins=begins)

    def make() -> Grammar:
        def compiled(wanted: Wishes) -> Grammar:
            plan = Plan(inverse, _marks(vocabulary), wanted, begins)
            return compile_turn(plan.turn(), vocabulary, whitespace=whitespace, budget=budget)

        try:
            return compiled(wishes)
        except SchemaError:
            left_out: list[Issue] = []
            wanted = _salvaged(wishes, compiled, schemas, left_out)
            if wanted == wishes:
                raise
        grammar = compiled(wanted)
        report = grammar.report
        grammar.report = replace(report, unenforced=(*report.unenforced, *left_out))
        return grammar

    key = {
        "template": dict(template.source),
        "content": None if content is None else [type(content).__name__, asdict(content)],
        "tools": [asdict(tool) for tool in chosen],
        "mode": mode,
        "parallel": parallel,
        "reasoning": wishes.reasoning,
        "source": source,
        "begins": asdict(begins),
        "whitespace": whitespace,
    }
    try:
        result = cache.get_made("turn", key, vocabulary, make)
    except NotInvertible as reason:
        return TurnGrammar(None, str(reason), tuple(issues), begins=begins)
    return TurnGrammar(
        grammar=result.grammar.limited(reasoning_limit),
        issues=(*issues, *result.grammar.report.unenforced),
        key=result.key,
        hit=result.hit,
        compile_ms=result.compile_ms,
        begins=begins,
    )


@dataclass(frozen=True, slots=True)
class _Schemas:
    """Compiles the schema of a tool by itself."""

    vocabulary: Vocabulary
    cache: GrammarCache
    source: str | None

    def compile(self, tool: Tool, *, strict: bool) -> None:
        """Raises SchemaError as `grammar.compile_json_schema`."""
        parameters = dict(tool.parameters)
        self.cache.get_json_schema(parameters, self.vocabulary, strict=strict, source=self.source)


@lru_cache(maxsize=8)
def _marks(vocabulary: Vocabulary) -> Marks:
    return Marks(vocabulary)


def _salvaged(
    wishes: Wishes,
    compiled: Callable[[Wishes], Grammar],
    schemas: _Schemas,
    issues: list[Issue],
) -> Wishes:
    """What is left of wishes that can't be compiled as they are; what is not becomes issues.

    A tool that is not strict takes any object where its schema can't be compiled (`_satisfiable`
    has seen to those that nothing satisfies), and one whose arguments can't be written in the
    model's format can't be called.

    Raises:
        NotInvertible: the content by itself is fine, or no tool is left that must be called.
    """
    content = wishes.content
    if wishes.mode == "none":
        return wishes  # there is nothing but the content to be at fault
    if content is not None:
        alone = replace(wishes, mode="none", tools=())
        compiled(alone)  # raises where the content itself is at fault
    tools = []
    for tool in wishes.tools:
        usable = _enforceable(tool, schemas, issues)
        try:
            compiled(replace(wishes, content=None, mode="required", tools=(usable,)))
        except UnsatisfiableSchemaError as error:
            if _is_unsatisfiable(usable, schemas):
                raise
            pointer = f"/tools/{tool.place}/function"
            issues.append(Issue("parameters", pointer, error.message))
        else:
            tools.append(usable)
    if content is not None and tuple(tools) == wishes.tools:
        raise NotInvertible(f"field {CALLS!r}: content of this schema is read as a call")
    if not tools and wishes.mode == "required":
        raise NotInvertible(f"field {CALLS!r}: no tool's arguments can be written")
    return replace(wishes, tools=tuple(tools), mode=wishes.mode if tools else "none")


def _is_unsatisfiable(tool: Tool, schemas: _Schemas) -> bool:
    """Whether nothing fits a tool's parameters, in whatever format."""
    try:
        schemas.compile(tool, strict=False)
    except SchemaError:
        return True
    return False


def _enforceable(tool: Tool, schemas: _Schemas, issues: list[Issue]) -> Tool:
    """The tool, or, where it is not strict and its schema can't be compiled at all, one that takes
    any object; that is an issue."""
    if tool.strict:
        return tool
    try:
        schemas.compile(tool, strict=False)
    except SchemaError as error:
        issues.append(Issue(error.keyword, tool.pointer + error.pointer, error.message))
        return replace(tool, parameters={"type": "object"})
    return tool


def _callable(
    template: ResponseTemplate, inverse: Inverse, tools: tuple[Tool, ...], issues: list[Issue]
) -> tuple[Tool, ...]:
    """The tools that the template can call by their names; the others are issues."""
    region = inverse.regions.get(CALLS)
    if region is None:
        return ()
    found = []
    for tool in tools:
        if not _is_readable(template, tool.name):
            reason = f"calls of {tool.name!r} can't be written in the model's format"
            issues.append(Issue("name", f"/tools/{tool.place}/function", reason))
        else:
            found.append(tool)
    return tuple(found)


def _satisfiable(
    mode: Mode,
    tools: tuple[Tool, ...],
    schemas: _Schemas,
    issues: list[Issue],
) -> tuple[Tool, ...]:
    """The tools that some arguments fit; the others are issues.

    Raises:
        UnsatisfiableSchemaError: a call is required and none is left.
    """
    found: list[Tool] = []
    fault: UnsatisfiableSchemaError | None = None
    for tool in tools:
        try:
            schemas.compile(tool, strict=tool.strict)
        except UnsatisfiableSchemaError as error:
            if tool.strict:
                raise
            fault = fault or error
            reason = f"no arguments fit, so it is never called: {error.message}"
            issues.append(Issue("parameters", tool.pointer + error.pointer, reason))
            continue
        except SchemaError:
            pass  # said when the turn is compiled
        found.append(tool)
    if mode == "required" and fault is not None and not found:
        raise fault
    return tuple(found)


@lru_cache(maxsize=4096)
def _is_readable(template: ResponseTemplate, name: str) -> bool:
    """Whether a call of that name is read back."""
    return written_call(template, name, {}) is not None


def _without_calls(mode: Mode, inverse: Inverse) -> Mode:
    """The mode where nothing can be called. Raises NotInvertible where something must be."""
    if mode == "required":
        if CALLS not in inverse.regions:
            raise NotInvertible(f"the template has no field {CALLS!r}")
        raise NotInvertible(f"field {CALLS!r}: none of the tools can be called by its name")
    return "none"
