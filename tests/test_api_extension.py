"""The `gabarito` object: what it says, and when it is absent."""

from __future__ import annotations

from server.api.extension import Extension

SCHEMA = {"enforced": True, "unenforced": []}


def test_nothing_to_say() -> None:
    assert Extension().members() == {}
    assert Extension(3).members() == {}


def test_one_choice_speaks_for_itself() -> None:
    extension = Extension(1, schema=SCHEMA)
    extension.choices[0].diagnostics = {"kl": 0.5}
    extension.choices[0].closed_by_budget = False
    extension.request.tools = {"grammar": True}
    assert extension.members() == {
        "gabarito": {
            "schema": SCHEMA,
            "tools": {"grammar": True},
            "diagnostics": {"kl": 0.5},
            "closed_by_budget": False,
        }
    }


def test_several_choices_are_listed() -> None:
    extension = Extension(3, schema=SCHEMA)
    extension.choices[2].validation = {"complete": False}
    extension.choices[0].validation = {"complete": True}
    assert extension.as_dict() == {
        "schema": SCHEMA,
        "choices": [
            {"index": 0, "validation": {"complete": True}},
            {"index": 2, "validation": {"complete": False}},
        ],
    }


def test_a_warning_is_said_once() -> None:
    extension = Extension()
    extension.warn("a")
    extension.warn("b")
    extension.warn("a")
    assert extension.as_dict() == {"warnings": ["a", "b"]}
