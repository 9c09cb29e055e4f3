"""The shape of a model from its GGUF header, as llama.cpp reads it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout_sidecar.planner import families
from turnout_sidecar.planner.shape import Cache, Shape, gathered, whole

_STATE_BYTES = 4
"""States are kept as f32 (llama.cpp, src/llama-model.cpp, `create_memory`)."""
_TOKEN_SHIFTS = 2
"""RWKV's, where the header does not say (llama.cpp, src/llama-hparams.h)."""


def shape_of_gguf(header: Mapping[str, Any]) -> Shape:
    """From a GGUF header; raises ValueError naming what is missing."""
    family = str(header.get("general.architecture", ""))
    own = {k.removeprefix(family + "."): v for k, v in header.items() if k.startswith(family + ".")}
    tokens = header.get("tokenizer.ggml.tokens", 0)
    model = _Gguf(family, own)
    return Shape(
        layers=model.blocks,
        caches=() if family in families.CACHELESS else gathered(model.caches()),
        state_bytes=_STATE_BYTES * model.state() * sum(model.recurrent),
        kv_heads=max(model.kv_heads, default=0),
        is_latent=model.is_latent,
        hidden_size=model.hidden,
        row_size=model.row(),
        vocabulary=whole(own, "vocab_size", default=tokens if isinstance(tokens, int) else 0),
        max_context=whole(own, "context_length", default=0),
        family=family,
        is_guess=family not in families.KNOWN_GGUF,
    )


