"""What llama.cpp holds besides weights and caches. Pure.

Source: llama.cpp, `sched_reserve` in src/llama-context.cpp and the buffer sizes that it prints:
f16 masks of all cells for each row, and over them 32-bit activations or the logits of the tokens
that are asked for (SmolLM2-135M, 8,192 cells: 22.6 MiB printed, 22.6 planned).
"""

from __future__ import annotations

from turnout_sidecar.planner import kv
from turnout_sidecar.planner.shape import Shape
from turnout_sidecar.planner.wish import Wish

MIB = 1 << 20
PROGRAM_BYTES = 48 * MIB
"""Program, tokenizer and graph."""
CARD_BYTES = 448 * MIB
"""A CUDA context takes 300 to 500 MiB before anything is loaded."""
_FLOAT, _MASK = 4, 2


def scratch_bytes(wish: Wish, shape: Shape, tokens: int, seats: int, *, is_on_card: bool) -> int:
    """Working memory with so many requests of so many tokens."""
    rows = min(wish.rows, tokens * (seats if wish.layout.is_unified else 1))
    mask = _MASK * kv.mask_cells(shape, tokens, wish.layout, seats) if shape.caches else 0
    # A server of before August 2026 makes room for the logits of every row, and cannot be told.
    outputs = rows if is_on_card or wish.is_reader else min(rows, seats)
    blocks = rows * shape.row_size + seats * shape.state_bytes // (_FLOAT * max(1, shape.layers))
    logits = outputs * (shape.vocabulary + shape.hidden_size) + 5 * rows * shape.hidden_size
    return rows * mask + _FLOAT * (max(blocks, logits) + seats * shape.vocabulary)


def checkpoint_bytes(wish: Wish, shape: Shape, seats: int) -> int:
    """Copies of states and full windows, in RAM (llama.cpp, tools/server, `create_checkpoint`)."""
    windows = tuple(cache for cache in shape.caches if cache.window)
    if wish.layout.keeps_all or not (windows or shape.state_bytes):
        return 0
    kept = sum(
        cache.window * cache.layers * kv.token_bytes(shape, cache, wish.layout) for cache in windows
    )
    return int(wish.checkpoints * seats * (shape.state_bytes + kept))
