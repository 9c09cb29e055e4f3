"""A chat tool loop by hand, over `requests`, `httpx` or a `curl` process."""

import json
import os
import subprocess
import sys

from common import DESCRIPTION, PROMPT, SCHEMA, SYSTEM, read_notes, show

BASE = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
URL = f"{BASE}/chat/completions"
HEADERS = {
    "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
    "content-type": "application/json",
}


def by_requests(body):
    import requests

    with requests.post(URL, json=body, headers=HEADERS, stream=True, timeout=60) as answer:
        answer.raise_for_status()
        yield from answer.iter_lines(chunk_size=1, decode_unicode=True)


def by_httpx(body):
    import httpx

    with httpx.stream("POST", URL, json=body, headers=HEADERS, timeout=60) as answer:
        answer.raise_for_status()
        yield from answer.iter_lines()


def by_curl(body):
    command = ["curl", "-sS", "-N", "--fail", "-m", "60", URL, "-d", json.dumps(body)]
    for name, value in HEADERS.items():
        command += ["-H", f"{name}: {value}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield from (line.rstrip("\n") for line in process.stdout)
    assert process.wait() == 0


def deltas(send, messages):
    function = {"name": "read_notes", "description": DESCRIPTION, "parameters": SCHEMA}
    tools = [{"type": "function", "function": function}]
    body = {"model": "gpt-4o", "messages": messages, "tools": tools, "stream": True}
    for line in send(body):
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                yield choice["delta"]


def main(send):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
    call = {}
    for delta in deltas(send, messages):
        for entry in delta.get("tool_calls", []):
            call["id"] = entry.get("id") or call["id"]
            call["name"] = entry["function"].get("name") or call["name"]
            call["arguments"] = call.get("arguments", "") + entry["function"]["arguments"]
    function = {"name": call["name"], "arguments": call["arguments"]}
    entry = {"id": call["id"], "type": "function", "function": function}
    messages.append({"role": "assistant", "content": None, "tool_calls": [entry]})
    result = read_notes(**json.loads(call["arguments"]))
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    for delta in deltas(send, messages):
        show(delta.get("content"))


main({"requests": by_requests, "httpx": by_httpx, "curl": by_curl}[sys.argv[1]])
