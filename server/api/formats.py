"""What an answer must be: `response_format`, and the other servers' spellings of the same thing.

    response_format      OpenAI's: text, json_object, json_schema; more: regex, choice, grammar
    structured_outputs   vLLM's: json, regex, choice, grammar or json_object
    guided_...           vLLM's, older: guided_json, guided_regex, guided_choice, guided_grammar
    json_schema          llama-server's
    grammar              llama-server's

Invariant: at most one of them says something; whichever it is becomes one `Wanted`, which keeps the
name of the field for error messages.

Read next: `server/api/structured.py`, which compiles them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from server.api.errors import ApiError
from server.api.fields import RequestModel, refuse, unsupported
from server.api.validation import parse_json


class TextFormat(RequestModel):
    """Free text."""

    type: Literal["text"]


class JsonObjectFormat(RequestModel):
    """Any JSON object. The word JSON need not appear in the messages."""

    type: Literal["json_object"]
    schema_: dict[str, Any] | None = Field(
        default=None,
        alias="schema",
        description="llama-server's: an object of this schema, strict. An extension.",
    )


class JsonSchema(RequestModel):
    """A named JSON Schema."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str | None = Field(default=None, description="Accepted; the model doesn't see it.")
    schema_: dict[str, Any] | None = Field(
        default=None,
        alias="schema",
        description="Keys are written in the schema's order, if `key_order` does not say "
        "otherwise. Absent: any JSON value.",
    )
    strict: bool | None = Field(
        default=None,
        description="true: a keyword that can't be enforced is an error that names it. "
        "false or null: the rest is enforced, and the answer lists what was not.",
    )
    key_order: Literal["schema", "free"] | None = Field(
        default=None,
        description="An extension. `schema`: declared properties in the schema's order, undeclared "
        "ones last; `free`: keys in any order. Absent or null: as the server is set.",
    )
    formats: Literal["assert", "annotate"] | None = Field(
        default=None,
        description="An extension. `assert`: strings are of the `format` and `contentEncoding` that"
        " the schema names; `annotate`: they assert nothing. Absent or null: as the server is set.",
    )
    hash: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="Instead of `schema`: the name that /v1/schemas/compile gave it. An extension.",
    )

    @model_validator(mode="after")
    def _schema_or_hash(self) -> Self:
        if self.hash is not None and self.schema_ is not None:
            raise refuse(
                "invalid_value", "Give either 'schema' or 'hash': the hash names a schema.", "hash"
            )
        return self


class JsonSchemaFormat(RequestModel):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class RegexFormat(RequestModel):
    """Text that a regular expression matches from end to end. An extension."""

    type: Literal["regex"]
    pattern: str = Field(description="ECMA-262 syntax; anchored at both ends in any case.")


class ChoiceFormat(RequestModel):
    """One of some texts, exactly. An extension."""

    type: Literal["choice"]
    choices: list[str] = Field(min_length=1)


class GrammarFormat(RequestModel):
    """Text that fits a grammar. An extension."""

    type: Literal["grammar"]
    grammar: str = Field(description="GBNF, llama.cpp's notation; the text must fit `root`.")


#: Where the source of a format stands, for error messages (a schema's have their own pointers).
_PARTS = {"regex": "pattern", "choice": "choices", "grammar": "grammar"}

_FORMATS = ("text", "json_object", "json_schema", "regex", "choice", "grammar")


def _format_tag(value: object) -> str | None:
    if value is None:
        return "#null"
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"#{kind}" if isinstance(kind, str) and kind in _FORMATS else None


AnyFormat: TypeAlias = (
    TextFormat | JsonObjectFormat | JsonSchemaFormat | RegexFormat | ChoiceFormat | GrammarFormat
)

ResponseFormat = Annotated[
    Annotated[None, Tag("#null")]
    | Annotated[TextFormat, Tag("#text")]
    | Annotated[JsonObjectFormat, Tag("#json_object")]
    | Annotated[JsonSchemaFormat, Tag("#json_schema")]
    | Annotated[RegexFormat, Tag("#regex")]
    | Annotated[ChoiceFormat, Tag("#choice")]
    | Annotated[GrammarFormat, Tag("#grammar")],
    Discriminator(
        _format_tag,
        custom_error_type="union_tag",
        custom_error_message="Input should be an object whose type is 'text', 'json_object', "
        "'json_schema', 'regex', 'choice' or 'grammar'",
    ),
    Field(
        description="What the answer must be: free text, a JSON object, JSON of a schema, or, as "
        "extensions, a regular expression's match, one of some choices, or text of a grammar."
    ),
]


def _schema_of(value: object) -> object:
    """A schema that was sent as JSON text is read, as strictly as a body."""
    if isinstance(value, str):
        try:
            return parse_json(value.encode())
        except ApiError as error:
            reason = error.message.removeprefix("The body isn't a JSON request: ")
            raise refuse("invalid_value", f"The schema isn't a JSON object: {reason}") from None
    return value


Schema = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_schema_of),
    Field(description="A JSON Schema, as an object or as JSON text; strict."),
]


def _known_choices(choices: list[str] | None) -> list[str] | None:
    if choices is not None and not choices:
        raise refuse("invalid_value", "Invalid value: at least one choice is needed.")
    return choices


