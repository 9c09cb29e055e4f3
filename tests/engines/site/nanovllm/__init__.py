"""A stand-in for the nano-vllm package (CUDA only), shaped like it at the edge our runner uses.

"Generates" the prompt's own characters again, one token a step; token ids are UTF-8 bytes.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass


@dataclass
class SamplingParams:
    temperature: float = 1.0
    max_tokens: int = 64
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        assert self.temperature > 1e-10


class Tokenizer:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int], skip_special_tokens: bool = False) -> str:
        return bytes(tokens).decode("utf-8", "replace")

    def apply_chat_template(self, messages, tokenize: bool, add_generation_prompt: bool) -> str:
        assert not tokenize
        assert add_generation_prompt
        return messages[-1]["content"]


class Sequence:
    def __init__(self, tokens: list[int], sampling: SamplingParams) -> None:
        self.prompt = tokens
        self.sampling = sampling
        self.completion_token_ids: list[int] = []
        self.is_finished = False


class BlockManager:
    def deallocate(self, sequence: Sequence) -> None:
        print("deallocated", flush=True)


class Scheduler:
    def __init__(self, max_num_seqs: int) -> None:
        self.max_num_seqs = max_num_seqs
        self.waiting: deque[Sequence] = deque()
        self.running: deque[Sequence] = deque()
        self.block_manager = BlockManager()


class LLM:
    def __init__(self, model: str, max_num_seqs: int = 4, **options: object) -> None:
        self.tokenizer = Tokenizer()
        self.scheduler = Scheduler(max_num_seqs)

    def add_request(self, prompt: list[int], sampling: SamplingParams) -> None:
        self.scheduler.waiting.append(Sequence(prompt, sampling))

    def step(self) -> None:
        time.sleep(float(os.environ.get("FAKE_STEP_S", "0.001")))
        scheduler = self.scheduler
        while scheduler.waiting and len(scheduler.running) < scheduler.max_num_seqs:
            scheduler.running.append(scheduler.waiting.popleft())
        for sequence in tuple(scheduler.running):
            made = sequence.completion_token_ids
            if sequence.prompt[:4] == list(b"CUDA"):
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            made.append(sequence.prompt[len(made) % len(sequence.prompt)])
            is_end = len(made) >= len(sequence.prompt) and not sequence.sampling.ignore_eos
            if is_end or len(made) >= sequence.sampling.max_tokens:
                sequence.is_finished = True
                scheduler.running.remove(sequence)
