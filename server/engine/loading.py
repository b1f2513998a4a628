"""Puts a model file and the settings together; imports llama.cpp only when a model is loaded.

Invariant: everything raised for a bad file or bad sizes is a `ModelLoadError`, and nothing stays
allocated after it. Read next: `engine.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from server.engine.engine import LocalEngine
from server.engine.errors import DecodeError, ModelLoadError
from server.engine.model import BatchItem
from server.engine.types import EngineSettings


class LoadSettings(EngineSettings, Protocol):
    """The settings' `[engine]` section, as far as loading reads it."""

    @property
    def n_ctx(self) -> int:
        """Cells of the cache, shared by all slots."""

    @property
    def n_seq(self) -> int:
        """Slots: answers generated at once."""

    @property
    def n_threads(self) -> int:
        """0 for the number of usable physical cores."""


def load_engine(
    path: str | Path, settings: LoadSettings, *, trie_dir: Path | None = None
) -> LocalEngine:
    """Load a GGUF file and start its engine.

    `trie_dir` is where the vocabulary's byte trie is kept between runs. Blocks until the model is
    in memory. Raises `ModelLoadError`.
    """
    from server.engine.llama import LlamaModel

    model = LlamaModel(
        path,
        n_ctx=settings.n_ctx,
        n_threads=settings.n_threads,
        n_seq_max=settings.n_seq,
        n_batch=max(settings.n_batch, settings.n_seq),
        trie_dir=trie_dir,
    )
    try:
        # The first evaluation reads the weights from the disk; better now than in a request.
        model.decode([BatchItem(token=0, pos=0, seq=0, logits=True)])
        model.kv_remove(0, 0, -1)
    except DecodeError as error:
        model.close()
        raise ModelLoadError(str(path), str(error)) from error
    return LocalEngine(model, settings)
