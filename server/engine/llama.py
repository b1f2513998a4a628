"""llama.cpp behind the `LanguageModel` protocol; the only module that knows `llama_cpp`.

It uses the library's C API directly (no sampling, no chat handling of the bindings): a model, one
context with a unified cache for all sequences, and one batch whose arrays are numpy memory filled
in place. Invariants: every handle is freed exactly once, by `close()`; no native call happens after
it; logits are numpy views of the context's own buffer, valid until the next `decode`.
Read next: `model.py`, the protocol, and `scheduler.py`, its caller.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from grammar import Vocabulary
from server.engine.cpus import usable_cores
from server.engine.errors import DecodeError, EngineClosedError, ModelLoadError
from server.engine.model import BatchItem, Logits, ModelInfo

# llama.cpp's threads meet some hundred times per token. Left to itself, OpenMP lets those who wait
# spin for so long that on a busy machine they keep the last one from its core: a token then takes
# seconds. A short spin costs a quiet machine nothing. Read once, when the library is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

import llama_cpp

_log = logging.getLogger(__name__)

_ERROR_LEVEL = 4  # GGML_LOG_LEVEL_ERROR
_CONTINUED_LEVEL = 5  # GGML_LOG_LEVEL_CONT: more of the line before

_DECODE_STATUS = {
    1: "no room in the cache for the batch",
    2: "aborted",
    -1: "the batch is not valid",
}


class _NativeLog:
    """llama.cpp's log lines: errors go to this module's logger, the rest to its debug level."""

    def __init__(self) -> None:
        self._level = 0

    def __call__(self, level: int, text: bytes, _: object) -> None:
        if level != _CONTINUED_LEVEL:
            self._level = level
        line = text.decode("utf-8", "replace").strip()
        if line.strip("."):
            is_error = self._level == _ERROR_LEVEL
            _log.log(logging.ERROR if is_error else logging.DEBUG, "llama.cpp: %s", line)


# llama.cpp keeps the pointer for the life of the process, so the callback must live as long.
_NATIVE_LOG = llama_cpp.llama_log_callback(_NativeLog())


class LlamaModel:
    """A GGUF model and its context.

    Args:
        path: the GGUF file.
        n_ctx: cells of the cache, shared by all sequences.
        n_threads: 0 for the number of usable physical cores.
        n_seq_max: number of sequences.
        n_batch: most tokens evaluated by one native call; longer batches are split.
        repack: let llama.cpp rearrange the weights for the processor's matrix units. Off, because
            its AMX kernels crash on some quantisations (Q4_1, Q4_K).
        flash_attention: use the fused attention kernels. Off, because they add up in an order that
            depends on the batch's size. Without them batches of two tokens and more give the same
            logits to the bit if the cells lie alike; a batch of one takes other kernels, and cells
            elsewhere add up in another order, so an answer in company may still differ where two
            tokens are nearly as likely.
        trie_dir: where the vocabulary's byte trie is kept between runs.

    Raises:
        ModelLoadError: no such file, not a usable GGUF, or not enough memory.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        n_ctx: int = 8192,
        n_threads: int = 0,
        n_seq_max: int = 4,
        n_batch: int = 512,
        repack: bool = False,
        flash_attention: bool = False,
        trie_dir: Path | None = None,
    ) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()  # close() must not free what tokenize() reads
        self._model: Any = None
        self._context: Any = None
        if not self._path.is_file():
            raise ModelLoadError(str(path), "there is no such file")
        llama_cpp.llama_log_set(_NATIVE_LOG, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = repack
        self._model = llama_cpp.llama_model_load_from_file(str(self._path).encode(), params)
        if not self._model:
            raise ModelLoadError(str(path), "llama.cpp does not accept it as a model (see the log)")
        try:
            self._vocab = llama_cpp.llama_model_get_vocab(self._model)
            self._n_threads = n_threads or usable_cores()
            self._open_context(n_ctx, n_seq_max, n_batch, flash_attention)
            self._texts, self._vocabulary = self._read_vocabulary(trie_dir)
            self._info = self._read_info()
            _log.info(
                "%s: weights %.0f MiB, cache of %d cells about %.0f MiB, %d slots, %d threads",
                self._path.name,
                self._info.size_bytes / 2**20,
                self._n_ctx,
                self.cache_bytes / 2**20,
                self._n_seq_max,
                self._n_threads,
            )
        except BaseException:
            self.close()
            raise

    def _open_context(
        self, n_ctx: int, n_seq_max: int, n_batch: int, flash_attention: bool
    ) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = n_batch
        params.n_ubatch = min(n_batch, params.n_ubatch)
        params.n_seq_max = n_seq_max
        # Rows of logits are large; reserving one for every token of a batch would cost n_batch x V.
        params.n_outputs_max = params.n_outputs_max_per_seq = n_seq_max
        params.n_threads = params.n_threads_batch = self._n_threads
        params.kv_unified = True
        params.flash_attn_type = (
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
            if flash_attention
            else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise ModelLoadError(
                str(self._path), f"no context of {n_ctx} tokens could be made (see the log)"
            )
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._n_ctx = int(llama_cpp.llama_n_ctx(self._context))
        self._n_seq_max = n_seq_max
        self._batch = _Batch(int(llama_cpp.llama_n_batch(self._context)))

    @property
    def cache_bytes(self) -> int:
        """About how much memory the cells take: keys and values of every layer, two bytes each."""
        model = self._model
        heads = int(llama_cpp.llama_model_n_head(model)) or 1
        size = int(llama_cpp.llama_model_n_embd(model)) // heads
        of = self._info.metadata
        name = f"{self._info.architecture}.attention."
        both = sum(int(of.get(f"{name}{part}_length", size)) for part in ("key", "value"))
        layers = int(llama_cpp.llama_model_n_layer(model))
        return 2 * self._n_ctx * layers * int(llama_cpp.llama_model_n_head_kv(model)) * both

    # --- LanguageModel ---------------------------------------------------------------------

    @property
    def n_ctx(self) -> int:
        """Cells shared by all sequences (llama.cpp may have rounded the number up)."""
        return self._n_ctx

    @property
    def n_seq_max(self) -> int:
        """Number of sequences."""
        return self._n_seq_max

    @property
    def n_threads(self) -> int:
        """Threads of the model's arithmetic."""
        return self._n_threads

    @property
    def vocab_size(self) -> int:
        """Length of a row of logits."""
        return self._vocabulary.size

    @property
    def vocabulary(self) -> Vocabulary:
        """Token bytes; control, unknown, unused and end tokens are special."""
        return self._vocabulary

    @property
    def info(self) -> ModelInfo:
        """From the file's metadata."""
        return self._info

    def tokenize(self, text: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """llama.cpp's own split. Raises `EngineClosedError` after `close()`."""
        room = len(text) + 8  # every token but the added ones has at least a byte
        while True:
            tokens = np.empty(room, dtype=np.int32)
            with self._lock:
                if not self._model:
                    raise EngineClosedError("the model is closed")
                count = llama_cpp.llama_tokenize(
                    self._vocab,
                    text,
                    len(text),
                    _pointer(tokens, ctypes.c_int32),
                    room,
                    add_special,
                    parse_special,
                )
            if count >= 0:
                return [int(token) for token in tokens[:count]]
            room = -count

    def token_text(self, token: int, *, special: bool = True) -> bytes:
        """The token's bytes, with `special` the text of a special token."""
        return self._texts[token] if special else self._vocabulary.tokens[token]

    def decode(self, batch: Sequence[BatchItem]) -> Logits:
        """One native call where the batch is small enough; else several, their rows copied."""
        if not self._context:
            raise EngineClosedError("the model is closed")
        parts = list(self._parts(batch))
        if len(parts) == 1:
            return self._decode_part(parts[0])
        # Each call overwrites the rows of the one before.
        return np.concatenate([self._decode_part(part).copy() for part in parts])

    def kv_remove(self, seq: int, p0: int, p1: int) -> bool:
        """Forget [p0, p1); False where the architecture keeps no separate positions."""
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, seq, p0, p1))

    def kv_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        """Share cells; nothing is computed or moved."""
        llama_cpp.llama_memory_seq_cp(self._memory, src, dst, p0, p1)

    def kv_length(self, seq: int) -> int:
        """One past the highest position held."""
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, seq)) + 1

    def close(self) -> None:
        """Free context and model."""
        with self._lock:
            context, self._context = self._context, None
            model, self._model = self._model, None
        if context:
            llama_cpp.llama_free(context)
        if model:
            llama_cpp.llama_model_free(model)

    # --- decoding --------------------------------------------------------------------------

    def _parts(self, batch: Sequence[BatchItem]) -> Iterator[Sequence[BatchItem]]:
        """Cut a batch so that no part has too many tokens or wanted rows for one native call."""
        begin = wanted = 0
        for i, item in enumerate(batch):
            if i - begin == self._batch.size or (item.logits and wanted == self._n_seq_max):
                yield batch[begin:i]
                begin, wanted = i, 0
            wanted += item.logits
        if begin < len(batch):
            yield batch[begin:]

    def _decode_part(self, part: Sequence[BatchItem]) -> Logits:
        wanted = self._batch.fill(part)
        status = llama_cpp.llama_decode(self._context, self._batch.native)
        if status != 0:
            reason = _DECODE_STATUS.get(status, "failure inside llama.cpp")
            raise DecodeError(f"a batch of {len(part)} tokens failed: {reason}", status)
        if not wanted:
            return np.empty((0, self.vocab_size), np.float32)
        logits = llama_cpp.llama_get_logits(self._context)
        return np.ctypeslib.as_array(logits, shape=(wanted, self.vocab_size))

    # --- reading the model file ------------------------------------------------------------

    def _read_vocabulary(self, trie_dir: Path | None) -> tuple[list[bytes], Vocabulary]:
        """(every token's text, special ones included; the vocabulary)."""
        vocab = self._vocab
        hidden = (
            llama_cpp.LLAMA_TOKEN_ATTR_CONTROL
            | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
            | llama_cpp.LLAMA_TOKEN_ATTR_UNUSED
        )
        texts, special = [], {}
        eos = {llama_cpp.llama_vocab_eos(vocab), llama_cpp.llama_vocab_eot(vocab)}
        for token in range(llama_cpp.llama_vocab_n_tokens(vocab)):
            if llama_cpp.llama_vocab_is_eog(vocab, token):
                eos.add(token)
            if token in eos or llama_cpp.llama_vocab_get_attr(vocab, token) & hidden:
                texts.append(llama_cpp.llama_vocab_get_text(vocab, token) or b"")
                special[token] = texts[-1].decode("utf-8", "replace")
            else:
                texts.append(self._piece(token))
        eos.discard(llama_cpp.LLAMA_TOKEN_NULL)
        if not eos:
            raise ModelLoadError(str(self._path), "its vocabulary has no end-of-sequence token")
        return texts, Vocabulary(texts, special, eos, trie_dir=trie_dir)

    def _piece(self, token: int) -> bytes:
        """An ordinary token's bytes."""
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, room, 0, False)
            if size >= 0:
                return buffer.raw[:size]
            room = -size

    def _read_info(self) -> ModelInfo:
        model, vocab = self._model, self._vocab
        metadata = self._read_metadata()
        template = llama_cpp.llama_model_chat_template(model, None)
        bos, eos = llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab)
        return ModelInfo(
            name=metadata.get("general.name") or self._path.stem,
            path=str(self._path),
            architecture=metadata.get("general.architecture", ""),
            n_ctx_train=int(llama_cpp.llama_model_n_ctx_train(model)),
            n_params=int(llama_cpp.llama_model_n_params(model)),
            size_bytes=int(llama_cpp.llama_model_size(model)),
            chat_template=template.decode("utf-8", "replace") if template else None,
            bos_token=self._special_text(bos),
            eos_token=self._special_text(eos),
            add_bos=bool(llama_cpp.llama_vocab_get_add_bos(vocab)),
            eos_ids=self._vocabulary.eos,
            bos_id=None if bos == llama_cpp.LLAMA_TOKEN_NULL else int(bos),
            metadata=MappingProxyType(metadata),
        )

    def _special_text(self, token: int) -> str:
        if token == llama_cpp.LLAMA_TOKEN_NULL:
            return ""
        return self._texts[token].decode("utf-8", "replace")

    def _read_metadata(self) -> dict[str, str]:
        """The file's scalar metadata."""
        read_key = llama_cpp.llama_model_meta_key_by_index
        read_value = llama_cpp.llama_model_meta_val_str_by_index
        return {
            self._meta(read_key, i): self._meta(read_value, i)
            for i in range(llama_cpp.llama_model_meta_count(self._model))
        }

    def _meta(self, read: Any, index: int) -> str:
        room = 256
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = int(read(self._model, index, buffer, room))
            if size < room:
                return buffer.value.decode("utf-8", "replace") if size >= 0 else ""
            room = size + 1


