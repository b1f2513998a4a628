"""The linter: every rule with a schema that triggers it and one that doesn't, and every limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from server.cli import app
from server.lint import DialectsError, LintReport, lint_schema, lint_tools, load_dialects
from server.lint.measures import counts, depth, is_recursive
from server.lint.places import allows_null, lookup, places, types
from server.lint.profile import refusal
from server.lint.report import MAX_OF_A_KIND
from server.lint.words import is_answer, is_evidence, is_vague, is_way_out
from server.settings import packaged_config_dir

DIALECTS = load_dialects(packaged_config_dir() / "dialects.toml")


def obj(required: bool = True, **properties: Any) -> dict[str, Any]:
    """A closed object schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required else [],
        "additionalProperties": False,
    }


def found(schema: dict[str, Any], rule: str, target: str | None = None) -> list[str]:
    """The pointers at which a rule finds something."""
    dialects = [DIALECTS[target]] if target else []
    return [
        finding.pointer
        for finding in lint_schema(schema, dialects).findings
        if finding.rule == rule and finding.target == target
    ]


SHORT = {"type": ["string", "null"], "maxLength": 20}
LONG = {"type": "string"}

RULES: list[tuple[str, dict[str, Any], str]] = [
    ("answer-before-evidence", obj(verdict=SHORT, reasoning=SHORT), ""),
    ("answer-before-evidence", obj(age=SHORT, ageQuote=SHORT), ""),
    ("answer-before-evidence", obj(x=obj(nota=SHORT, justificativa=SHORT)), "/properties/x"),
    ("closed-enum", obj(colour={"enum": ["red", "green"]}), "/properties/colour"),
    ("closed-enum", {"type": "array", "items": {"enum": ["a1", "b1"]}}, "/items"),
    ("no-way-out", obj(age={"type": "integer"}), "/properties/age"),
    ("no-way-out", obj(born={"type": "string", "format": "date"}), "/properties/born"),
    ("no-way-out", obj(tags={"type": "array", "minItems": 1}), "/properties/tags"),
    (
        "no-way-out",
        {"$defs": {"n": {"type": "number"}}} | obj(n={"$ref": "#/$defs/n"}),
        "/properties/n",
    ),
    ("unbounded-string", obj(note=LONG), "/properties/note"),
    ("unbounded-string", obj(note={"type": ["string", "null"]}), "/properties/note"),
    ("unbounded-string", obj(code={"type": "string", "pattern": "^[a-z]+$"}), "/properties/code"),
    ("unbounded-array", obj(tags={"type": "array"}), "/properties/tags"),
    ("many-enum-values", obj(city={"enum": [f"c{i}" for i in range(101)]}), "/properties/city"),
    ("vague-name", obj(data=SHORT), "/properties/data"),
    ("vague-name", obj(field2=SHORT), "/properties/field2"),
    ("not-enforced", obj(a={"type": "string", "pattern": "(a)\\1"}), "/properties/a"),
    ("unsatisfiable", {"type": "string", "minLength": 3, "maxLength": 2}, ""),
]

QUIET: list[tuple[str, dict[str, Any]]] = [
    ("answer-before-evidence", obj(reasoning=SHORT, verdict=SHORT)),
    ("answer-before-evidence", obj(name=SHORT, quote=SHORT)),
    ("answer-before-evidence", {"not": obj(verdict=SHORT, reasoning=SHORT)}),
    ("closed-enum", obj(colour={"enum": ["red", "green", "other"]})),
    ("closed-enum", obj(colour={"enum": ["red", "green", None]})),
    ("closed-enum", obj(colour={"anyOf": [{"enum": ["red", "green"]}, {"type": "null"}]})),
    ("closed-enum", obj(colour={"enum": ["red", "not_applicable"]})),
    ("closed-enum", obj(kind={"enum": ["person"]})),
    ("closed-enum", obj(size={"enum": [1, 2, 3]})),
    ("no-way-out", obj(age={"type": ["integer", "null"]})),
    ("no-way-out", obj(age={"anyOf": [{"type": "integer"}, {"type": "null"}]})),
    ("no-way-out", obj(age={"type": "integer", "nullable": True})),
    ("no-way-out", obj(required=False, age={"type": "integer"})),
    ("no-way-out", obj(kind={"const": "person"})),
    ("no-way-out", obj(tags={"type": "array"})),
    ("no-way-out", obj(inner=obj(a=SHORT))),
    ("unbounded-string", obj(note={"type": "string", "maxLength": 10**6})),
    ("unbounded-string", obj(day={"type": "string", "format": "date"})),
    ("unbounded-string", obj(code={"type": "string", "pattern": "^[A-Z]{2}[0-9]{1,4}$"})),
    ("unbounded-string", obj(quote={"type": "string", "x-extract": "source"})),
    ("unbounded-string", obj(kind={"type": "string", "enum": ["a", "b", "other"]})),
    ("unbounded-array", obj(tags={"type": "array", "maxItems": 9})),
    ("unbounded-array", obj(pair={"type": "array", "prefixItems": [SHORT], "items": False})),
    ("many-enum-values", obj(city={"enum": [f"c{i}" for i in range(100)]})),
    ("vague-name", obj(data={**SHORT, "description": "what the sensor said"})),
    ("vague-name", obj(invoice_number=SHORT)),
    ("not-enforced", obj(a={"type": "string", "pattern": "^a+$"})),
    ("unsatisfiable", {"type": "string", "minLength": 2, "maxLength": 2}),
]