class _Gguf:
    """One header, read: what llama.cpp calls hparams (src/llama-hparams.cpp)."""

    def __init__(self, family: str, own: Mapping[str, Any]) -> None:
        self.family, self.own = family, own
        self.hidden = whole(own, "embedding_length")
        all_blocks = whole(own, "block_count")
        # Blocks that only predict further tokens come last; without `--spec-type` none is used.
        self.blocks = all_blocks - whole(own, "nextn_predict_layers", default=0) or all_blocks
        is_headless = family in families.RECURRENT
        self.heads = self.each("attention.head_count", 0 if is_headless else None)
        has_own = "attention.head_count_kv" in own
        self.kv_heads = self.each("attention.head_count_kv", 0) if has_own else self.heads
        self.is_latent = {"attention.key_length_mla", "attention.value_length_mla"} <= own.keys()
        self.recurrent = self._recurrent()

    def each(self, name: str, default: int | None) -> list[int]:
        """One value for each block; raises ValueError if there is none and no default."""
        value = self.own.get(name)
        if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
            return [int(v) for v in (value + value[-1:] * self.blocks)[: self.blocks]]
        return [whole(self.own, name, default=default)] * self.blocks

    def caches(self) -> list[Cache]:
        """Of each block. Source: llama.cpp, src/llama-kv-cache.cpp."""
        size = self.hidden // max(1, self.heads[0] if self.heads else 1)
        key = whole(self.own, "attention.key_length", default=size)
        value = whole(self.own, "attention.value_length", default=size)
        short_key = whole(self.own, "attention.key_length_swa", default=key)
        short_value = whole(self.own, "attention.value_length_swa", default=value)
        windows, last = self._windows(), self._first_shared()
        indexer, dense = self._indexer()
        found = []
        for block, heads in enumerate(self.kv_heads[:last]):
            if self.recurrent[block] and self.family not in families.BOTH:
                continue
            is_short = windows[block] > 0
            keys = heads * (short_key if is_short else key)
            values = 0 if self.is_latent else heads * (short_value if is_short else value)
            if indexer and block >= dense:
                keys += indexer
                values += 0 if self.is_latent else value
            found.append(Cache(keys=keys, values=values, window=windows[block]))
        return found

    def state(self) -> int:
        """Elements that one recurrent block keeps of a request.

        Source: llama.cpp, src/llama-hparams.cpp, `n_embd_r` and `n_embd_s`.
        """
        own, kernel = self.own, whole(self.own, "ssm.conv_kernel", default=0)
        heads = self.heads[0] if self.heads else 0
        if size := whole(own, "wkv.head_size", default=0):
            shifts = whole(own, "token_shift_count", default=_TOKEN_SHIFTS)
            return self.hidden * (shifts + size)
        if reach := whole(own, "shortconv.l_cache", default=0):
            return self.hidden * (reach - 1)
        if size := whole(own, "kda.head_dim", default=0):
            return heads * size * (3 * ((kernel or 4) - 1) + size)
        if self.family == "minimax-01":
            return heads * whole(own, "attention.key_length", default=0) ** 2
        inner, state = (whole(own, f"ssm.{name}_size", default=0) for name in ("inner", "state"))
        groups = whole(own, "ssm.group_count", default=0)
        return max(0, kernel - 1) * (inner + 2 * groups * state) + state * inner

    def row(self) -> int:
        """Activations of one token that live at once: those of the widest part of any block.

        Source: the compute buffers that llama.cpp prints, of models of each family.
        """
        own, hidden = self.own, self.hidden
        heads = max(self.heads, default=0)
        size = whole(own, "attention.key_length", default=hidden // max(1, heads))
        if self.is_latent:
            names = ("key_length_mla", "value_length_mla", "kv_lora_rank")
            size += sum(whole(own, f"attention.{name}", default=0) for name in names)
            attention = heads * size + 3 * hidden
        else:
            attention = 5 * hidden + 2 * heads * size
        used = max(self.each("expert_used_count", 0), default=0)
        expert = max(self.each("expert_feed_forward_length", 0), default=0)
        is_dense = not used or whole(own, "leading_dense_block_count", default=0) > 0
        dense = max(self.each("feed_forward_length", 0), default=0) if is_dense else 0
        forward = max(3 * dense, used * (expert + hidden))
        return max(attention, 5 * hidden + forward, self._state_row())

    def _state_row(self) -> int:
        own = self.own
        inner, state = (whole(own, f"ssm.{name}_size", default=0) for name in ("inner", "state"))
        both = 2 * whole(own, "ssm.group_count", default=0) * state
        if self.family in families.FULL_EVERY:
            return 2 * (inner + both) + 2 * inner + self.hidden
        ranks = whole(own, "ssm.time_step_rank", default=0)
        return 7 * inner + 3 * both + self.hidden + 2 * ranks if inner else 0

    def _recurrent(self) -> list[bool]:
        family = self.family
        if family in families.RECURRENT or family in families.BOTH:
            return [True] * self.blocks
        is_mixed = family in families.FULL_EVERY or "full_attention_interval" in self.own
        if is_mixed and isinstance(self.own.get("attention.recurrent_layers"), list):
            return [bool(flag) for flag in self.each("attention.recurrent_layers", 0)]
        if is_mixed:
            usual = families.FULL_EVERY.get(family, 4)
            every = whole(self.own, "full_attention_interval", default=usual) or usual
            return [(block + 1) % every != 0 for block in range(self.blocks)]
        is_unknown = family not in families.KNOWN_GGUF and "ssm.state_size" in self.own
        if family not in families.STATE_WITHOUT_HEADS and not is_unknown:
            return [False] * self.blocks
        # Nemotron-H has blocks that are feed-forward only: neither heads nor a state.
        widths = [0] * self.blocks
        if family.startswith("nemotron_h"):
            widths = self.each("feed_forward_length", 0)
        return [not h and not w for h, w in zip(self.kv_heads, widths, strict=True)]

    def _windows(self) -> list[int]:
        """Each block's window; 0: none."""
        none = [0] * self.blocks
        usual = families.WINDOWS.get(self.family)
        pattern = self.own.get("attention.sliding_window_pattern")
        if usual is None and (self.family in families.KNOWN_GGUF or pattern is None):
            return none
        usual = usual or families.Windows()
        window = whole(self.own, "attention.sliding_window", default=usual.window)
        window = families.FIXED_WINDOW.get(self.family, window) if window else 0
        if not window or families.WINDOWED_BLOCKS.get(self.family, self.blocks) != self.blocks:
            return none
        if isinstance(pattern, list):
            return [window if flag else 0 for flag in self.each_flag(pattern)]
        every = pattern if isinstance(pattern, int) and pattern > 0 else usual.every
        if not every:
            return none
        full = 0 if usual.full_first else every - 1
        return [0 if block % every == full else window for block in range(self.blocks)]

    def each_flag(self, flags: list[Any]) -> list[bool]:
        """One flag for each block."""
        return [bool(flag) for flag in (flags + [False] * self.blocks)[: self.blocks]]

    def _first_shared(self) -> int:
        """The first block that keeps nothing of its own, or the number of blocks."""
        shared = whole(self.own, "attention.shared_kv_layers", default=0)
        return families.SHARED_FROM.get(self.family, max(0, self.blocks - shared))

    def _indexer(self) -> tuple[int, int]:
        """(elements of an indexer's key, the first block that has one)."""
        if self.family not in families.INDEXED:
            return 0, 0
        dense = whole(self.own, "leading_dense_block_count", default=0)
        first = dense if self.family == "minimax-m3" else 0
        return whole(self.own, "attention.indexer.key_length", default=0), first
