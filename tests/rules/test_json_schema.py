"""The editor's schema says what loading says: generated, shipped, and never out of date."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from turnout_rules.json_schema import json_schema
from turnout_rules.starter import schema_text, starter_files, starter_folder

VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def is_valid(text: str) -> bool:
    return VALIDATOR.is_valid(yaml.safe_load(text))


def test_the_schema_is_a_schema_and_the_shipped_one_is_current() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json.loads(schema_text()) == json_schema()
    shipped = starter_folder() / "turnout.schema.json"
    assert shipped.read_text("utf-8") == schema_text(), "run: turnout check --schema > rules/…"


@pytest.mark.parametrize("name", [n for n in starter_files() if n.endswith(".yaml")])
def test_starter_files_fit_the_schema_and_refer_to_it(name: str) -> None:
    text = starter_files()[name]
    assert text.startswith("# yaml-language-server: $schema=./turnout.schema.json\n")
    assert not list(VALIDATOR.iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize(
    "text",
    [
        "routes: [{name: a, match: [code, 404], target: api/m}]",
        "routes: [{name: a, match: {any: [x], none: y}, target: {api/m: 1, pass: 2}}]",
        "routes: [{name: a, when: {has: tools, input_tokens: {min: 1}}, target: pass}]",
        "upstreams: {a: {base_url: https://x, models: {m: {context: 5}, n: o, p: }}}",
        "router: {port: 1}\ninference: {backend: vllm, vllm_url: http://x}",
        "x-notes: anything\nclassifier: {kind: off}",
        "probes:\nproxy:",
    ],
)
def test_what_loads_fits(text: str) -> None:
    assert is_valid(text)


@pytest.mark.parametrize(
    "text",
    [
        "rotues: []",
        "routes: [{match: [x], target: api/m}]",
        "routes: [{name: a, target: nowhere}]",
        "routes: [{name: a, prioritty: 1, target: api/m}]",
        "routes: [{name: a, set: {model: x}, target: api/m}]",
        "upstreams: {a: {engine: vlm}}",
        "proxy: {port: 99999}",
    ],
)
def test_what_does_not_load_does_not_fit(text: str) -> None:
    assert not is_valid(text)