@pytest.mark.parametrize(("rule", "schema", "pointer"), RULES)
def test_a_rule_finds_what_it_is_for(rule: str, schema: dict[str, Any], pointer: str) -> None:
    assert found(schema, rule) == [pointer]


@pytest.mark.parametrize(("rule", "schema"), QUIET)
def test_a_rule_is_quiet_where_nothing_is_wrong(rule: str, schema: dict[str, Any]) -> None:
    assert found(schema, rule) == []


def test_a_plain_required_text_is_only_worth_a_note() -> None:
    report = lint_schema(obj(title={"type": "string", "maxLength": 9}))
    assert [(f.rule, f.severity) for f in report.findings] == [("no-way-out", "note")]


def names(count: int) -> dict[str, Any]:
    return {f"p{i}": {"type": "null"} for i in range(count)}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(levels):
        schema = obj(inner=schema)
    return schema


def enum_of(count: int, size: int = 1) -> dict[str, Any]:
    return obj(e={"type": "string", "enum": [f"{i:0{size}}" for i in range(count)]})


def optional(count: int) -> dict[str, Any]:
    return obj(required=False, **names(count))


def unions(count: int) -> dict[str, Any]:
    return obj(**{f"u{i}": {"type": ["string", "null"]} for i in range(count)})


LIMITS: list[tuple[str, Any, int, int]] = [
    ("openai", lambda n: obj(**names(n)), 5000, 5001),
    ("openai", nested, 10, 11),
    ("openai", lambda n: obj(e={"enum": list(range(n))}), 1000, 1001),
    ("openai", lambda n: obj(**{"a" * n: {"type": "null"}}), 120_000, 120_001),
    ("openai", lambda n: enum_of(251, n), 59, 60),
    ("anthropic", optional, 24, 25),
    ("anthropic", unions, 16, 17),
    ("anthropic", lambda n: {"type": "array", "items": {"type": "null"}, "minItems": n}, 1, 2),
]


@pytest.mark.parametrize(("target", "make", "fits", "over"), LIMITS)
def test_a_limit_holds_exactly(target: str, make: Any, fits: int, over: int) -> None:
    assert found(make(fits), "refused", target) == []
    assert len(found(make(over), "refused", target)) == 1
    if target == "openai":
        assert refusal(make(fits), DIALECTS[target]) is None
        assert refusal(make(over), DIALECTS[target]) is not None


def test_the_limits_are_those_that_the_providers_state() -> None:
    hosted = DIALECTS["openai"].limits
    assert (hosted.properties, hosted.depth, hosted.enum_values) == (5000, 10, 1000)
    assert (hosted.characters, hosted.enum_over, hosted.enum_characters) == (120_000, 250, 15_000)
    tools = DIALECTS["anthropic"].limits
    assert (tools.tools, tools.optional, tools.unions) == (20, 24, 16)
    for dialect in DIALECTS.values():
        assert dialect.source.startswith("https://")
        assert dialect.date >= "2026"


