"""Ten sets of tools, strict and bounded on all sides, for tests that let a real model call them."""

from __future__ import annotations

from typing import Any

WORD = {"type": "string", "maxLength": 8}
SMALL = {"type": "integer", "minimum": 0, "maximum": 99}


def tool(name: str, description: str, /, **properties: Any) -> dict[str, Any]:
    """A strict function all of whose arguments are required."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": {**function, "strict": True}}


def one_of(*values: Any) -> dict[str, Any]:
    return {"enum": list(values)}


#: Question, and the tools that may answer it.
TOOL_SETS: tuple[tuple[str, list[dict[str, Any]]], ...] = (
    (
        "What is the weather in Oslo?",
        [tool("get_weather", "The weather of a city.", city=WORD, unit=one_of("C", "F"))],
    ),
    (
        "What time is it?",
        [tool("now", "The time."), tool("sleep", "Wait some seconds.", seconds=SMALL)],
    ),
    (
        "Add 17 and 25.",
        [
            tool("add", "The sum.", a=SMALL, b=SMALL),
            tool("multiply", "The product.", a=SMALL, b=SMALL),
        ],
    ),
    (
        "Turn on the kitchen lamp.",
        [
            tool(
                "set_lamp",
                "Switch a lamp.",
                room=one_of("kitchen", "bedroom"),
                on={"type": "boolean"},
            )
        ],
    ),
    (
        "Book a table for four at 19:30.",
        [
            tool(
                "book_table",
                "Book a table.",
                people={"type": "integer", "minimum": 1, "maximum": 12},
                time={"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
            )
        ],
    ),
    (
        "Label this message as urgent and red.",
        [
            tool(
                "label",
                "Label a message.",
                labels={
                    "type": "array",
                    "items": one_of("urgent", "red", "later"),
                    "minItems": 1,
                    "maxItems": 2,
                },
            )
        ],
    ),
    (
        "Save Ada's address: Main Street 5.",
        [
            tool(
                "save_address",
                "Keep an address.",
                name=WORD,
                address={
                    "type": "object",
                    "properties": {"street": WORD, "number": SMALL},
                    "required": ["street", "number"],
                    "additionalProperties": False,
                },
            )
        ],
    ),
    (
        "Search for blue shoes, page 2.",
        [
            tool(
                "search",
                "Search the shop.",
                query=WORD,
                page={"anyOf": [SMALL, {"type": "null"}]},
            ),
            tool("open-cart", "Show the cart."),
        ],
    ),
    (
        "Move the robot to x 3, y -2.",
        [
            tool(
                "move",
                "Move to a place.",
                x={"type": "integer", "minimum": -9, "maximum": 9},
                y={"type": "integer", "minimum": -9, "maximum": 9},
            ),
            tool("stop", "Stop at once."),
        ],
    ),
    (
        "Remind me on 2030-05-01 to call Bo.",
        [tool("remind", "Remind on a day.", day={"type": "string", "format": "date"}, text=WORD)],
    ),
)
