"""The README's example of quotes that can't be made up, run as it stands on the real model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_quote_is_in_the_letter_and_states_the_number(live_server: str) -> None:
    text = README.read_text(encoding="utf-8")
    section = text.split("## Quotes that can't be made up\n")[1].split("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example.replace("http://127.0.0.1:8000", live_server), str(README), "exec"), names)
    names["client"].close()
    answer, letter = names["answer"], names["letter"]
    assert answer["evidence"] in letter
    assert answer["evidence"].endswith((".", "Sons"))
    assert len(answer["evidence"]) <= 120
    if answer["weight"] is not None:
        assert answer["weight"] == 21 or str(answer["weight"]) in answer["evidence"]
    report = names["quoted"].gabarito
    assert report["schema"]["enforced"] is True
    assert "x-extract" in report["schema"]["keywords"]
