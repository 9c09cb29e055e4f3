"""The aiohttp application: which path is whose, and who may ask. Handlers live in their rooms."""

from __future__ import annotations

import logging
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from turnout_rules.questions import is_question
from turnout_sidecar import openapi
from turnout_sidecar.backend_api import BackendApi
from turnout_sidecar.batches.batches_api import BatchesApi
from turnout_sidecar.batches.files_api import FilesApi
from turnout_sidecar.batches.store import is_disk_full
from turnout_sidecar.gateway import not_found, plain_error
from turnout_sidecar.guarding import guard
from turnout_sidecar.route_api import RouteApi
from turnout_sidecar.service import Service

log = logging.getLogger(__name__)


def build_app(service: Service, *, token: str = "") -> web.Application:
    """The application over a service, which it starts and closes with itself."""
    app = web.Application(
        middlewares=[cast(Middleware, guard(token)), _answer_errors], client_max_size=0
    )
    own = RouteApi(service)
    _add_own(app, own, service)
    _add_batches(app, service)

    async def anything_else(http: web.Request) -> web.StreamResponse:
        handle = own.route if is_question(http.raw_path) else service.gateway.handle
        return await handle(http)

    app.router.add_route("*", "/{path:.*}", anything_else)

    async def lifespan(app: web.Application):  # type: ignore[no-untyped-def]
        await service.start()
        yield
        await service.close()

    app.cleanup_ctx.append(lifespan)
    return app


def _add_own(app: web.Application, own: RouteApi, service: Service) -> None:
    backends = BackendApi(service.backends)
    app.router.add_post("/route", own.route)
    app.router.add_get("/healthz", own.healthz)
    app.router.add_get("/metrics", own.metrics)
    app.router.add_get("/openapi.json", openapi.serve)
    app.router.add_get("/v1/models", own.models)
    app.router.add_get("/v1/models/{id:.+}", own.model)
    app.router.add_get("/backends", backends.list_all)
    app.router.add_post("/backends/{name:.+}/start", backends.start)
    app.router.add_post("/backends/{name:.+}/stop", backends.stop)
    app.router.add_get("/backends/{name:.+}/logs", backends.logs)


def _add_batches(app: web.Application, service: Service) -> None:
    files = FilesApi(service.batch_store)
    batches = BatchesApi(service.batch_store, service.batches)
    app.router.add_post("/v1/files", files.upload)
    app.router.add_get("/v1/files", files.list_all)
    app.router.add_get("/v1/files/{id}", files.get)
    app.router.add_delete("/v1/files/{id}", files.delete)
    app.router.add_get("/v1/files/{id}/content", files.content)
    app.router.add_post("/v1/batches", batches.create)
    app.router.add_get("/v1/batches", batches.list_all)
    app.router.add_get("/v1/batches/{id}", batches.get)
    app.router.add_post("/v1/batches/{id}/cancel", batches.cancel)


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """No exception leaves as HTML or with details: the client gets the API's format."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return not_found(request)
    except web.HTTPMethodNotAllowed as error:
        response = plain_error(405, "method_not_allowed", f"{request.method} is not offered here")
        response.headers["allow"] = ", ".join(sorted(error.allowed_methods))
        return response
    except web.HTTPException:
        raise
    except ConnectionResetError:
        return web.Response(status=499)  # the client has left: nobody reads this
    except Exception as error:
        if is_disk_full(error):
            log.error("answering %s: the disk is full", request.rel_url.raw_path)
            return plain_error(507, "disk_full", "there is no room on the sidecar's disk for this")
        log.exception("answering %s failed", request.rel_url.raw_path)
        return plain_error(500, "internal_error", "the sidecar failed on this request; see its log")
