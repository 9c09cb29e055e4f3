"""`turnout explain`: which rules a text hits, which wins, why, and what it costs. Sends nothing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout_rules.endpoints import SUFFIX_OF

if TYPE_CHECKING:
    from turnout_rules.explaining import Explanation
    from turnout_rules.loading import Rules
    from turnout_rules.request import Request

_PATHS = {name: f"/v1{suffix}" for name, suffix in SUFFIX_OF.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A text, or a whole body in a file."""
    parser.add_argument(
        "text", nargs="?", metavar="TEXT", help="what the person wrote; - for stdin"
    )
    parser.add_argument("--rules", type=Path, metavar="DIR", help="the rules folder")
    parser.add_argument("--body", metavar="FILE", help="a whole request body; - for stdin")
    parser.add_argument(
        "--path", default=_PATHS["chat"], help="the body's path (default: %(default)s)"
    )
    parser.add_argument("--model", default="", help="the model the client asks for, with TEXT")
    parser.add_argument("--endpoint", choices=_PATHS, default="chat", help="with TEXT")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a request header, with --body",
    )
    parser.add_argument(
        "--semantic",
        action="store_true",
        help="also ask the classifier, and show the nearest examples (loads the encoder)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """0, also where nothing matches; 2 for wrong usage, 1 for a body that cannot be read."""
    if (args.text is None) == (args.body is None):
        print("turnout explain: give a TEXT or --body FILE, one of the two", file=sys.stderr)
        return 2
    from turnout_rules.loading import find_rules_folder, load_rules
    from turnout_rules.unreadable import Unreadable

    rules = load_rules(find_rules_folder(args.rules))
    try:
        explanation, elapsed_us, request = _explain(args, rules)
    except Unreadable as error:
        return _print_unreadable(str(error), is_json=args.json)
    except OSError as error:
        print(f"turnout explain: {args.body}: {error.strerror}", file=sys.stderr)
        return 1
    row, lines = _row(explanation, elapsed_us), f"{explanation}\n  took      {elapsed_us:.1f} µs"
    if args.semantic:
        from turnout_cli.semantic_view import ask_classifier
        from turnout_sidecar.classifiers import ClassifierError

        try:
            said = ask_classifier(rules, request, explanation.decision)
        except ClassifierError as error:
            print(f"turnout explain: {error}", file=sys.stderr)
            return 1
        row |= said.row() | {"elapsed_us": elapsed_us}
        lines += f"\n{said}"
    print(json.dumps(row, ensure_ascii=False, indent=2) if args.json else lines)
    return 0


def _explain(args: argparse.Namespace, rules: Rules) -> tuple[Explanation, float, Request]:
    """The explanation, and the microseconds of the decision alone once it is warm."""
    from time import perf_counter

    text = sys.stdin.read() if args.text == "-" else args.text
    body = _read_body(args.body) if args.body else b""
    explanation = rules.table.explain(_request(args, rules, text, body))
    request = _request(args, rules, text, body)
    started = perf_counter()
    rules.table.decide(request)
    return explanation, round((perf_counter() - started) * 1e6, 1), request


def _read_body(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _request(args: argparse.Namespace, rules: Rules, text: str | None, body: bytes) -> Request:
    from turnout_rules.reading import Reader
    from turnout_rules.request import Request

    if text is not None:
        return Request.from_text(text, model=args.model, endpoint=args.endpoint)
    headers = {n.strip().lower(): v.strip() for n, _, v in (h.partition(":") for h in args.header)}
    reader = Reader(rules.settings.reading)
    return reader.read(method="POST", path=args.path, headers=headers, body=body)


def _row(explanation: Explanation, elapsed_us: float) -> dict[str, Any]:
    import msgspec

    row: dict[str, Any] = msgspec.to_builtins(explanation.decision)
    row["elapsed_us"] = elapsed_us
    row["hits"] = msgspec.to_builtins(explanation.hits)
    row["losers"] = msgspec.to_builtins(explanation.losers)
    return row


def _print_unreadable(reason: str, *, is_json: bool) -> int:
    if is_json:
        row = {"route": None, "target": "pass", "layer": "pass", "reason": reason}
        print(json.dumps({**row, "elapsed_us": 0.0, "hits": []}, ensure_ascii=False, indent=2))
    else:
        print(f"pass  [pass]\n  because   {reason}")
    return 1
