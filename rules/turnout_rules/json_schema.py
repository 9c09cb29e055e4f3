"""The JSON Schema of rule files, generated from the same tables that loading reads by.

One schema serves every file of a rules folder, since any of them may hold any section. Editors with
a YAML language server pick it up by the `# yaml-language-server: $schema=` line.
"""

from __future__ import annotations

from typing import Any

from turnout_rules.kinds import Key, described, mapping_schema
from turnout_rules.probes import PROBE_KEYS
from turnout_rules.schema import ROUTE_KEYS
from turnout_rules.settings_loading import FLAT_KEYS, INFERENCE_KEYS, ROUTER_KEYS, SECTIONS
from turnout_rules.upstream_schema import UPSTREAM_KEYS

SCHEMA_FILE = "turnout.schema.json"
"""The name starter files refer to."""


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of a rule file."""
    properties: dict[str, Any] = {
        "routes": _list_of(ROUTE_KEYS, "which request goes where"),
        "upstreams": {
            "description": "where targets live: name to base URL or local engine",
            "type": ["object", "null"],
            "additionalProperties": mapping_schema(UPSTREAM_KEYS),
        },
        "probes": _list_of(PROBE_KEYS, "routing tests as data"),
        "observe": {"type": "boolean", "description": "decide and show, but change no request"},
        "router": _nullable(ROUTER_KEYS, "older names of settings"),
        "inference": _nullable(INFERENCE_KEYS, "older way to describe one engine"),
    }
    for name, (keys, struct) in SECTIONS.items():
        about = (struct.__doc__ or name).partition("\n")[0]
        properties[name] = _nullable(keys, about)
    for name, (key, _, _) in FLAT_KEYS.items():
        properties[name] = key.kind.schema() | {"description": described(key)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Turnout rule file",
        "type": "object",
        "properties": properties,
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
    }


def _list_of(keys: dict[str, Key], about: str) -> dict[str, Any]:
    return {"description": about, "type": ["array", "null"], "items": mapping_schema(keys)}


def _nullable(keys: dict[str, Key], about: str) -> dict[str, Any]:
    """A section that may be left empty, as with all its lines commented out."""
    return mapping_schema(keys) | {"type": ["object", "null"], "description": about}
