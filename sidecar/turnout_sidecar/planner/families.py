"""Families of models whose memory is known, and what their GGUF headers leave unsaid. Data only.

Source: llama.cpp, src/llama-arch.cpp (names, `llm_arch_is_recurrent`, `llm_arch_is_hybrid`),
src/llama-model.cpp (`create_memory`) and `load_arch_hparams` of each file of src/models.
"""

from __future__ import annotations

import msgspec


class Windows(msgspec.Struct, frozen=True):
    """Which layers of a family look back on a window only, where the header does not list them."""

    every: int = 0
    """One layer in so many is full; 0: only the header's list tells."""
    full_first: bool = False
    """Whether the full layer is the first of each group instead of the last."""
    window: int = 0
    """Tokens, where the header says nothing; 0: then there are no windows."""


WINDOWS = {
    "afmoe": Windows(4),
    "cohere2": Windows(4),
    "cohere2moe": Windows(4, full_first=True),
    "exaone-moe": Windows(4, window=128),
    "exaone4": Windows(4, window=4_096),
    "gemma2": Windows(2, window=4_096),
    "gemma3": Windows(6),
    "gemma3n": Windows(5),
    "gemma4": Windows(),
    "gpt-oss": Windows(2),
    "granite_swa": Windows(),
    "laguna": Windows(4, full_first=True),
    "lfm2": Windows(1 << 20),
    "llama4": Windows(4, window=8_192),
    "maple": Windows(),
    "mellum": Windows(4),
    "mimo2": Windows(),
    "muse-glimmer": Windows(4),
    "olmo2": Windows(4),
    "plamo3": Windows(8),
    "smallthinker": Windows(4, full_first=True),
    "spark2_5": Windows(),
    "step35": Windows(),
}
WINDOWED_BLOCKS = {"exaone4": 64}
"""Only the model with so many blocks uses its family's windows."""
FIXED_WINDOW = {"smallthinker": 4_096}
"""Whatever the header says."""

SHARED_FROM = {"gemma3n": 20}
"""Blocks from this one on use the cache of an earlier one."""

RECURRENT = frozenset(("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"))
"""No layer has keys."""
FULL_EVERY = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "minimax-01": 8}
"""One layer in so many has attention, the others a state."""
BOTH = frozenset(("falcon-h1",))
"""Every layer has attention and a state."""
STATE_WITHOUT_HEADS = frozenset(
    (
        *("bailingmoe3", "granitehybrid", "jamba", "kimi-linear", "lfm2", "lfm2moe", "plamo2"),
        *("nemotron_h", "nemotron_h_moe"),
    )
)
"""A layer without KV heads has a state."""
INDEXED = frozenset(("deepseek32", "glm-dsa", "minimax-m3"))
"""Sparse attention: layers keep keys of an indexer, too."""
CACHELESS = frozenset(
    (
        *("bert", "clef", "dream", "eurobert", "gemma-embedding", "gemma-embedding2"),
        *("jina-bert-v2", "jina-bert-v3", "llada", "llada-moe", "modern-bert", "neo-bert"),
        *("nomic-bert", "nomic-bert-moe", "rnd1", "t5encoder", "wavtokenizer-dec"),
    )
)
"""Each text is read at once, nothing is kept."""

_PLAIN = """
apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell cogvlm
command-r dbrx deci deepseek deepseek2 deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone falcon gemma
glm4 glm4moe gpt2 gptj gptneox granite granitemoe grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl
hy_v3 internlm2 jais jais2 llama llama-embed maincoder minicpm minicpm3 minimax-m2 mistral3 mistral4
mpt nemotron olmo olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo plm qwen qwen2
qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm starcoder
starcoder2 talkie xverse
"""
KNOWN_GGUF = frozenset(_PLAIN.split()).union(
    WINDOWS, RECURRENT, FULL_EVERY, BOTH, STATE_WITHOUT_HEADS, INDEXED, CACHELESS
)

# `model_type` of configurations (transformers, src/transformers/models; vLLM,
# model_executor/models/registry.py), each alone or with `_text` behind it.
_CONFIGS = """
apertus arcee baichuan bamba bloom chatglm cohere cohere2 command-r dbrx deepseek_v2 deepseek_v3
deepseek_v32 ernie4_5 ernie4_5_moe exaone exaone4 falcon falcon_h1 falcon_mamba gemma gemma2 gemma3
gemma3n gemma4 gemma4_unified glm glm4 glm4_moe glm4_moe_lite glm4v glm_moe_dsa gpt2 gpt_bigcode
gpt_neox gpt_oss granite granitemoe granitemoehybrid granitemoeshared hunyuan_v1_dense
hunyuan_v1_moe internlm2 internlm3 jamba kimi_k2 kimi_linear lfm2 lfm2_moe llama llama4 mamba
mamba2 minicpm minicpm3 minimax minimax_m2 ministral ministral3 mistral mistral3 mistral4 mixtral
mllama mpt nemotron nemotron_h olmo olmo2 olmo3 olmoe opt persimmon phi phi3 phi4mm phimoe pixtral
qwen qwen2 qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next qwen3_vl
qwen3_vl_moe seed_oss smollm3 solar stablelm starcoder2 xverse zamba2
"""
KNOWN_CONFIG = frozenset(_CONFIGS.split())
