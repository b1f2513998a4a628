"""What the engine's benchmark asks for: five schemas from flat to nested, each with a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _object(**properties: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _text(length: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": length}


def _number(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": most}


_PERSON = "Maria Lopez, 34, a nurse from Lisbon (Rua Augusta 7, 1100 Lisbon, Portugal)"
#: name -> (schema, what is asked), from flat to nested.
WORK: Mapping[str, tuple[dict[str, Any], str]] = {
    "flat": (
        _object(name=_text(24), age=_number(120), city=_text(24)),
        f"Give name, age and city as JSON: {_PERSON}.",
    ),
    "enums": (
        _object(
            sentiment={"enum": ["very negative", "negative", "neutral", "positive"]},
            category={"enum": ["billing", "delivery", "product quality", "other"]},
            needs_reply={"type": "boolean"},
            urgency={"enum": ["low", "medium", "high"]},
        ),
        "Classify as JSON: 'My parcel came two weeks late and nobody answers my mails.'",
    ),
    "long keys": (
        _object(
            customer_full_legal_name=_text(24),
            customer_age_in_completed_years=_number(120),
            is_currently_registered_member={"type": "boolean"},
            preferred_contact_channel={"enum": ["telephone", "electronic mail", "letter"]},
            number_of_orders_in_last_year=_number(99),
        ),
        f"Fill in the customer record as JSON for {_PERSON}.",
    ),
    "list": (
        _object(
            title=_text(24),
            items={
                "type": "array",
                "minItems": 3,
                "maxItems": 3,
                "items": _object(name=_text(16), quantity=_number(99), unit={"enum": ["g", "ml"]}),
            },
        ),
        "A shopping list for pancakes as JSON: flour, milk and sugar, with amounts.",
    ),
    "nested record": (
        _object(
            patient_identification=_object(
                full_name=_text(24),
                year_of_birth=_number(2030),
                administrative_gender={"enum": ["female", "male", "other", "unknown"]},
            ),
            contact_information=_object(
                street_and_house_number=_text(24),
                postal_code=_text(8),
                country_of_residence={"enum": ["Portugal", "Spain", "France", "Germany"]},
            ),
            admission=_object(
                department={"enum": ["cardiology", "neurology", "general medicine"]},
                admission_type={"enum": ["emergency", "scheduled", "transfer"]},
                insurance_verified={"type": "boolean"},
                number_of_previous_admissions=_number(50),
                priority_level={"enum": ["routine", "urgent", "critical"]},
            ),
        ),
        f"Fill in the admission record as JSON for {_PERSON}, brought in with chest pain.",
    ),
}
