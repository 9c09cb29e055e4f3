"""vLLM's API server as far as memory goes, over the fake engine program.

Takes its share of the card at start or dies with vLLM's own words, and then serves. `FAKE_CARD`
names the card's folder, `FAKE_FLAGS` further flags of the fake engine.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

import card
import fake_engine

GIB = 2**30


def flags() -> argparse.Namespace:
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--host", required=True)
    p.add_argument("--port", required=True)
    p.add_argument("--served-model-name", required=True)
    p.add_argument("--max-num-seqs", required=True)
    p.add_argument("--gpu-memory-utilization", type=float, required=True)
    p.add_argument("--max-model-len", type=int)
    p.add_argument("--quantization")
    p.add_argument("--kv-cache-dtype")
    p.add_argument("--enable-sleep-mode", action="store_true")
    return p.parse_args()


def main() -> None:
    args = flags()
    folder = Path(os.environ["FAKE_CARD"])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    total = card.total(folder)
    free = total - sum(card.holders(folder).values())
    wanted = total * args.gpu_memory_utilization
    if wanted > free:
        sys.exit(
            f"ValueError: Free memory on device ({free / GIB:.2f}/{total / GIB:.2f} GiB) on "
            "startup is less than desired GPU memory utilization "
            f"({args.gpu_memory_utilization}, {wanted / GIB:.2f} GiB). Decrease GPU memory "
            "utilization or reduce GPU memory used by other processes."
        )
    weights = sum(file.stat().st_size for file in Path(args.model).glob("*.safetensors"))
    try:
        card.take(folder, int(max(wanted, weights)))
    except MemoryError:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    sys.argv[1:] = ["--port", args.port, "--name", args.served_model_name]
    sys.argv += ["--max-num-seqs", args.max_num_seqs, *os.environ.get("FAKE_FLAGS", "").split()]
    code = fake_engine.main()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
