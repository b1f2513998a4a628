"""Runs a fuzz target under atheris (libFuzzer), the code under test instrumented for coverage.

    python -m tests.fuzz regex|schema|parsing [libFuzzer's options] [corpus directory]

``atheris`` is not a dependency of the project; ``tests/test_fuzz.py`` and
``tests/test_parsing_fuzz.py`` run the same targets on random bytes without it. What a target states
is written in ``fuzz_grammar.py`` and ``fuzz_parsing.py``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable


def main() -> None:
    """Instrument, import, fuzz."""
    atheris = importlib.import_module("atheris")
    name = sys.argv.pop(1)
    # Modules are instrumented as they are imported, so nothing of the project is imported above.
    with atheris.instrument_imports(include=["grammar", "parsing"]):
        grammar = importlib.import_module("tests.fuzz_grammar")
        parsing = importlib.import_module("tests.fuzz_parsing")
    targets: dict[str, Callable[[bytes], object]] = {
        **grammar.TARGETS,
        "parsing": parsing.TestOneInput,
    }
    target = targets[name]

    def run(data: bytes) -> None:
        target(data)

    atheris.Setup(sys.argv, run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
