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
    flags.add_argument("--cache-ram", type=int, default=0)
    flags.add_argument("--embeddings", action="store_true")
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
    p.embedding = args.embeddings
    if args.alias:
        p.model_alias = {args.alias}
    if args.n_gpu_layers is not None:
        p.n_gpu_layers = args.n_gpu_layers
    for flag, attribute in (
        (args.cache_type_k, "cache_type_k"),
        (args.cache_type_v, "cache_type_v"),
    ):
        if flag:
            setattr(p, attribute, xllamacpp.ggml_type(_CACHE_TYPES[flag]))
    return p


if __name__ == "__main__":
    sys.exit(main())