def tool(name: str, parameters: dict[str, Any], strict: bool = True) -> dict[str, Any]:
    function = {"name": name, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": function}


def test_tools_are_counted_together() -> None:
    def said(tools: list[dict[str, Any]]) -> list[str]:
        report = lint_tools(tools, [DIALECTS["anthropic"]])
        return [f.message for f in report.findings if f.rule == "refused" and not f.pointer]

    assert said([tool("a", obj(x=SHORT))] * 16) == []
    assert said([tool("a", obj())] * 20) == []
    assert said([tool("a", obj())] * 21) == [
        "21 strict tools in one request; at most 20 are allowed."
    ]
    assert said([tool("a", obj(), strict=False)] * 21) == []
    assert said([tool("a", optional(13))] * 2) == [
        "26 optional parameters in all tools together; at most 24 are allowed."
    ]
    assert said([tool("a", unions(9))] * 2) == [
        "18 union parameters in all tools together; at most 16 are allowed."
    ]


def test_pointers_of_tools_lead_into_the_list() -> None:
    report = lint_tools([{"type": "other"}, tool("a", obj(data=LONG))])
    assert {f.pointer for f in report.findings} == {"/1/function/parameters/properties/data"}


VIEWS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "openai",
        "refused",
        obj(a={"type": "array", "items": {"type": "null"}, "uniqueItems": True}),
        obj(a={"type": "array", "items": {"type": "null"}, "uniqueItems": False}),
    ),
    (
        "openai",
        "refused",
        obj(a={"allOf": [{"type": "null"}], "type": "null"}),
        obj(a={"type": "null"}),
    ),
    ("openai", "refused", {"type": "array", "items": {"type": "null"}}, obj()),
    ("openai", "refused", obj() | {"anyOf": [obj()]}, obj(a={"anyOf": [obj()]})),
    ("openai", "refused", obj(required=False, a={"type": "null"}), obj(a={"type": "null"})),
    ("openai", "refused", {"type": "object", "properties": {}}, obj()),
    ("openai", "refused", obj(a={"description": "any"}), obj(a={"enum": [1]})),
    (
        "openai",
        "refused",
        obj(a={"type": "string", "format": "uri"}),
        obj(a={"type": "string", "format": "email"}),
    ),
    ("openai", "refused", obj(a={"$ref": "#", "title": "t"}), obj(a={"$ref": "#"})),
    (
        "anthropic",
        "refused",
        obj(a={"$ref": "#"}),
        obj(a={"$ref": "#/$defs/b"}) | {"$defs": {"b": obj()}},
    ),
    ("anthropic", "refused", {"type": "integer", "minimum": 1}, {"type": "integer"}),
    ("anthropic", "refused", {"enum": [[1]]}, {"enum": [1]}),
    (
        "anthropic",
        "refused",
        {"type": "string", "pattern": "(?=a)"},
        {"type": "string", "pattern": "(?:a)"},
    ),
    (
        "anthropic",
        "refused",
        {"type": "string", "pattern": r"(a)\1"},
        {"type": "string", "pattern": "(a)"},
    ),
    ("gemini", "ignored", {"type": "string", "pattern": "a"}, {"type": "string"}),
    (
        "gemini",
        "ignored",
        {"type": "string", "format": "uuid"},
        {"type": "string", "format": "date"},
    ),
    ("llama_cpp", "ignored", {"type": "number", "minimum": 1}, {"type": "integer", "minimum": 1}),
    ("llama_cpp", "ignored", obj() | {"anyOf": [obj()]}, {"anyOf": [obj()]}),
    (
        "llama_cpp",
        "refused",
        {"type": "string", "pattern": "a"},
        {"type": "string", "pattern": "^a$"},
    ),
    ("llama_cpp", "different", {"oneOf": [{}]}, {"anyOf": [{}]}),
    (
        "vllm",
        "refused",
        {"type": "string", "pattern": "^a$", "maxLength": 3},
        {"type": "string", "maxLength": 3},
    ),
    ("vllm", "refused", {"type": "number", "multipleOf": 3}, {"type": "number"}),
    ("vllm", "refused", obj() | {"patternProperties": {}}, {"patternProperties": {}}),
]


@pytest.mark.parametrize(("target", "effect", "bad", "good"), VIEWS)
def test_another_servers_view(
    target: str, effect: str, bad: dict[str, Any], good: dict[str, Any]
) -> None:
    assert len(found(bad, effect, target)) == 1
    assert found(good, effect, target) == []


