"""Forms: sounds and pictures with a `model` in a field of their own."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.bodies.making import chat, read, target
from turnout_rules.capabilities import obstacle
from turnout_rules.forms import read_form
from turnout_rules.model import Match, Model, Route, Target, Upstream, When
from turnout_rules.reading import Reader
from turnout_rules.request import Request
from turnout_rules.rewriting import rewrite
from turnout_rules.settings import Reading
from turnout_rules.table import Table
from turnout_rules.unreadable import Unreadable

SOUND = bytes(range(256)) * 40 + b'\r\n--not the boundary\r\nname="model"\r\n\r\nx\r\n--b0undar'
PATH = "/v1/audio/transcriptions"
TYPE = "multipart/form-data; boundary=b0undary"


def part(name: str, value: bytes, more: str = "", head: str = "") -> bytes:
    start = f'--b0undary\r\nContent-Disposition: form-data; name="{name}"{more}\r\n{head}\r\n'
    return start.encode() + value + b"\r\n"


FILE = part("file", SOUND, '; filename="model"', "Content-Type: audio/wav\r\n")
END = b"--b0undary--\r\n"
MODEL = part("model", b"whisper-1")


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + END


def hear(body: bytes, path: str = PATH, kind: str = TYPE) -> Request:
    return Reader(Reading()).read(
        method="POST", path=path, headers={"content-type": kind}, body=body
    )


def test_a_forms_fields_are_read_and_its_files_are_not() -> None:
    request = hear(form(FILE, MODEL, part("prompt", "你好".encode()), part("stream", b"true")))
    assert (request.endpoint, request.model, request.text) == (
        "transcriptions",
        "whisper-1",
        "你好",
    )
    assert request.stream
    assert set(request.fields) == {"model", "prompt", "stream"}
    assert hear(form(MODEL, FILE)).text == ""
    assert (request.needs - {"stream"}, request.bound, request.input_tokens > 0) == (
        frozenset(),
        "",
        True,
    )


def test_only_the_model_changes_to_the_byte() -> None:
    body = form(part("language", b"de"), FILE, MODEL, part("temperature", b"0"))
    rewritten = rewrite(hear(body), target(model_model="Systran/faster-whisper-large"), None)
    assert body.count(b"whisper-1") == 1
    assert rewritten.body == body.replace(b"whisper-1", b"Systran/faster-whisper-large")
    assert rewritten.path.endswith("/audio/transcriptions")


def test_a_routes_set_writes_replaces_and_drops_fields() -> None:
    route = Route(name="r", set={"language": "en", "temperature": 0.2, "prompt": None})
    body = form(part("prompt", b"hint"), FILE, MODEL, part("language", b"de"))
    changed = rewrite(hear(body), target(), route).body
    fields = {name: bytes(raw) for name, raw in hear(changed).fields.items()}
    assert fields == {"model": b'"other-model"', "language": b'"en"', "temperature": b'"0.2"'}
    assert FILE in changed
    assert changed.endswith(b"0.2\r\n" + END)


def test_a_form_without_a_model_gets_one_where_the_path_names_it() -> None:
    path = "/openai/deployments/ears/audio/transcriptions?api-version=1"
    request = hear(form(FILE), path=path)
    assert request.model == "ears"
    assert hear(rewrite(request, target(), None).body).model == "other-model"


BROKEN = [
    (form(FILE), "multipart/form-data", "names no boundary"),
    (b"x" + form(FILE, MODEL), TYPE, "does not begin with its boundary"),
    (form(FILE, MODEL).replace(b"\r\n", b"\n"), TYPE, "does not begin with its boundary"),
    (form(FILE, MODEL, MODEL), TYPE, "has `model` twice"),
    (FILE + MODEL, TYPE, "ends in the middle"),
    (FILE[:-40], TYPE, "ends in the middle"),
    (b"--b0undary\r\n" + b"x" * 9_000, TYPE, "no end of its head"),
    (form(part("model", b"eA==", head="Content-Transfer-Encoding: base64\r\n")), TYPE, "encoding"),
    (b"--b0undary\r\nContent-Type: text/plain\r\n\r\nx\r\n" + END, TYPE, "no plain name"),
    (form(*(part(f"f{n}", b"") for n in range(200))), TYPE, "too many"),
    (form(FILE), TYPE, "no `model`"),
    (END, TYPE, "does not begin"),
    (b"", TYPE, "does not begin"),
    (b'{"model": "m"}', TYPE, "does not begin"),
]


@pytest.mark.parametrize(("body", "kind", "why"), BROKEN)
def test_what_is_no_plain_form_is_not_read(body: bytes, kind: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        hear(body, kind=kind)


@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=99)), max_size=6), st.text())
def test_values_of_any_kind_come_through(parts: list[tuple[str, bytes]], model: str) -> None:
    names = [f"n{number}" for number in range(len(parts))]
    kept = [
        part(name, value)
        for name, (_, value) in zip(names, parts, strict=True)
        if b"b0undary" not in value
    ]
    body = form(*kept, MODEL)
    try:
        value = model.encode()
    except UnicodeEncodeError:
        return
    found = read_form(body, TYPE)
    if b"b0undary" not in value:
        changed = found.changed(body, {"model": msgspec.json.encode(model)})
        assert changed == form(*kept, part("model", value))


@given(st.binary(max_size=200), st.integers(0, 400))
def test_no_bytes_bring_the_reader_down(junk: bytes, at: int) -> None:
    body = form(FILE[:200] + b"\r\n", MODEL)
    mixed = body[:at] + junk + body[at:]
    try:
        found = read_form(mixed, TYPE)
    except Unreadable:
        return
    assert found.changed(mixed, {}) == mixed


# -- what moves, and where to ---------------------------------------------------------------------


def table(*routes: Route) -> Table:
    upstreams = {
        "ears": Upstream(name="ears", base_url="http://127.0.0.1:9/v1", models={}),
        "local": Upstream(
            name="local",
            engine="llamacpp",
            models={
                "chat": Model(name="chat", model_path="c.gguf"),
                "vectors": Model(name="vectors", model_path="e.gguf", args=("--embeddings",)),
                "ranks": Model(name="ranks", model_path="r.gguf", args=("--reranking",)),
                "hears": Model(name="hears", model_path="a.gguf", args=("-mm", "a-proj.gguf")),
            },
        ),
    }
    return Table(routes, upstreams, version="1", scripts={}, observe=False)


def route(name: str, *targets: str, endpoint: tuple[str, ...] = (), **more: object) -> Route:
    return Route(
        name=name,
        match=None if endpoint else Match(any=(".*",)),
        when=When(endpoint=endpoint) if endpoint else None,
        targets=tuple((t, 1) for t in targets),
        **more,  # type: ignore[arg-type]
    )


RERANK = {"model": "bge", "query": "which?", "documents": ["a", "b"]}


def test_such_endpoints_move_only_by_a_rule_that_names_them() -> None:
    rest = route("rest", "ears/any")
    passed = table(rest).decide(hear(form(FILE, MODEL)))
    assert passed.target == "pass"
    assert "move only by a rule whose `when.endpoint` names them" in passed.reason
    named = table(route("sound", "ears/whisper", endpoint=("transcriptions",), priority=5), rest)
    decision = named.decide(hear(form(FILE, MODEL)))
    assert (decision.route, decision.target) == ("sound", "ears/whisper")
    assert named.decide(read(RERANK, path="/v1/rerank")).target == "pass"
    assert named.decide(read(chat("x"))).target == "ears/any"


@pytest.mark.parametrize(
    ("path", "body", "serving"),
    [
        ("/v1/rerank", RERANK, "local/ranks"),
        ("/v1/embeddings", {"model": "m", "input": "x"}, "local/vectors"),
    ],
)
def test_a_llama_cpp_engine_serves_what_it_was_started_for(
    path: str, body: dict[str, object], serving: str
) -> None:
    endpoint = read(body, path=path).endpoint
    for name in ("chat", "vectors", "ranks"):
        one = table(route("r", f"local/{name}", endpoint=(endpoint,)))
        decision = one.decide(read(body, path=path))
        if f"local/{name}" == serving:
            assert decision.target == serving
        else:
            assert decision.target == "pass"
            assert f"local/{name}: no {endpoint} endpoint" in decision.reason
    hearing = table(route("r", "local/chat", "local/hears", endpoint=("transcriptions",)))
    assert hearing.decide(hear(form(FILE, MODEL))).target == "local/hears"


def test_supports_names_them_and_bytes_of_sound_are_no_words() -> None:
    upstream = Upstream(name="u", engine="command", models={})
    large = hear(form(part("file", bytes(400_000), '; filename="a"'), MODEL))
    small = Model(name="m", supports=frozenset(("transcriptions",)), context=512)
    assert table(route("rest", "ears/any")).decide(large).target == "pass"
    assert obstacle(large, Target("u/m", upstream, small)) == ""
    assert obstacle(read(chat("x")), Target("u/m", upstream, small)) == "no chat endpoint"