class StructuredOutputs(RequestModel):
    """vLLM's name for the same; exactly one of its members must be given."""

    json_: Schema = Field(default=None, alias="json")
    regex: str | None = Field(default=None, description="As `response_format` of type `regex`.")
    choice: Annotated[list[str] | None, AfterValidator(_known_choices)] = Field(
        default=None, description="As `response_format` of type `choice`."
    )
    grammar: str | None = Field(default=None, description="As `response_format` of type `grammar`.")
    json_object: bool | None = Field(default=None, description="true: any JSON object.")
    structural_tag: unsupported("structural_tag") = None  # type: ignore[valid-type]
    whitespace_pattern: unsupported("whitespace_pattern") = None  # type: ignore[valid-type]
    disable_fallback: unsupported("disable_fallback", False, True) = None  # type: ignore[valid-type]
    disable_any_whitespace: unsupported("disable_any_whitespace", False) = None  # type: ignore[valid-type]
    disable_additional_properties: unsupported(  # type: ignore[valid-type]
        "disable_additional_properties", False
    ) = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name, wanted in self._members().items() if wanted is not None]
        if len(given) != 1:
            names = "'json', 'regex', 'choice', 'grammar' and 'json_object'"
            found = f"it has {' and '.join(map(repr, given))}" if given else "it has none of them"
            raise refuse("invalid_value", f"Exactly one of {names} is needed here; {found}.")
        return self

    def _members(self) -> Mapping[str, AnyFormat | None]:
        return {
            "json": None if self.json_ is None else _strict(self.json_),
            "regex": None if self.regex is None else RegexFormat(type="regex", pattern=self.regex),
            "choice": None
            if self.choice is None
            else ChoiceFormat(type="choice", choices=self.choice),
            "grammar": None if self.grammar is None else _grammar(self.grammar),
            "json_object": JsonObjectFormat(type="json_object") if self.json_object else None,
        }

    def wanted(self, field: str) -> Wanted:
        """The one that is given; `field` is the name under which this object was sent."""
        name, wanted = next((n, w) for n, w in self._members().items() if w is not None)
        return Wanted(wanted, f"{field}.{name}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an answer must be, and the field that says so."""

    format: AnyFormat
    field: str


def _strict(schema: dict[str, Any]) -> JsonSchemaFormat:
    return JsonSchemaFormat(
        type="json_schema", json_schema=JsonSchema(name="schema", schema=schema, strict=True)
    )


def _grammar(grammar: str) -> GrammarFormat:
    return GrammarFormat(type="grammar", grammar=grammar)


class FormattedRequest(RequestModel):
    """The fields of a request that say what the answer must be."""

    response_format: ResponseFormat = None
    structured_outputs: StructuredOutputs | None = Field(
        default=None, description="vLLM's spelling of `response_format`. An extension."
    )
    guided_json: Schema = Field(
        default=None, description="vLLM's older spelling of `structured_outputs.json`."
    )
    guided_regex: str | None = Field(
        default=None, description="vLLM's older spelling of `structured_outputs.regex`."
    )
    guided_choice: Annotated[list[str] | None, AfterValidator(_known_choices)] = Field(
        default=None, description="vLLM's older spelling of `structured_outputs.choice`."
    )
    guided_grammar: str | None = Field(
        default=None, description="vLLM's older spelling of `structured_outputs.grammar`: GBNF."
    )
    json_schema: Schema = Field(
        default=None, description="llama-server's spelling of `response_format`. An extension."
    )
    grammar: str | None = Field(
        default=None, description="llama-server's spelling of `response_format`. An extension."
    )

    @model_validator(mode="after")
    def _at_most_one_format(self) -> Self:
        fields = [wanted.field.partition(".")[0] for wanted in self._wanted()]
        if len(fields) > 1:
            raise refuse(
                "invalid_value",
                f"'{fields[0]}' and '{fields[1]}' both say what the answer must be; "
                "give only one of them.",
                fields[1],
            )
        return self

    @property
    def wanted_format(self) -> Wanted | None:
        """What the answer must be; None: free text."""
        return next(iter(self._wanted()), None)

    def _wanted(self) -> list[Wanted]:
        found: list[Wanted] = []
        if isinstance(self.response_format, JsonObjectFormat) and self.response_format.schema_:
            schema = _strict(self.response_format.schema_)
            found.append(Wanted(schema, "response_format.schema"))
        elif self.response_format is not None and self.response_format.type != "text":
            part = _PARTS.get(self.response_format.type)
            field = "response_format" + (f".{part}" if part else "")
            found.append(Wanted(self.response_format, field))
        if self.structured_outputs is not None:
            found.append(self.structured_outputs.wanted("structured_outputs"))
        for name in ("json", "regex", "choice", "grammar"):
            if (given := getattr(self, f"guided_{name}")) is not None:
                members = StructuredOutputs.model_validate({name: given})
                found.append(replace(members.wanted(""), field=f"guided_{name}"))
        if self.json_schema is not None:
            found.append(Wanted(_strict(self.json_schema), "json_schema"))
        if self.grammar:  # empty is llama-server's default, and means none
            found.append(Wanted(_grammar(self.grammar), "grammar"))
        return found
