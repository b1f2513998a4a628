"""What a schema invites a model to get wrong, and where other servers would refuse or ignore it.

    report = lint_schema(schema, load_dialects(path))
    report.findings     what to look at: rule, severity, JSON pointer, message, advice

    places     the subschemas of a schema, and what values they take
    measures   its figures
    rules      what goes wrong although every server takes the schema
    dialects   what OpenAI, Anthropic, Gemini, llama.cpp and vLLM make of it, from
               `config/dialects.toml`
    profile    the hosted API's own refusals, word for word, for requests that ask for them
    report     all of it over one schema, or over the tools of a request

Invariant: nothing here changes a schema or stops a request; only `profile` makes refusals, and only
for requests that ask to be treated as the hosted API would treat them.
"""

from server.lint.dialects import DIALECTS_FILE, Dialect, DialectsError, load_dialects
from server.lint.report import LintReport, lint_schema, lint_tools
from server.lint.rules import Finding

__all__ = [
    "DIALECTS_FILE",
    "Dialect",
    "DialectsError",
    "Finding",
    "LintReport",
    "lint_schema",
    "lint_tools",
    "load_dialects",
]
