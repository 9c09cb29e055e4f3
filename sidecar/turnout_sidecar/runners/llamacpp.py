"""A llama.cpp server out of the `xllamacpp` wheel, with the flags of `llama-server` that we use.

For machines without the program itself. It dies with its parent and ends cleanly on SIGTERM; it
never downloads anything.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

_CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8}
_POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
_FLAG_OF = {"n_batch": "batch_size", "n_ubatch": "ubatch_size", "ctx_shift": "context_shift"}
"""The library's names for flags that have others."""
_PARENT_POLL_S = 1.0


def parser() -> argparse.ArgumentParser:
    """The flags, named as llama-server names them."""
    flags = argparse.ArgumentParser(prog="turnout-llamacpp", allow_abbrev=False)
    flags.add_argument("-m", "--model", required=True)
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("-c", "--ctx-size", type=int, default=4096)
    flags.add_argument("-np", "--parallel", type=int, default=1)
    flags.add_argument("--alias", default="")
    flags.add_argument("-t", "--threads", type=int, default=1)
    flags.add_argument("-tb", "--threads-batch", type=int, default=0)
    flags.add_argument("-ngl", "--n-gpu-layers", type=int)
    flags.add_argument("-ctk", "--cache-type-k", choices=sorted(_CACHE_TYPES))
    flags.add_argument("-ctv", "--cache-type-v", choices=sorted(_CACHE_TYPES))
    flags.add_argument("-ctkd", "--cache-type-k-draft", choices=sorted(_CACHE_TYPES))
    flags.add_argument("-ctvd", "--cache-type-v-draft", choices=sorted(_CACHE_TYPES))
    flags.add_argument("-b", "--batch-size", type=int)
    flags.add_argument("-ub", "--ubatch-size", type=int)
    flags.add_argument("-kvu", "--kv-unified", action="store_true")
    flags.add_argument("--swa-full", action="store_true")
    flags.add_argument("--context-shift", action=argparse.BooleanOptionalAction)
    flags.add_argument("-mm", "--mmproj", default="")
    flags.add_argument("-md", "--model-draft", default="")
    flags.add_argument("--cache-ram", type=int, default=0)
    flags.add_argument("-ctxcp", "--ctx-checkpoints", type=int, default=0)
    flags.add_argument("--embeddings", "--embedding", action="store_true")
    flags.add_argument("--rerank", "--reranking", action="store_true")
    flags.add_argument("--pooling", choices=sorted(_POOLING))
    flags.add_argument("-lv", "--verbosity", type=int)
    flags.add_argument("--metrics", action="store_true")
    flags.add_argument("--no-webui", action="store_true")
    flags.add_argument("--offline", action="store_true")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or the parent's death."""
    parent = os.getppid()
    args = parser().parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        import xllamacpp
    except ImportError:
        print("error: neither llama-server nor the xllamacpp wheel is installed", file=sys.stderr)
        return 1
    try:
        server = xllamacpp.Server(_parameters(xllamacpp, args))
    except Exception as error:  # the library raises bare exceptions of several kinds
        print(f"error: exiting due to model loading error: {error}", file=sys.stderr)
        return 1
    print(f"listening on {server.listening_address}", flush=True)
    while not stop.wait(_PARENT_POLL_S):
        if os.getppid() != parent:
            break
    # The library's own shutdown waits for streams that clients keep open; nothing needs it here.
    sys.stdout.flush()
    os._exit(0)


def _parameters(xllamacpp: Any, args: argparse.Namespace) -> Any:
    p = xllamacpp.CommonParams()
    p.model.path = args.model
    p.hostnames = [args.host]
    p.port = args.port
    p.n_ctx = args.ctx_size
    p.n_parallel = args.parallel
    p.cpuparams.n_threads = args.threads
    p.cpuparams_batch.n_threads = args.threads_batch or args.threads
    p.cache_ram_mib = args.cache_ram
    p.endpoint_metrics = args.metrics
    p.endpoint_slots = True
    p.offline = True
    p.n_ctx_checkpoints = args.ctx_checkpoints
    p.kv_unified = args.kv_unified
    p.swa_full = args.swa_full
    p.mmproj.path = args.mmproj
    if args.alias:
        p.model_alias = {args.alias}
    for name in ("n_gpu_layers", "n_batch", "n_ubatch", "ctx_shift", "verbosity"):
        if (value := getattr(args, _FLAG_OF.get(name, name))) is not None:
            setattr(p, name, value)
    _set_cache_types(xllamacpp, p, args.cache_type_k, args.cache_type_v)
    _set_draft(xllamacpp, p.speculative, args)
    _set_reader(xllamacpp, p, args)
    return p


def _set_cache_types(xllamacpp: Any, p: Any, keys: str | None, values: str | None) -> None:
    for name, attribute in ((keys, "cache_type_k"), (values, "cache_type_v")):
        if name:
            setattr(p, attribute, xllamacpp.ggml_type(_CACHE_TYPES[name]))


def _set_draft(xllamacpp: Any, p: Any, args: argparse.Namespace) -> None:
    if not args.model_draft:
        return
    p.draft.mparams.path = args.model_draft
    p.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    _set_cache_types(xllamacpp, p.draft, args.cache_type_k_draft, args.cache_type_v_draft)


def _set_reader(xllamacpp: Any, p: Any, args: argparse.Namespace) -> None:
    """An engine that answers with vectors or ranks instead of text."""
    p.embedding = args.embeddings or args.rerank
    pooling = "rank" if args.rerank else args.pooling
    if pooling:
        p.pooling_type = xllamacpp.llama_pooling_type(_POOLING[pooling])


if __name__ == "__main__":
    sys.exit(main())
