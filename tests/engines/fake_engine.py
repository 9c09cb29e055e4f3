"""An engine without a model: a real program that serves the OpenAI API and misbehaves on request.

Standard library only, so that it starts in 50 ms. Every start appends `start <pid>` to `--journal`,
every answered request `served <concurrency>`: what tests count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def flags() -> argparse.Namespace:
    p = argparse.ArgumentParser()
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--name", default="fake")
    p.add_argument("--journal", default="")
    p.add_argument("--max-num-seqs", type=int, default=2)
    p.add_argument("--load-s", type=float, default=0.0)
    p.add_argument("--load-silently", action="store_true", help="no line while loading")
    p.add_argument("--say", action="append", default=[], help="lines written before --exit-code")
    p.add_argument("--exit-code", type=int, help="end like this instead of serving")
    p.add_argument("--exit-after-s", type=float, help="end with 0 some time after being ready")
    p.add_argument("--oom-over-seqs", type=int, help="out of memory if max-num-seqs is larger")
    p.add_argument("--ignore-sigterm", action="store_true")
    p.add_argument("--fork", default="", help="leave a child in a session of its own; its pid here")
    p.add_argument("--hang-health-after", type=int, help="health checks answered before it hangs")
    p.add_argument("--spin", action="store_true", help="use the CPU while health checks hang")
    p.add_argument("--die-over", type=int, help="out of memory when so many requests run at once")
    p.add_argument("--leak-mb", type=int, default=0, help="memory kept per request")
    p.add_argument("--tokens", type=int, default=3)
    p.add_argument("--token-s", type=float, default=0.005)
    p.add_argument("--spam", type=int, default=0, help="bytes of log per request")
    return p.parse_args()


class State:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.is_ready = False
        self.is_asleep = threading.Event()
        self.running = 0
        self.health_checks = 0
        self.lock = threading.Lock()
        self.leaked: list[bytearray] = []

    def note(self, line: str) -> None:
        if self.args.journal:
            with open(self.args.journal, "a") as file:
                file.write(f"{line}\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            self.state.health_checks += 1
            limit = self.state.args.hang_health_after
            if limit is not None and self.state.health_checks > limit:
                while self.state.args.spin:
                    pass
                time.sleep(3600)
            self.reply(200 if self.state.is_ready else 503, {"status": "ok"})
        elif self.path == "/is_sleeping":
            self.reply(200, {"is_sleeping": self.state.is_asleep.is_set()})
        elif self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": self.state.args.name}]})
        else:
            self.reply(404, {"error": {"message": "no such page"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if self.path.startswith("/sleep"):
            self.state.is_asleep.set()
            self.state.note("sleep")
            return self.reply(200, {})
        if self.path == "/wake_up":
            self.state.is_asleep.clear()
            self.state.note("wake")
            return self.reply(200, {})
        while self.state.is_asleep.is_set():
            time.sleep(0.05)
        with self.state.lock:
            self.state.running += 1
            now = self.state.running
        try:
            if self.state.args.die_over is not None and now > self.state.args.die_over:
                print(OOM, flush=True)
                os._exit(1)
            # Before the answer: once that is out, nothing keeps this process from being stopped.
            self.state.note(f"served {now}")
            self.answer(body)
        finally:
            with self.state.lock:
                self.state.running -= 1

    def answer(self, body: dict) -> None:
        args = self.state.args
        if args.leak_mb:
            self.state.leaked.append(bytearray(os.urandom(1)) * (args.leak_mb * 1024 * 1024))
        if args.spam:
            print("x" * args.spam, flush=True)
        if not body.get("stream"):
            time.sleep(args.tokens * args.token_s)
            text = " ".join(f"t{i}" for i in range(args.tokens))
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return self.reply(
                200, {"object": "chat.completion", "model": args.name, "choices": [choice]}
            )
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for i in range(args.tokens):
            time.sleep(args.token_s)
            chunk = {"index": 0, "delta": {"content": f"t{i} "}, "finish_reason": None}
            event = {"object": "chat.completion.chunk", "model": args.name, "choices": [chunk]}
            self.chunk(f"data: {json.dumps(event)}\n\n".encode())
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")
        return None

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def reply(self, status: int, value: dict) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that leave are nobody's error."""


def main() -> int:
    args = flags()
    state = State(args)
    state.note(f"start {os.getpid()}")
    if args.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if args.fork:
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
        )
        Path(args.fork).write_text(str(child.pid))
    server = Server(("127.0.0.1", args.port), type("Bound", (Handler,), {"state": state}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("loading", flush=True)
    until = time.monotonic() + args.load_s
    while time.monotonic() < until:
        time.sleep(0.05)
        if not args.load_silently:
            print("loading weights", flush=True)
    for line in args.say:
        print(line, flush=True)
    if args.oom_over_seqs is not None and args.max_num_seqs > args.oom_over_seqs:
        print(OOM, flush=True)
        return 1
    if args.exit_code is not None:
        return args.exit_code
    state.is_ready = True
    print("ready", flush=True)
    if args.exit_after_s is not None:
        time.sleep(args.exit_after_s)
        return 0
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