HOSTED: list[tuple[dict[str, Any], str]] = [
    (
        {"type": "array", "items": {}},
        "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'.",
    ),
    ({"anyOf": []}, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."),
    (
        {"type": "object", "properties": {}},
        "In context=(), 'additionalProperties' is required to be supplied and to be false.",
    ),
    (
        obj(a=obj(b={"type": "null"}) | {"required": []}),
        "In context=('properties', 'a'), 'required' is required to be supplied and to be an array "
        "including every key in properties. Missing 'b'.",
    ),
    (
        obj() | {"required": ["x"]},
        "In context=(), 'required' is required to be supplied and to be an array including every "
        "key in properties. Extra required key 'x' supplied.",
    ),
    (
        obj(a={"oneOf": [], "type": "null"}),
        "In context=('properties', 'a'), 'oneOf' is not permitted.",
    ),
    (
        obj(a={"type": "string", "default": ""}),
        "In context=('properties', 'a'), 'default' is not permitted.",
    ),
    (obj(a={"type": "array"}), "In context=('properties', 'a'), array schema missing items."),
    (obj(a={"title": "A"}), "In context=('properties', 'a'), schema must have a 'type' key."),
    (
        obj(a={"type": "string", "format": "uri"}),
        "In context=('properties', 'a'), 'uri' is not a valid format.",
    ),
    (
        obj(a={"$ref": "#/$defs/b", "description": "d"}) | {"$defs": {"b": obj()}},
        "In context=('properties', 'a'), $ref cannot have keywords {'description'}.",
    ),
    (
        obj(a={"anyOf": [{"type": "object"}]}),
        "In context=('properties', 'a', 'anyOf', '0'), 'additionalProperties' is required to be "
        "supplied and to be false.",
    ),
    (
        obj(e={"enum": list(range(1001))}),
        "Expected at most 1000 enum values in total within a single schema when using structured "
        "outputs, but received 1001. Consider reducing the number of enums, or use 'strict: false' "
        "to opt out of structured outputs.",
    ),
    (nested(11), "11 levels of nesting exceeds limit of 10."),
]


@pytest.mark.parametrize(("schema", "message"), HOSTED)
def test_the_hosted_apis_own_words(schema: dict[str, Any], message: str) -> None:
    assert refusal(schema, DIALECTS["openai"]) == message


def test_what_the_sdk_makes_of_a_model_passes_the_profile() -> None:
    from openai.lib._pydantic import to_strict_json_schema
    from pydantic import BaseModel

    class Step(BaseModel):
        explanation: str
        output: str | None

    class Answer(BaseModel):
        steps: list[Step]
        final: float

    assert refusal(to_strict_json_schema(Answer), DIALECTS["openai"]) is None


def test_places_are_the_subschemas_and_nothing_else() -> None:
    schema = {
        "properties": {"a/b": {"items": [{}, True]}, "enum": {}},
        "enum": [{"properties": {}}],
        "not": {"anyOf": [{}]},
        "default": {"type": "x"},
    }
    pointers = [place.pointer for place in places(schema)]
    assert pointers == [
        "",
        "/properties/a~1b",
        "/properties/a~1b/items/0",
        "/properties/enum",
        "/not",
        "/not/anyOf/0",
    ]


def test_references_inside_the_document_are_followed() -> None:
    root = {"$defs": {"a b": {"type": ["integer", "null"]}}, "allOf": [{"const": 1}]}
    assert lookup(root, "#/$defs/a%20b") == {"type": ["integer", "null"]}
    assert lookup(root, "#/allOf/0") == {"const": 1}
    assert lookup(root, "#/allOf/1") is None
    assert lookup(root, "other.json") is None
    assert lookup(root, "#anchor") is None
    assert allows_null({"$ref": "#/$defs/a b"}, root)
    loop = {"$ref": "#"}
    assert not is_recursive(root)
    assert is_recursive(loop)
    assert lint_schema(loop).findings, "a schema that is only a loop is refused, and ends"


def test_types_of_a_schema() -> None:
    assert types({"type": "integer", "enum": [1, "a"]}) == {"integer"}
    assert types({"const": 1.5}) == {"number"}
    assert types({"const": None}) == {"null"}
    assert types({"type": "string", "nullable": True}) == {"string", "null"}
    assert len(types({})) == 7


def test_the_figures_of_a_schema() -> None:
    schema = obj(required=False, ab={"type": ["string", "null"]}, c={"enum": ["xyz"]}) | {
        "$defs": {"long": {"const": "four"}}
    }
    have = counts(schema)
    assert (have.properties, have.optional, have.unions, have.enum_values) == (2, 2, 1, 1)
    assert have.characters == len("ab" + "c" + "xyz" + "long" + "four")
    assert depth({"$ref": "#/$defs/n", "$defs": {"n": obj(next={"$ref": "#/$defs/n"})}}) == 1


@pytest.mark.parametrize(
    ("judge", "yes", "no"),
    [
        (is_evidence, ["sourceQuote", "evidence", "razón", "step_by_step_reasoning"], ["quota"]),
        (
            is_answer,
            ["final_answer", "isApproved", "décision", "has_pets"],
            ["history", "reasoning"],
        ),
        (is_way_out, ["Other", "n/a", "UNKNOWN", "", None, "not specified", "otro"], ["red", 3]),
        (
            is_vague,
            ["data", "x", "field_1", "value2", "dados", "info_text"],
            ["age", "data_source"],
        ),
    ],
)
def test_words(judge: Any, yes: list[Any], no: list[Any]) -> None:
    assert [value for value in yes if not judge(value)] == []
    assert [value for value in no if judge(value)] == []


def test_a_report_doesnt_grow_without_bound() -> None:
    report = lint_schema(obj(**{f"title_{i}": LONG for i in range(MAX_OF_A_KIND + 7)}))
    assert report.omitted == {"no-way-out": 7, "unbounded-string": 7}
    assert len(report.findings) == 2 * MAX_OF_A_KIND


def test_wrong_schemas_are_findings_and_no_errors() -> None:
    def first(schema: Any) -> str:
        return lint_schema(schema, DIALECTS.values()).findings[0].rule

    assert first({"type": 7}) == "invalid-schema"
    assert first({"properties": []}) == "invalid-schema"
    assert first({"type": "string", "pattern": "("}) == "invalid-schema"
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"items": deep}
    assert isinstance(lint_schema(deep, DIALECTS.values()), LintReport)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = ", "not valid TOML"),
        ("[a]\ntitle = 'A'\n", "Field required"),
        ("[a]\ntitle='A'\nsource='s'\ndate='d'\nlimit = 3\n", "Extra inputs"),
        ("[a]\ntitle='A'\nsource='s'\ndate='d'\nrefused_in_patterns=['(']\n", "no regular expr"),
        ("a = 1\n", "[a]"),
    ],
)
def test_a_wrong_file_of_dialects_says_where(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "dialects.toml"
    with pytest.raises(DialectsError, match="can't be read"):
        load_dialects(file)
    file.write_text(text)
    with pytest.raises(DialectsError) as error:
        load_dialects(file)
    assert says in str(error.value)
    assert str(file) in str(error.value)


def run(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, ["lint", *arguments], input=stdin, env={"COLUMNS": "120"})


def test_the_command_prints_what_is_wrong_and_fails_on_errors(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text(json.dumps(obj(data=LONG)))
    good = run(str(file))
    assert good.exit_code == 0, good.stderr
    assert "unbounded-string" in good.stdout
    assert good.stdout.rstrip().endswith("enforced whole by this server")
    assert run(str(file), "--fail-on", "warning").exit_code == 1
    assert run(str(file), "--target", "none", "--fail-on", "warning").exit_code == 1
    file.write_text(json.dumps({"type": "string", "minLength": 2, "maxLength": 1}))
    bad = run(str(file), "--target", "none")
    assert bad.exit_code == 1
    assert "unsatisfiable" in bad.stdout


def test_the_command_reads_a_response_format_tools_and_stdin() -> None:
    wrapped = {"type": "json_schema", "json_schema": {"name": "x", "schema": obj(data=LONG)}}
    for value in (obj(data=LONG), wrapped, wrapped["json_schema"]):
        report = json.loads(run("-", "--json", "--target", "none", stdin=json.dumps(value)).stdout)
        assert [f["pointer"] for f in report["findings"]] == ["/properties/data"] * 3
    tools = json.dumps([tool("a", obj(data=LONG))])
    report = json.loads(run("-", "--json", "--target", "openai", stdin=tools).stdout)
    assert report["findings"][0]["pointer"] == "/0/function/parameters/properties/data"


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (["absent.json"], None, "cannot read absent.json"),
        (["-"], "{", "- is not JSON"),
        (["-"], "3", "the file must hold a JSON object"),
        (["-"], "[3]", "a list must be one of tools"),
        (["-", "--target", "x"], "{}", "--target x: there are openai"),
        (["-", "--fail-on", "x"], "{}", "--fail-on must be one of"),
    ],
)
def test_the_commands_complaints(arguments: list[str], stdin: str | None, says: str) -> None:
    ended = run(*arguments, stdin=stdin)
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"gabarito: {says}")
