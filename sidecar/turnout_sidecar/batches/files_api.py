"""`/v1/files`: upload, list, look at, read, delete. Uploads go to disk as they arrive, bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import BodyPartReader, web

from turnout_sidecar.batches.paging import page
from turnout_sidecar.batches.store import BatchStore
from turnout_sidecar.gateway import plain_error

MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_FIELD_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024
UPLOAD_TIMEOUT_S = 600.0


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class FilesApi:
    """Handlers around the store."""

    def __init__(self, store: BatchStore) -> None:
        """Stateless but for the store."""
        self._store = store

    async def upload(self, http: web.Request) -> web.StreamResponse:
        """`POST /v1/files`, multipart: `file` and `purpose`."""
        if http.content_type != "multipart/form-data":
            return plain_error(400, "bad_upload", "send multipart/form-data with file and purpose")
        store = self._store
        path = await store.run(store.fresh_upload)
        try:
            async with asyncio.timeout(UPLOAD_TIMEOUT_S):
                filename, purpose = await _receive(http, path)
            if not purpose or filename is None:
                raise _Refused(400, "bad_upload", "both file and purpose are needed")
            stored = await store.run(store.add_file, path, filename, purpose)
        except _Refused as refused:
            return plain_error(refused.status, refused.code, refused.message)
        except TimeoutError:
            return plain_error(408, "upload_timeout", "the upload did not arrive in time")
        except (ValueError, AssertionError):
            return plain_error(400, "bad_upload", "the multipart body cannot be read")
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        return web.json_response(stored.to_json())

    async def list_all(self, http: web.Request) -> web.StreamResponse:
        """`GET /v1/files`."""
        files = await self._store.run(self._store.files, http.query.get("purpose"))
        return page(http, [file.to_json() for file in files])

    async def get(self, http: web.Request) -> web.StreamResponse:
        """`GET /v1/files/{id}`."""
        stored = await self._store.run(self._store.file, http.match_info["id"])
        return _missing(http) if stored is None else web.json_response(stored.to_json())

    async def content(self, http: web.Request) -> web.StreamResponse:
        """`GET /v1/files/{id}/content`."""
        stored = await self._store.run(self._store.file, http.match_info["id"])
        if stored is None:
            return _missing(http)
        headers = {"content-type": "application/octet-stream", "x-content-type-options": "nosniff"}
        return web.FileResponse(self._store.path_of(stored.id), headers=headers)

    async def delete(self, http: web.Request) -> web.StreamResponse:
        """`DELETE /v1/files/{id}`."""
        file_id = http.match_info["id"]
        if not await self._store.run(self._store.delete_file, file_id):
            return _missing(http)
        return web.json_response({"id": file_id, "object": "file", "deleted": True})


async def _receive(http: web.Request, path: Path) -> tuple[str | None, str]:
    """Write the upload to `path`; its file name and purpose."""
    filename, purpose = None, ""
    reader = await http.multipart()
    while (part := await reader.next()) is not None:
        if not isinstance(part, BodyPartReader):
            raise _Refused(400, "bad_upload", "nested multipart bodies are not accepted")
        if part.name == "file":
            filename = Path(part.filename or "upload").name[:255]
            await _save(part, path)
        elif part.name == "purpose":
            purpose = (await _field(part)).decode("utf-8", "replace")[:64]
        else:
            await _field(part)
    return filename, purpose


async def _save(part: BodyPartReader, path: Path) -> None:
    size = 0
    file = await asyncio.to_thread(path.open, "wb")
    try:
        while chunk := await part.read_chunk(CHUNK_BYTES):
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                raise _Refused(413, "file_too_large", f"files may have {MAX_FILE_BYTES} bytes")
            await asyncio.to_thread(file.write, chunk)
    finally:
        await asyncio.to_thread(file.close)


async def _field(part: BodyPartReader) -> bytes:
    value = bytearray()
    while chunk := await part.read_chunk():
        value += chunk
        if len(value) > MAX_FIELD_BYTES:
            raise _Refused(413, "field_too_large", "a form field is too large")
    return bytes(value)


def _missing(http: web.Request) -> web.Response:
    named: Any = http.match_info["id"][:100]
    return plain_error(404, "file_not_found", f"no file {named!r}")
