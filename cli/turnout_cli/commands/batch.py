"""`turnout batch`: hand work that can wait to the running sidecar, follow it, fetch its results.

Speaks the OpenAI Batch API to the gateway, so any other client of that API may be used as well.
"""

from __future__ import annotations

import argparse
import http.client
import json
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from turnout_rules.folders import runtime_folder

ENDED = ("completed", "failed", "expired", "cancelled")
POLL_S = 1.0
TIMEOUT_S = 30.0
CHUNK_BYTES = 1024 * 1024


class BatchError(Exception):
    """What the person is told in one line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One action and what it needs."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--url", help="gateway, e.g. http://127.0.0.1:8083 (found by itself)")
    common.add_argument("--json", action="store_true", help="print JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    submit = actions.add_parser("submit", parents=[common], help="run a JSONL file of requests")
    submit.add_argument("file", type=Path, metavar="FILE")
    submit.add_argument("--endpoint", help="path of every line (taken from the first line)")
    submit.add_argument("--window", default="24h", help="hours until it expires (24h)")
    submit.add_argument("--wait", action="store_true", help="follow it to its end")
    status = actions.add_parser("status", parents=[common], help="how far a batch is")
    status.add_argument("id", metavar="ID")
    status.add_argument("--wait", action="store_true", help="follow it to its end")
    fetch = actions.add_parser("fetch", parents=[common], help="write a batch's results")
    fetch.add_argument("id", metavar="ID")
    fetch.add_argument("-o", "--output", type=Path, metavar="FILE", help="(standard output)")
    fetch.add_argument("--errors", action="store_true", help="the error file instead")
    cancel = actions.add_parser("cancel", parents=[common], help="end a batch early")
    cancel.add_argument("id", metavar="ID")
    actions.add_parser("list", parents=[common], help="all batches")


def run(args: argparse.Namespace) -> int:
    """Do it; 1 if the sidecar cannot be reached or says no, or the batch failed."""
    try:
        gateway = _Gateway(args.url or _running_url())
        return int(_ACTIONS[args.action](gateway, args))
    except BatchError as error:
        print(f"turnout: {error}", file=sys.stderr)
    except (OSError, http.client.HTTPException) as error:
        print(f"turnout: the gateway cannot be reached: {error}", file=sys.stderr)
    return 1


def _submit(gateway: _Gateway, args: argparse.Namespace) -> int:
    if not args.file.is_file():
        raise BatchError(f"no file {args.file}")
    endpoint = args.endpoint or _first_url(args.file)
    uploaded = gateway.upload(args.file)
    order = {
        "input_file_id": uploaded["id"],
        "endpoint": endpoint,
        "completion_window": args.window,
    }
    batch = gateway.call("POST", "/v1/batches", order)
    if args.wait:
        return _follow(gateway, batch, args)
    _show(batch, args)
    if not args.json:
        print(f"follow it with: turnout batch status --wait {batch['id']}", file=sys.stderr)
    return 0


def _status(gateway: _Gateway, args: argparse.Namespace) -> int:
    batch = gateway.batch(args.id)
    if args.wait and batch["status"] not in ENDED:
        return _follow(gateway, batch, args)
    _show(batch, args)
    return int(batch["status"] in ("failed", "expired"))


def _fetch(gateway: _Gateway, args: argparse.Namespace) -> int:
    batch = gateway.batch(args.id)
    key = "error_file_id" if args.errors else "output_file_id"
    if batch["status"] not in ENDED:
        raise BatchError(f"{args.id} is {batch['status']}; wait for its end first")
    if not batch[key]:
        raise BatchError(f"{args.id} ({batch['status']}) has no such file")
    pieces = gateway.read(f"/v1/files/{batch[key]}/content")
    if args.output is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return 0
    with args.output.open("wb") as file:
        for piece in pieces:
            file.write(piece)
    print(f"wrote {args.output}", file=sys.stderr)
    return 0


def _cancel(gateway: _Gateway, args: argparse.Namespace) -> int:
    _show(gateway.call("POST", f"/v1/batches/{args.id}/cancel"), args)
    return 0


def _list(gateway: _Gateway, args: argparse.Namespace) -> int:
    batches = gateway.call("GET", "/v1/batches")["data"]
    if args.json:
        print(json.dumps(batches, ensure_ascii=False))
        return 0
    from rich.console import Console
    from rich.table import Column, Table

    names = Column("batch", no_wrap=True, min_width=30)
    table = Table(names, "status", "done", "failed", "of", "endpoint", "created", box=None)
    for batch in batches:
        counts = batch["request_counts"]
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(batch["created_at"]))
        cells = (counts["completed"], counts["failed"], counts["total"])
        numbers = (str(cell) for cell in cells)
        table.add_row(batch["id"], batch["status"], *numbers, batch["endpoint"], created)
    Console().print(table)
    return 0


_ACTIONS = {
    "submit": _submit,
    "status": _status,
    "fetch": _fetch,
    "cancel": _cancel,
    "list": _list,
}


def _follow(gateway: _Gateway, batch: dict[str, Any], args: argparse.Namespace) -> int:
    """A progress bar on stderr until the batch ends."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task(batch["status"], total=None)
        while True:
            counts = batch["request_counts"]
            progress.update(
                bar,
                description=batch["status"],
                total=counts["total"] or None,
                completed=counts["completed"] + counts["failed"],
            )
            if batch["status"] in ENDED:
                break
            time.sleep(POLL_S)
            batch = gateway.batch(batch["id"])
    _show(batch, args)
    return int(batch["status"] != "completed")


