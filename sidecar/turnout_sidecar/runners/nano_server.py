"""An OpenAI-compatible, streaming server around nano-vllm's `step()`; nano-vllm has none.

One file on the standard library and nano-vllm alone, because it runs in the environment where the
person installed that. One thread steps the engine; handlers only hand sequences over and read what
comes back. A client that leaves takes its sequence out of the engine.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

MAX_BODY_BYTES = 16 * 1024 * 1024
DEFAULT_TOKENS = 1_024
IDLE_POLL_S = 0.5
_REPLACEMENT = "\ufffd"


class Generator(Protocol):
    """The outermost edge: what the server needs of an engine."""

    def encode(self, messages: list[dict[str, Any]] | str) -> list[int]:
        """Token ids of a chat (template applied) or of a plain prompt."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Their text."""

    def add(self, tokens: list[int], sampling: dict[str, Any]) -> Any:
        """Queue a sequence; what comes back identifies it."""

    def drop(self, handle: Any) -> None:
        """Take a sequence out, wherever it is."""

    def step(self) -> list[tuple[Any, list[int], bool]]:
        """Run one step: (handle, all its new tokens so far, is finished) per running sequence."""


class NanoVllm:
    """nano-vllm's `LLM`, whose scheduler is reached into because it offers no streaming."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Loads the weights; raises whatever CUDA raises."""
        from nanovllm import LLM, SamplingParams

        self._sampling = SamplingParams
        self._llm = LLM(
            args.model,
            enforce_eager=args.enforce_eager,
            max_model_len=args.max_model_len,
            max_num_seqs=args.max_num_seqs,
            gpu_memory_utilization=args.gpu_memory_utilization,
            tensor_parallel_size=args.tensor_parallel_size,
        )
        self._tokenizer = self._llm.tokenizer

    def encode(self, messages: list[dict[str, Any]] | str) -> list[int]:
        """See `Generator`."""
        if isinstance(messages, str):
            return list(self._tokenizer.encode(messages))
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self._tokenizer.encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Generator`."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def add(self, tokens: list[int], sampling: dict[str, Any]) -> Any:
        """See `Generator`."""
        self._llm.add_request(tokens, self._sampling(**sampling))
        return self._llm.scheduler.waiting[-1]

    def drop(self, handle: Any) -> None:
        """See `Generator`."""
        scheduler = self._llm.scheduler
        if handle in scheduler.waiting:
            scheduler.waiting.remove(handle)
        elif handle in scheduler.running:
            scheduler.running.remove(handle)
            scheduler.block_manager.deallocate(handle)

    def step(self) -> list[tuple[Any, list[int], bool]]:
        """See `Generator`."""
        before = [*self._llm.scheduler.running, *self._llm.scheduler.waiting]
        self._llm.step()
        return [(s, list(s.completion_token_ids), bool(s.is_finished)) for s in before]


@dataclass(eq=False)
class Job:
    """One request. `pieces` carries (text, finish reason or None), then None."""

    tokens: list[int]
    sampling: dict[str, Any]
    stop: tuple[str, ...] = ()
    pieces: queue.Queue[tuple[str, str | None] | None] = field(default_factory=queue.Queue)
    handle: Any = None
    sent: int = 0
    """Characters of the text handed out."""
    made: int = 0
    """Tokens made so far."""
    is_cancelled: bool = False


class Stepper(threading.Thread):
    """The only thread that touches the engine."""

    def __init__(self, generator: Generator) -> None:
        """Dies with the process."""
        super().__init__(daemon=True)
        self._generator = generator
        self._inbox: queue.Queue[Job] = queue.Queue()
        self._jobs: dict[int, Job] = {}
        self.failure = ""

    @property
    def running(self) -> int:
        """Sequences in the engine."""
        return len(self._jobs)

    @property
    def waiting(self) -> int:
        """Requests not handed over yet."""
        return self._inbox.qsize()

    def submit(self, job: Job) -> None:
        """From any thread."""
        self._inbox.put(job)

    def run(self) -> None:
        """Step while there is work; an exception ends the process, for CUDA does not recover."""
        try:
            while True:
                self._take_in(is_blocking=not self._jobs)
                self._drop_cancelled()
                if self._jobs:
                    self._hand_out(self._generator.step())
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}"
            print(self.failure, file=sys.stderr, flush=True)
            for job in self._jobs.values():
                job.pieces.put(None)
            os._exit(1)

    def _take_in(self, *, is_blocking: bool) -> None:
        try:
            while True:
                job = self._inbox.get(block=is_blocking, timeout=IDLE_POLL_S)
                is_blocking = False
                if not job.is_cancelled:
                    job.handle = self._generator.add(job.tokens, job.sampling)
                    self._jobs[id(job.handle)] = job
        except queue.Empty:
            pass

    def _drop_cancelled(self) -> None:
        for key, job in tuple(self._jobs.items()):
            if job.is_cancelled:
                self._generator.drop(job.handle)
                del self._jobs[key]

    def _hand_out(self, outputs: list[tuple[Any, list[int], bool]]) -> None:
        for handle, tokens, is_finished in outputs:
            job = self._jobs.get(id(handle))
            if job is None or (len(tokens) == job.made and not is_finished):
                continue
            job.made = len(tokens)
            text = self._generator.decode(tokens)
            if (end := _stop_at(text, job.stop)) is not None:
                self._finish(job, text[:end], "stop", is_running=not is_finished)
            elif is_finished:
                limit = job.sampling["max_tokens"]
                self._finish(job, text, "length" if job.made >= limit else "stop")
            elif not text.endswith(_REPLACEMENT):
                # Half a character decodes to a replacement sign: wait for its other half.
                held_back = max((len(s) - 1 for s in job.stop), default=0)
                self._send(job, text[: len(text) - held_back], None)

    def _finish(self, job: Job, text: str, reason: str, *, is_running: bool = False) -> None:
        if is_running:
            self._generator.drop(job.handle)
        del self._jobs[id(job.handle)]
        self._send(job, text, reason)
        job.pieces.put(None)

    def _send(self, job: Job, text: str, reason: str | None) -> None:
        piece, job.sent = text[job.sent :], max(job.sent, len(text))
        if piece or reason:
            job.pieces.put((piece, reason))


class BadRequest(Exception):
    """What the client sent cannot be served; the message says why."""


class Handler(BaseHTTPRequestHandler):
    """One connection. Subclassed with the server's parts by `serve`."""

    protocol_version = "HTTP/1.1"
    stepper: Stepper
    generator: Generator
    model: str
    max_model_len: int

    def log_message(self, *args: object) -> None:
        """Prompts and paths are nobody's business."""

    def do_GET(self) -> None:
        """Health, models, metrics."""
        if self.path == "/health":
            self._json(503 if self.stepper.failure else 200, {"status": "ok"})
        elif self.path == "/v1/models":
            card = {"id": self.model, "object": "model", "owned_by": "nano-vllm"}
            self._json(200, {"object": "list", "data": [card]})
        elif self.path == "/metrics":
            text = (
                f"nanovllm:requests_running {self.stepper.running}\n"
                f"nanovllm:requests_waiting {self.stepper.waiting}\n"
            )
            self._send(200, "text/plain", text.encode())
        else:
            self._error(404, "no such page")

    def do_POST(self) -> None:
        """Chat and plain completions."""
        kind = {"/v1/chat/completions": "chat", "/v1/completions": "text"}.get(self.path)
        try:
            body = self._body()
            if kind is None:
                self._error(404, "no such page")
                return
            job = self._job(body, is_chat=kind == "chat")
        except BadRequest as error:
            self._error(400, str(error))
            return
        self.stepper.submit(job)
        try:
            if body.get("stream"):
                self._stream(job, body, is_chat=kind == "chat")
            else:
                self._answer(job, is_chat=kind == "chat")
        except OSError:
            self.close_connection = True
        finally:
            job.is_cancelled = True

    def _body(self) -> dict[str, Any]:
        try:
            length = int(self.headers.get("content-length", ""))
        except ValueError:
            raise BadRequest("a content-length is needed") from None
        if not 0 <= length <= MAX_BODY_BYTES:
            raise BadRequest(f"the body may have {MAX_BODY_BYTES} bytes")
        try:
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            raise BadRequest("the body is no JSON") from None
        if not isinstance(body, dict):
            raise BadRequest("the body must be an object")
        return body

    def _job(self, body: dict[str, Any], *, is_chat: bool) -> Job:
        given = body.get("messages" if is_chat else "prompt")
        if not isinstance(given, list if is_chat else str):
            raise BadRequest("messages must be a list" if is_chat else "prompt must be a string")
        try:
            tokens = self.generator.encode(_plain(given) if isinstance(given, list) else given)
        except (KeyError, TypeError, ValueError) as error:
            raise BadRequest(f"the messages do not fit the chat template: {error}") from error
        room = self.max_model_len - len(tokens)
        if room < 1:
            raise BadRequest(
                f"maximum context length is {self.max_model_len} tokens, "
                f"the messages have {len(tokens)} (context_length_exceeded)"
            )
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_TOKENS
        heat = body.get("temperature")
        try:
            # The engine refuses greedy sampling; this is as near as it gets.
            sampling = {
                "temperature": max(1e-3, 1.0 if heat is None else float(heat)),
                "max_tokens": max(1, min(int(wanted), room)),
                "ignore_eos": bool(body.get("ignore_eos", False)),
            }
        except (TypeError, ValueError):
            raise BadRequest("temperature and max_tokens must be numbers") from None
        stop = body.get("stop") or ()
        stops = (stop,) if isinstance(stop, str) else tuple(s for s in stop if isinstance(s, str))
        return Job(tokens=tokens, sampling=sampling, stop=tuple(filter(None, stops)))

    def _answer(self, job: Job, *, is_chat: bool) -> None:
        text, reason = "", "stop"
        for piece, finish in self._pieces(job):
            text += piece
            reason = finish or reason
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        choice |= {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        value = self._head("chat.completion" if is_chat else "text_completion")
        self._json(200, {**value, "choices": [choice], "usage": _usage(job)})

    def _stream(self, job: Job, body: dict[str, Any], *, is_chat: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        head = self._head("chat.completion.chunk" if is_chat else "text_completion")
        if is_chat:
            first = {"index": 0, "delta": {"role": "assistant", "content": ""}}
            self._event({**head, "choices": [{**first, "finish_reason": None}]})
        for piece, finish in self._pieces(job):
            content: dict[str, Any] = {"delta": {"content": piece}} if is_chat else {"text": piece}
            choice = {"index": 0, **content, "finish_reason": finish}
            self._event({**head, "choices": [choice]})
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event({**head, "choices": [], "usage": _usage(job)})
        self.wfile.write(b"data: [DONE]\n\n")

    def _pieces(self, job: Job) -> Iterator[tuple[str, str | None]]:
        """Text as it is made; looks at the connection while there is none."""
        while True:
            try:
                piece = job.pieces.get(timeout=IDLE_POLL_S)
            except queue.Empty:
                if _has_left(self.connection):
                    raise ConnectionAbortedError from None
                continue
            if piece is None:
                return
            if _has_left(self.connection):
                raise ConnectionAbortedError
            yield piece

    def _head(self, kind: str) -> dict[str, Any]:
        name = f"chatcmpl-{uuid.uuid4().hex}"
        return {"id": name, "object": kind, "created": int(time.time()), "model": self.model}

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n")
        self.wfile.flush()

    def _error(self, status: int, message: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        self._json(status, {"error": error})

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(value, ensure_ascii=False).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Quiet about clients that leave."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A handler's failure ends its connection only."""


def parser() -> argparse.ArgumentParser:
    """The flags, named as vLLM names them."""
    flags = argparse.ArgumentParser(prog="turnout-nanovllm", allow_abbrev=False)
    flags.add_argument("--model", required=True)
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--served-model-name", default="")
    flags.add_argument("--max-num-seqs", type=int, default=2)
    flags.add_argument("--max-model-len", type=int, default=4096)
    flags.add_argument("--gpu-memory-utilization", type=float, default=0.6)
    flags.add_argument("--tensor-parallel-size", type=int, default=1)
    flags.add_argument("--enforce-eager", action="store_true")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Load, then serve until SIGTERM."""
    args = parser().parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    print(f"loading {args.model}", flush=True)
    generator = NanoVllm(args)
    stepper = Stepper(generator)
    parts = {
        "stepper": stepper,
        "generator": generator,
        "model": args.served_model_name or args.model,
        "max_model_len": args.max_model_len,
    }
    server = Server((args.host, args.port), type("BoundHandler", (Handler,), parts))
    stepper.start()
    print(f"listening on http://{args.host}:{args.port}", flush=True)
    server.serve_forever()
    return 0


def _plain(messages: list[Any]) -> list[dict[str, Any]]:
    """Chat templates want strings: text parts are joined, other parts refused."""
    plain = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest("each message must be an object with a role")
        content = message.get("content") or ""
        if isinstance(content, list):
            parts = [p.get("text") if isinstance(p, dict) else None for p in content]
            if not all(isinstance(p, str) for p in parts):
                raise BadRequest("this model reads text only")
            content = "".join(str(p) for p in parts)
        plain.append({**message, "content": content})
    return plain


def _stop_at(text: str, stops: tuple[str, ...]) -> int | None:
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return min(found) if found else None


def _usage(job: Job) -> dict[str, int]:
    asked = len(job.tokens)
    return {
        "prompt_tokens": asked,
        "completion_tokens": job.made,
        "total_tokens": asked + job.made,
    }


def _has_left(connection: Any) -> bool:
    """Whether the client has closed its side; pipelined data means that it has not."""
    import socket

    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"")
    except BlockingIOError:
        return False
    except OSError:
        return True


if __name__ == "__main__":
    sys.exit(main())
