"""Faults of the world around: kills, full disks, wild saves, hostile files, scripts and batches."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from faults.kit import PATH, Box, body, box
from proxy_kit import wait_until

SAVES = 200
WHOLE = """
routes:
  - {{name: r{0}, match: [word{0}], target: far/m{0}}}
  - {{name: rest, match: [.*], target: far/model}}
"""
SCRIPTED = """
routes: [{name: picked, match: [.*], script: scripts/pick.py, target: far/model}]
"""
CATCHES_ALL = """
    while True:
        try:
            while True: pass
        except BaseException: pass"""


def kills(folder: Path) -> str:
    """SIGKILL of each process under load; `turnout up` brings it back."""
    with box(folder) as it:
        rows = []
        for name, listener in (("addon", "base_url"), ("sidecar", "sidecar")):
            counted: Counter[str] = Counter()
            over = threading.Event()
            load = [
                threading.Thread(target=_load, args=(it, listener, over, counted)) for _ in range(8)
            ]
            for one in load:
                one.start()
            wait_until(lambda: counted["200"] > 50, 30, "load")  # noqa: B023
            victim = it.up.plane(f"turnout_{name}")
            killed = time.monotonic()
            victim.send_signal(signal.SIGKILL)
            wait_until(lambda: _is_new(it, name, victim.pid), 60, f"{name} is back")  # noqa: B023
            mark = counted["200"]
            wait_until(lambda: counted["200"] > mark + 50, 60, "it serves again")  # noqa: B023
            away_s = time.monotonic() - killed
            over.set()
            for one in load:
                one.join(30)
            failed = sum(counted.values()) - counted["200"]
            label = "proxy" if name == "addon" else "sidecar"
            rows.append(
                f"{label}: serving {away_s:.1f} s later, "
                f"{failed} of {sum(counted.values())} requests failed"
            )
        it.check()
        return "; ".join(rows)


def full_disk(folder: Path) -> str:
    """A disk of 4 MiB that is full: decision log, batches."""
    data = folder / "up" / "data"
    data.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_small_disk(data, "4m"))
        it = stack.enter_context(box(folder, settings="sidecar: {decision_log: log.jsonl}\n"))
        filler = data / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"\0" * 4_096)
        for number in range(200):
            answer = it.ask(f"number {number}", "sidecar" if number % 2 else "base_url")
            assert answer.status_code == 200
        with httpx2.Client(trust_env=False, timeout=20) as client:
            uploaded = client.post(
                it.base("sidecar") + "/v1/files",
                data={"purpose": "batch"},
                files={"file": ("jobs.jsonl", b"{}\n" * 100_000)},
            )
        assert uploaded.status_code == 507, uploaded.status_code
        assert "error" in uploaded.json(), uploaded.text
        filler.unlink()
        it.ask("after", "sidecar")
        wait_until(lambda: b"after" in (data / "log.jsonl").read_bytes(), 20, "log goes on")
        it.check()
        code = uploaded.json()["error"].get("code")
    return (
        f"200 requests answered, an upload refused with {uploaded.status_code} ({code}); "
        "logging goes on when there is room"
    )


def wild_saves(folder: Path) -> str:
    """200 rapid saves: half-written files, renames, deletes, binary; then a whole one."""
    rng = random.Random(7)
    with box(folder) as it:
        path = it.rules / "routes.yaml"
        wrong = Counter[str]()
        for number in range(SAVES):
            _save(path, number, rng)
            if number % 10 == 0:
                wrong[str(it.ask().status_code)] += 1
        path.write_text(WHOLE.format("last"))
        for listener in ("base_url", "sidecar"):
            wait_until(
                lambda: it.ask("wordlast", listener).headers.get("x-turnout-route") == "rlast",  # noqa: B023
                15,
                "the last save is in force",
            )
        assert set(wrong) == {"200"}, wrong
        return (
            f"{SAVES} saves; every request in between was answered, "
            "the last save is in force on both planes"
        )


def yaml_bombs(folder: Path) -> str:
    """Aliases that expand to billions, nesting, huge keys: refused, the old table stays."""
    laughs = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    bad = {
        "aliases": laughs + "routes: *a11\n",
        "a loop": "routes: &r\n  - *r\n",
        "nesting": "routes: " + "[" * 20_000 + "]" * 20_000 + "\n",
        "a long key": "? " + "k" * 2_000_000 + "\n: 1\n",
        "17 MB": "# " + "x" * 17_000_000 + "\n",
        "merge keys": "a: &a {x: 1}\nroutes: [{<<: [" + "*a, " * 50_000 + "*a]}]\n",
        "binary": "routes: \x00\x01\n",
    }
    with box(folder) as it:
        path = it.rules / "routes.yaml"
        for name, text in bad.items():
            wanted = _refusals(it) + 2
            path.write_text(text)
            wait_until(lambda: _refusals(it) >= wanted, 40, f"{name} is refused")  # noqa: B023
            it.check()
        memory = max(it.memory_mib().values())
        assert memory < 700, f"{memory:.0f} MiB"
        return (
            f"{len(bad)} kinds refused while the old table serves; "
            f"memory afterwards {memory:.0f} MiB at most"
        )


def hostile_scripts(folder: Path) -> str:
    """Scripts that loop, allocate, exit, raise and lie: the proxy goes on."""
    hostile = {
        "endless loop": "while True: pass",
        "endless generator": "any(False for _ in iter(int, 1))",
        "catches everything": CATCHES_ALL,
        "exit": "import sys; sys.exit(3)",
        "raise": "raise KeyboardInterrupt",
        "recursion": "return choose(request)",
        "a lie": "return {'target': 'x'}",
        "changes the request": "request.text = 'x'",
    }
    with box(folder) as it:
        scripts = it.rules / "scripts"
        scripts.mkdir()
        rows = []
        for name, source in hostile.items():
            (scripts / "pick.py").write_text(f"def choose(request):\n    {source}\n")
            _use_script(it, name)
            began = time.monotonic()
            answer = it.ask("hello", timeout_s=30)
            took = time.monotonic() - began
            rows.append(f"{name} {took * 1000:.0f} ms")
            assert answer.status_code == 200, (name, answer.text)
            assert took < 5, (name, took)
            it.check()
        return "requests with each script answered: " + ", ".join(rows)


def hostile_batches(folder: Path) -> str:
    """Batch files with hostile lines and names."""
    lines = [
        b'{"custom_id": "a", "method": "DELETE", "url": "/v1/chat/completions", "body": {}}',
        b'{"custom_id": "../../etc/passwd", "method": "POST", "url": "/v1/../../x", "body": {}}',
        b'{"custom_id": 1}',
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"custom_id": "' + b"x" * 5_000_000 + b'"}',
        b'{"custom_id": "n", "method": "POST", "url": "http://127.0.0.1:1/x", "body": null}',
    ]
    names = [
        "../../evil.jsonl",
        "a\r\nx: y.jsonl",
        "\u202egnp.jsonl",
        "x" * 4_000,
        "",
        "con\x00.jsonl",
    ]
    with box(folder) as it, httpx2.Client(trust_env=False, timeout=30) as client:
        base = it.base("sidecar") + "/v1"
        statuses = Counter[str]()
        for content in (*lines, b"\n".join(lines), b""):
            uploaded = client.post(
                f"{base}/files", data={"purpose": "batch"}, files={"file": ("j.jsonl", content)}
            )
            if uploaded.status_code != 200:
                statuses[f"upload {uploaded.status_code}"] += 1
                continue
            asked: dict[str, Any] = {
                "input_file_id": uploaded.json()["id"],
                "endpoint": "/v1/chat/completions",
                "completion_window": "24h",
            }
            made = client.post(f"{base}/batches", json=asked)
            batch = made.json().get("id")
            if made.status_code != 200:
                statuses[f"batch {made.status_code}"] += 1
                continue
            ended = wait_until(lambda: _ended(client, base, batch), 30, "the batch ends")  # noqa: B023
            statuses[ended] += 1
        for name in names:
            sent = client.post(
                f"{base}/files", data={"purpose": "batch"}, files={"file": (name, b"{}\n")}
            )
            assert sent.status_code in (200, 400), (name[:20], sent.status_code, sent.text[:200])
        inside = folder / "up"
        strays = [p for p in folder.rglob("*evil*") if inside / "data" not in p.parents]
        assert not strays, strays
        assert not it.far.seen or all(PATH in seen.path for seen in it.far.seen)
        it.check()
        shown = ", ".join(f"{name}: {count}" for name, count in sorted(statuses.items()))
        return (
            f"{len(lines) + 2} files and {len(names)} names; {shown}; "
            "nothing written outside, nothing sent"
        )


def http2(folder: Path) -> str:
    """HTTP/2 from client and provider, 50 streams on one connection."""
    import asyncio
    import ssl

    from proxy_kit import make_certificates, proxy, upstream, write_rules

    ca, server = make_certificates(folder, ("localhost", "127.0.0.1"))
    with upstream(server_file=server) as origin:
        turnout = (
            f'proxy: {{intercept: [localhost], upstream_ca: "{ca}"}}\nclassifier: {{kind: "off"}}\n'
        )
        routes = "routes:\n  - {name: rest, match: [.*], target: pass}\n"
        rules = write_rules(folder / "rules", routes=routes, turnout=turnout)
        with proxy(folder / "p", rules, "--", "--set", "http2=true") as running:
            context = ssl.create_default_context(cafile=str(running.bundle))

            async def ask_all() -> Counter[str]:
                async with httpx2.AsyncClient(
                    http2=True, proxy=running.url, verify=context, trust_env=False, timeout=60
                ) as client:
                    url = f"{origin.url}{PATH}"
                    answers = await asyncio.gather(
                        *(client.post(url, json=body(f"hello {n}")) for n in range(50))
                    )
                return Counter(f"{a.http_version} {a.status_code}" for a in answers)

            counted = asyncio.run(ask_all())
    assert set(counted) <= {"HTTP/2 200", "HTTP/1.1 200"}, counted
    return f"50 requests at once: {dict(counted)}"


def _load(it: Box, listener: str, over: threading.Event, counted: Counter[str]) -> None:
    while not over.is_set():
        try:
            status = str(it.ask(listener=listener, timeout_s=10).status_code)
        except (httpx2.HTTPError, OSError, KeyError, ValueError) as error:
            status = type(error).__name__
        counted[status] += 1
        if status != "200":
            over.wait(0.1)


def _refusals(it: Box) -> int:
    return it.up.log.count("cannot be used") + it.up.log.count("are not used")


def _is_new(it: Box, name: str, old: int) -> bool:
    try:
        return it.up.plane(f"turnout_{name}").pid != old
    except StopIteration:
        return False


def _save(path: Path, number: int, rng: random.Random) -> None:
    text = WHOLE.format(number)
    kind = rng.randrange(6)
    if kind == 0:
        path.write_text(text[: rng.randrange(len(text))])
    elif kind == 1:
        aside = path.with_suffix(".tmp")
        aside.write_text(text)
        aside.replace(path)
    elif kind == 2:
        path.unlink(missing_ok=True)
    elif kind == 3:
        path.write_bytes(os.urandom(200))
    elif kind == 4:
        path.write_text("")
    else:
        path.write_text(text)


def _use_script(it: Box, name: str) -> None:
    done = it.up.log.count("rules reloaded")
    (it.rules / "routes.yaml").write_text(f"# {name}{SCRIPTED}")
    wait_until(lambda: it.up.log.count("rules reloaded") >= done + 2, 20, "both planes reloaded")


def _ended(client: httpx2.Client, base: str, batch: str) -> str:
    status: str = client.get(f"{base}/batches/{batch}").json()["status"]
    return status if status in ("completed", "failed", "expired", "cancelled") else ""


@contextlib.contextmanager
def _small_disk(at: Path, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
