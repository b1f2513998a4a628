"""What llama.cpp alone costs here: prefill and decode, for one interpreter's build of the bindings.

    python bench/decode.py MODEL.gguf [--threads 2] [--rounds 5]

Run it with interpreters whose `llama-cpp-python` was compiled with other flags (CMAKE_ARGS) to
choose among them; the bindings and numpy are all it needs. No grammar and no server is involved.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from server.engine.llama import LlamaModel
from server.engine.model import BatchItem

_PROMPT = 256
_STEPS = 32


def milliseconds(model: LlamaModel, batch: list[BatchItem]) -> float:
    """How long one batch takes."""
    begin = time.perf_counter()
    model.decode(batch)
    return (time.perf_counter() - begin) * 1e3


def measure(model: LlamaModel, sequences: int) -> tuple[float, float]:
    """(prefill, decode): milliseconds a prompt token, and a step of so many sequences."""
    tokens = [5 + index % 1000 for index in range(_PROMPT)]
    prefill = []
    for seq in range(sequences):
        batch = [
            BatchItem(token, place, seq, place == _PROMPT - 1) for place, token in enumerate(tokens)
        ]
        prefill.append(milliseconds(model, batch) / _PROMPT)
    steps = []
    for step in range(_STEPS):
        batch = [BatchItem(17 + seq, _PROMPT + step, seq, True) for seq in range(sequences)]
        steps.append(milliseconds(model, batch))
    for seq in range(sequences):
        model.kv_remove(seq, 0, -1)
    return statistics.median(prefill), statistics.median(steps)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--threads", type=int, default=0, help="0: one a physical core")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    model = LlamaModel(options.model, n_threads=options.threads, n_seq_max=8, n_batch=_PROMPT)
    try:
        for sequences in (1, 4, 8):
            measured = [measure(model, sequences) for _ in range(options.rounds)]
            prefill = statistics.median(each[0] for each in measured)
            decode = statistics.median(each[1] for each in measured)
            print(f"{sequences} sequence(s): prefill {prefill:.3f} ms/token, step {decode:.2f} ms")
    finally:
        model.close()


if __name__ == "__main__":
    main()
