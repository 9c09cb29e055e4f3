"""The batch store: what is recorded, once, and what a restart finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnout_sidecar.batches.records import Batch, Outcome
from turnout_sidecar.batches.store import BatchStore
from turnout_sidecar.batches.validation import validate

ENDPOINT = "/v1/chat/completions"


def line(name: str, **changes: Any) -> str:
    row = {"custom_id": name, "method": "POST", "url": ENDPOINT, "body": {"model": "m"}}
    return json.dumps(row | changes) + "\n"


def batch_of(store: BatchStore, content: str) -> Batch:
    upload = store.fresh_upload()
    upload.write_text(content)
    stored = store.add_file(upload, "in.jsonl", "batch")
    batch = store.create_batch(stored.id, ENDPOINT, "24h", 86_400, {"who": "me"})
    store.take_in(batch)
    again = store.batch(batch.id)
    assert again is not None
    return again


@pytest.mark.parametrize(
    ("content", "code", "number"),
    [
        ("", "empty_file", None),
        ("\n\n", "empty_file", None),
        (line("a") + "nonsense\n", "invalid_json_line", 2),
        (line("a") + line("a"), "duplicate_custom_id", 2),
        (line("a", url="/v1/embeddings"), "mismatched_url", 1),
        (line("a", method="GET"), "invalid_method", 1),
        (line("a", body={"stream": True}), "stream_not_supported", 1),
        (line("a", body=[1]), "invalid_json_line", 1),
        (line("a", body="[" * 100_000), "invalid_json_line", 1),
        (line(""), "invalid_custom_id", 1),
        ('{"custom_id": "x"}\n', "invalid_json_line", 1),
        ("[" * 100_000 + "\n", "invalid_json_line", 1),
    ],
)
def test_a_bad_input_file_fails_with_its_line(
    tmp_path: Path, content: str, code: str, number: int | None
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(content)
    _, problems = validate(path, ENDPOINT, lambda row: None)
    assert [(p["code"], p["line"]) for p in problems] == [(code, number)]


def test_bytes_that_are_no_text_are_a_problem_of_their_line(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xff\xfe\x00\n")
    assert validate(path, ENDPOINT, lambda row: None)[1][0]["line"] == 1


def test_a_failed_validation_runs_nothing(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "b")
    batch = batch_of(store, line("a") + "broken\n")
    assert batch.status == "failed"
    assert store.pending(batch, set(), 10) == []
    assert store.to_json(batch)["errors"]["data"][0]["line"] == 2


def test_a_result_is_recorded_once(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "b")
    batch = batch_of(store, line("a"))
    (job,) = store.pending(batch, set(), 10)
    assert store.record(job, Outcome(status=200, body=b'{"n": 1}'))
    assert not store.record(job, Outcome(status=200, body=b'{"n": 2}'))
    store.finish(batch.id, "completed")
    done = store.batch(batch.id)
    assert done is not None and done.output_file_id is not None
    rows = store.path_of(done.output_file_id).read_text().splitlines()
    assert [json.loads(row)["response"]["body"] for row in rows] == [{"n": 1}]


def test_successes_and_failures_go_into_two_files(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "b")
    batch = batch_of(store, line("a") + line("b") + line("c"))
    a, b, c = store.pending(batch, set(), 10)
    store.record(a, Outcome(status=200, body=b"{}"))
    store.record(b, Outcome(status=400, body=b'{"error": {"message": "no"}}'))
    store.record(c, Outcome(status=None, code="connect", message="dead"))
    store.finish(batch.id, "completed")
    done = store.batch(batch.id)
    assert done is not None and done.output_file_id and done.error_file_id
    assert store.to_json(done)["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    errors = store.path_of(done.error_file_id).read_text().splitlines()
    assert [json.loads(e)["custom_id"] for e in errors] == ["b", "c"]
    assert json.loads(errors[1])["error"] == {"code": "connect", "message": "dead"}


def test_a_reopened_store_knows_what_is_done_and_what_is_not(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "b")
    batch = batch_of(store, line("a") + line("b"))
    store.record(store.pending(batch, set(), 1)[0], Outcome(status=200, body=b"{}"))
    again = BatchStore(tmp_path / "b")
    (active,) = again.active()
    assert active.id == batch.id
    assert [job.custom_id for job in again.pending(active, set(), 10)] == ["b"]


def test_finishing_twice_leaves_the_same_files(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "b")
    batch = batch_of(store, line("a"))
    store.record(store.pending(batch, set(), 1)[0], Outcome(status=200, body=b"{}"))
    store.finish(batch.id, "completed")
    store.finish(batch.id, "completed")
    assert len(store.files("batch_output")) == 1


def test_the_folder_is_the_users_alone(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "b")
    store.files()
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700


def test_an_input_file_deleted_too_early_fails_the_batch(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "b")
    upload = store.fresh_upload()
    upload.write_text(line("a"))
    stored = store.add_file(upload, "in.jsonl", "batch")
    batch = store.create_batch(stored.id, ENDPOINT, "24h", 86_400, None)
    store.delete_file(stored.id)
    store.take_in(batch)
    failed = store.batch(batch.id)
    assert failed is not None and failed.status == "failed"
    assert "gone" in failed.errors