def _show(batch: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(batch, ensure_ascii=False))
        return
    counts = batch["request_counts"]
    print(
        f"{batch['id']}  {batch['status']}  {counts['completed']} done, {counts['failed']} failed "
        f"of {counts['total']}"
    )
    for problem in (batch["errors"] or {}).get("data", []):
        line = f"line {problem['line']}: " if problem["line"] else ""
        print(f"  {line}{problem['message']}", file=sys.stderr)


def _first_url(path: Path) -> str:
    with path.open("rb") as file:
        line = file.readline(16 * 1024 * 1024)
    try:
        url = json.loads(line)["url"]
    except (ValueError, KeyError, TypeError):
        raise BatchError(f"{path}:1: no JSON object with a url; or pass --endpoint") from None
    return str(url)


def _running_url() -> str:
    """The gateway of the running sidecar, by the record it leaves."""
    try:
        record = json.loads((runtime_folder() / "sidecar.json").read_bytes())
        return f"http://127.0.0.1:{record['port']}"
    except (OSError, ValueError, KeyError, TypeError):
        raise BatchError(
            "no running sidecar found: start it with `turnout up`, or pass --url"
        ) from None


class _Gateway:
    """The gateway's HTTP interface; one connection a call, no proxy variables."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80

    def batch(self, batch_id: str) -> dict[str, Any]:
        """One batch."""
        return self.call("GET", f"/v1/batches/{batch_id}")

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """A JSON answer; raises `BatchError` with what an error answer says."""
        data = None if body is None else json.dumps(body).encode()
        return self._json(method, path, data, {"content-type": "application/json"})

    def upload(self, path: Path) -> dict[str, Any]:
        """Send a file, piece by piece."""
        edge = f"turnout-{secrets.token_hex(16)}"
        head = (
            f'--{edge}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{edge}\r\ncontent-disposition: form-data; name="file"; filename="{path.name}"\r\n'
            "content-type: application/jsonl\r\n\r\n"
        ).encode("utf-8", "replace")
        tail = f"\r\n--{edge}--\r\n".encode()
        size = len(head) + path.stat().st_size + len(tail)

        def pieces() -> Iterator[bytes]:
            yield head
            with path.open("rb") as file:
                while piece := file.read(CHUNK_BYTES):
                    yield piece
            yield tail

        headers = {
            "content-type": f"multipart/form-data; boundary={edge}",
            "content-length": str(size),
        }
        return self._json("POST", "/v1/files", pieces(), headers)

    def read(self, path: str) -> Iterator[bytes]:
        """A file's content."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status >= 400:
                raise _said(response)
            while piece := response.read(CHUNK_BYTES):
                yield piece
        finally:
            connection.close()

    def _json(self, method: str, path: str, body: Any, headers: dict[str, str]) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise _said(response)
            answer: dict[str, Any] = json.loads(response.read())
            return answer
        finally:
            connection.close()


def _said(response: http.client.HTTPResponse) -> BatchError:
    try:
        return BatchError(json.loads(response.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return BatchError(f"the gateway answered {response.status}")
