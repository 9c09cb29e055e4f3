"""Upstreams for four kinds of machine, as commented YAML that a person can edit.

The figures are those of a workstation that also drives a screen: few requests at once, part of the
card left free, contexts whose KV cache fits beside the weights. `turnout plan` checks them against
the model files that are really there.
"""

from __future__ import annotations

_HEAD = "# yaml-language-server: $schema=./turnout.schema.json\n#\n"

_API = """\
  # Ready to be used in routes.yaml, e.g. `target: api/gpt-4o-mini`, once OPENAI_API_KEY is set.
  api:
    base_url: https://api.openai.com/v1
    api_key_env: OPENAI_API_KEY         # the NAME of the variable, never the key
    max_concurrency: 32
"""

_ROUTING = f"""\
# Profile `routing`: rules and classifier here, every model elsewhere. 2 cores, 4 GB, no GPU.

upstreams:
{_API}    models: [gpt-4o-mini, gpt-4o]
"""

_7B = f"""\
# Profile `7b`: one 7B model in INT4 (about 4 GB of weights) on an 8 GB card, 16 GB RAM.
# At most 4 requests at once: 4 x 4,096 tokens of KV cache stay below 1 GB for a model with grouped
# KV heads. Put your model's folder into model_path, then: turnout plan

upstreams:
  vllm:
    engine: vllm
    models:
      main:
        model_path: ./models/qwen7b-int4
        quantization: gptq
        max_num_seqs: 4
        max_model_len: 4096
        gpu_memory_utilization: 0.7     # the card drives a screen, too
        ttl_s: 900

{_API}"""

_27B = f"""\
# Profile `27b`: one 27B model in INT4 (about 15 GB of weights) on a 24 GB card; 32 GB RAM, 30 GB
# disk. Put your model's folder into model_path, then: turnout plan

upstreams:
  vllm:
    engine: vllm
    models:
      main:
        model_path: ./models/27b-int4
        quantization: gptq
        max_num_seqs: 2
        max_model_len: 8192
        gpu_memory_utilization: 0.85    # weights alone take 0.63 of the card
        kv_cache_dtype: fp8             # halves the KV cache
        ttl_s: 1800
        start_timeout_s: 300            # 15 GB from a slow disk take a while

{_API}"""

_FULL = f"""\
# Profile `full`: classifier (on the CPU), a main and a tool model on a 24 GB card, 64 GB RAM. The
# shares of both add up to less than the card; where they would not fit, Turnout stops the idle one.

upstreams:
  vllm:
    engine: vllm
    models:
      main:
        model_path: ./models/qwen14b-int4
        quantization: gptq
        max_num_seqs: 4
        max_model_len: 8192
        gpu_memory_utilization: 0.55
      tool:
        model_path: ./models/qwen3b-int4
        quantization: gptq
        max_num_seqs: 4
        max_model_len: 4096
        gpu_memory_utilization: 0.25
        ttl_s: 600

  # A small model on the CPU, for what may be simple: `turnout models pull` fetches it (98 MB).
  local:
    engine: llamacpp
    models:
      smollm2:
        model_path: smollm2
        max_num_seqs: 2
        max_model_len: 4096
        context: 4096

{_API}"""

PROFILES = {"routing": _ROUTING, "7b": _7B, "27b": _27B, "full": _FULL}


def profile_upstreams(name: str) -> str:
    """The text of `upstreams.yaml` for a profile; raises KeyError for a name that is none."""
    return _HEAD + PROFILES[name]