class _Batch:
    """A native batch over numpy arrays; `fill` writes them in place, nothing is allocated."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._tokens = np.zeros(size, dtype=np.int32)
        self._positions = np.zeros(size, dtype=np.int32)
        self._sequences = np.zeros(size, dtype=np.int32)
        self._wanted = np.zeros(size, dtype=np.int8)
        self._counts = np.ones(size, dtype=np.int32)  # every token belongs to one sequence
        int32 = ctypes.c_int32
        base = self._sequences.ctypes.data
        step = ctypes.sizeof(int32)
        self._pointers = (ctypes.POINTER(int32) * size)(
            *(ctypes.cast(base + i * step, ctypes.POINTER(int32)) for i in range(size))
        )
        self.native = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, int32),
            embd=None,
            pos=_pointer(self._positions, int32),
            n_seq_id=_pointer(self._counts, int32),
            seq_id=ctypes.cast(self._pointers, ctypes.POINTER(ctypes.POINTER(int32))),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def fill(self, items: Sequence[BatchItem]) -> int:
        """Write the items; returns how many rows of logits they want."""
        assert 0 < len(items) <= self.size
        count = len(items)
        tokens, positions, sequences, wanted = zip(*items, strict=True)
        self._tokens[:count] = tokens
        self._positions[:count] = positions
        self._sequences[:count] = sequences
        self._wanted[:count] = wanted
        self.native.n_tokens = count
        return int(self._wanted[:count].sum())


def _pointer(array: np.ndarray[Any, Any], kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))
