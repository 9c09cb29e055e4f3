"""Working memory of a vision or audio projector (`--mmproj`), from its GGUF header. Pure.

Source: llama.cpp, tools/mtmd/clip.cpp: the image that a projector is warmed up with, patch by
patch through its widest layer. An image of another size can take more, for as long as it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout_sidecar.planner.shape import whole

_FLOAT = 4
_WIDTHS = (6, 2)
"""Vectors of the hidden and of the feed-forward size that live at once."""
_FRAMES = 1_500
"""Of 30 seconds of audio (Whisper's encoder)."""
# Tokens a side of the image that is warmed up with; others take the image size of their header.
_SIDES = {
    **dict.fromkeys(("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "ling3vl"), 46),
    **dict.fromkeys(("dots_ocr", "dots3note_v", "mimovl", "glm4v", "glm5v", "exaone4_5"), 46),
    **dict.fromkeys(("pixtral", "lightonocr", "kimivl", "phi4", "minimax_m3", "youtuvl"), 16),
    **dict.fromkeys(("gemma4v", "gemma4uv", "lfm2"), 16),
    **dict.fromkeys(("muse-glimmer", "hunyuanvl"), 32),
    "paddleocr": 28,
}
_MERGES = {
    **dict.fromkeys(("pixtral", "lightonocr", "phi4"), 1),
    **dict.fromkeys(("gemma4v", "gemma4uv"), 3),
}
_USUAL_MERGE = 2


def projector_bytes(header: Mapping[str, Any]) -> int:
    """What it holds besides its weights; 0: the header does not say what it depends on."""
    kind = str(header.get("clip.vision.projector_type") or header.get("clip.projector_type", ""))
    return max(_row_bytes(header, "vision") * _patches(header, kind), _audio(header))


def _audio(header: Mapping[str, Any]) -> int:
    return _row_bytes(header, "audio") * _FRAMES


def _patches(header: Mapping[str, Any], kind: str) -> int:
    if side := _SIDES.get(kind):
        merge = _MERGES.get(kind) or _USUAL_MERGE
        return (side * whole(header, "clip.vision.spatial_merge_size", default=merge)) ** 2
    patch = whole(header, "clip.vision.patch_size", default=0) or 1
    return (whole(header, "clip.vision.image_size", default=0) // patch) ** 2


def _row_bytes(header: Mapping[str, Any], part: str) -> int:
    hidden = whole(header, f"clip.{part}.embedding_length", default=0)
    wide = whole(header, f"clip.{part}.feed_forward_length", default=0)
    return _FLOAT * (_WIDTHS[0] * hidden + _WIDTHS[1] * wide)
