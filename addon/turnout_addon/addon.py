"""The mitmproxy addon: hooks that read like a table of contents.

Each hook decides everything first and changes the flow last; every exception and every cancellation
in between becomes the fail-open or fail-closed policy. Nothing is decided from a response.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from mitmproxy import addonmanager, command, connection, ctx, exceptions, http, tcp
from mitmproxy.proxy import mode_specs, server_hooks

from turnout_addon import answering, display, plans
from turnout_addon.applying import choose_way
from turnout_addon.arriving import ArrivalDeadlines
from turnout_addon.bodies import amend_bodies, stream_unread
from turnout_addon.carrying import Carrier
from turnout_addon.collecting import Collector
from turnout_addon.connecting import (
    ConnectDeadlines,
    close_sockets,
    cut_connection,
    lift_connection_limit,
    speak_json,
)
from turnout_addon.deciding import Decider, policy
from turnout_addon.guard import OWN_PORT, Guard, ProxyPassword, foreign_page, password_wanted
from turnout_addon.hosts import Origin
from turnout_addon.keeping import Keeper
from turnout_addon.logs import keep_bytes_out_of_logs, say_where_reverse_leads
from turnout_addon.metrics import Metrics
from turnout_addon.options import (
    adopt_options,
    declare_options,
    follow_settings,
    gateway_of,
    own_ports,
    proxy_password,
    sidecar_of,
    sidecar_token,
)
from turnout_addon.passage import Passage, enter
from turnout_addon.reload import follow
from turnout_addon.routing import Routing
from turnout_addon.sidecar_client import SidecarClient
from turnout_addon.streaming import stream
from turnout_addon.wire import amend_http1
from turnout_rules.decision_log import DecisionLog, decision_log_path
from turnout_rules.effects import effects_of
from turnout_rules.loading import Rules, find_rules_folder, load_rules, settle_memory
from turnout_rules.problems import RulesError
from turnout_rules.questions import is_question
from turnout_rules.request import Request
from turnout_rules.settings import Settings
from turnout_rules.watching import RulesWatch

logger = logging.getLogger(__name__)


class Turnout:
    """Routes LLM requests. One instance a proxy process."""

    name = "turnout"

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        folder: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        keeps_bodies: bool = True,
    ) -> None:
        """`rules` and `folder` from a launcher; without them the options say where rules are."""
        self._environ = environ
        self._folder = folder
        self._is_launched = rules is not None
        self._keeps_bodies = keeps_bodies
        self.metrics = Metrics()
        # Swapped whole by a reload; hooks take it once per request.
        self._routing: Routing | None = Routing(rules, environ) if rules else None
        # What the listeners and mitmproxy's modes were made of.
        self._began: Settings | None = None
        self._carrier = Carrier(self.metrics)
        self.guard = Guard(())
        self._password = ProxyPassword("")
        self._deadlines = ConnectDeadlines()
        self._arrivals = ArrivalDeadlines(_cut_client)
        self._keeper: Keeper | None = None
        self._collector = Collector()
        self._decider: Decider | None = None
        self._decisions = DecisionLog(None)
        self._watching: asyncio.Task[None] | None = None
        self._stop_metrics: Callable[[], None] = lambda: None
        self.metrics_port = 0

    # -- life of the addon ------------------------------------------------------------------------

    def load(self, loader: addonmanager.Loader) -> None:
        """Declare the options."""
        keep_bytes_out_of_logs()
        speak_json()
        close_sockets()
        amend_http1()
        amend_bodies()
        declare_options(loader)

    def configure(self, updated: set[str]) -> None:
        """Load the rules; a set-up that cannot work ends the start with its reason."""
        if not self._is_launched and ("turnout_rules" in updated or self._routing is None):
            chosen = ctx.options.turnout_rules
            try:
                self._folder = find_rules_folder(Path(chosen) if chosen else None)
                self._routing = Routing(load_rules(self._folder), self._environ)
            except (RulesError, OSError, ValueError) as error:
                raise exceptions.OptionsError(
                    f"turnout: the rules cannot be used:\n{error}"
                ) from error
        self._password = self._password.renewed(_password(self.in_force(), self._environ))
        say_where_reverse_leads(self.in_force().settings.proxy)

    def running(self) -> None:
        """Servers are up: find the neighbours, watch the rules."""
        routing = self.in_force()
        self._began = routing.settings
        if not self._is_launched:
            adopt_options(ctx.options, routing.settings)
        token = sidecar_token(self._environ)
        address = sidecar_of(ctx.options, routing.settings)
        sidecar = SidecarClient(address, self.metrics, token)
        gateway = gateway_of(ctx.options, routing.settings)
        self._decider = Decider(sidecar, gateway, token, decisions=self._decisions)
        self._decisions.write_to(decision_log_path(routing.settings.sidecar))
        server = ctx.master.addons.get("proxyserver")
        self.guard.own_ports |= {gateway.port} | own_ports(ctx.options, routing.settings)
        self.guard.own_ports |= {a[1] for a in server.listen_addrs()} if server else set()
        if (view := ctx.master.addons.get("view")) is not None:
            proxy = routing.settings.proxy
            self._keeper = Keeper(view, max_flows=proxy.keep_flows, max_bytes=proxy.keep_flow_bytes)
        if ctx.options.turnout_metrics_port >= 0 and not self.metrics_port:
            self.metrics_port, self._stop_metrics = self.metrics.serve(
                ctx.options.turnout_metrics_port
            )
            self.guard.own_ports.add(self.metrics_port)
        if self._folder is not None and self._watching is None:
            watch = follow(RulesWatch(self._folder), on_rules=self._use, on_error=self._say_broken)
            self._watching = asyncio.get_running_loop().create_task(watch)
        settle_memory()

    def done(self) -> None:
        """Stop watching and listening."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self._decider is not None:
            self._decider.close()
        self._decisions.close()
        self._stop_metrics()

    # -- connections ------------------------------------------------------------------------------

    def client_connected(self, client: connection.Client) -> None:
        """Wait for its request; lift mitmproxy's limit of five upstream connections for it."""
        self._arrivals.connected(client)
        if ctx.options.http2 and (server := ctx.master.addons.get("proxyserver")) is not None:
            lift_connection_limit(server.connections.get(client.id))

    def client_disconnected(self, client: connection.Client) -> None:
        """Nothing more comes from it."""
        self._arrivals.gone(client)

    async def http_connect(self, flow: http.HTTPFlow) -> None:
        """A tunnel is asked for."""
        if self.in_force().intercept.covers(flow.request.host, flow.request.port):
            self._arrivals.connected(flow.client_conn)
        else:
            self._arrivals.tunnelled(flow.client_conn)
        if not self._password.accepts(flow):
            flow.response = password_wanted()
        elif reason := await self._obstacle(flow):
            flow.response = http.Response.make(403, f"turnout: {reason}\n".encode())
            self.metrics.refused.labels("destination").inc()

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        """No upstream is waited for without end."""
        self._deadlines.begin(data.server)

    def server_connect_error(self, data: server_hooks.ServerConnectionHookData) -> None:
        """It could not be reached."""
        self._deadlines.end(data.server)

    def server_connected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Cut a connection whose name led to where no client may go."""
        self._deadlines.end(data.server)
        address, peer = data.server.address, data.server.peername
        if not address or not peer:
            return
        (host, port), routing = (address[0], address[1]), self.in_force()
        gateway = self._decider.gateway if self._decider else None
        reason = self.guard.peer_obstacle(
            *(peer[0], host, port),
            is_listed=routing.intercept.covers(host, port),
            is_destination=routing.leads_to(host, port, gateway),
        )
        if reason:
            logger.warning("turnout: connection to %s cut: %s", host, reason)
            cut_connection(ctx.master.addons.get("proxyserver"), data.client, data.server)

    # -- requests ---------------------------------------------------------------------------------

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Whose business is it? Refuse what must not pass, lead the rest towards its origin."""
        if flow.response or flow.error or not flow.live or flow.is_replay:
            return
        self._arrivals.begun(flow)
        # No client can give a proxy's password to the reverse listener, which stays on loopback.
        is_reverse = isinstance(flow.client_conn.proxy_mode, mode_specs.ReverseMode)
        if not self._password.accepts(flow) and not is_reverse:
            flow.response = password_wanted()
            return
        passage = enter(self.in_force(), flow)
        if passage is not None:
            self._carrier.passages[flow] = passage
        origin = Origin(flow.request.scheme, flow.request.host, flow.request.port)
        choose_way(flow, origin, self.in_force().settings.proxy.upstream_proxy)
        reason = await self._destination_obstacle(flow, passage)
        self._carrier.bound(flow, passage, self.in_force().settings.proxy.max_body_bytes)
        if (is_reverse or reason == OWN_PORT) and is_question(flow.request.path):
            routing = passage.routing if passage else self.in_force()
            gateway = gateway_of(ctx.options, routing.settings)
            self._carrier.take_question(flow, passage, routing, gateway)
        elif reason:
            refusal = plans.refusal(
                passage.endpoint if passage else "", 403, reason, code="destination_refused"
            )
            self._carrier.answer(flow, passage, refusal)
        elif passage is not None:
            self._carrier.prepare(flow, passage)
        else:
            flow.request.stream = stream_unread(flow.request)
        if flow.request.stream:
            self._arrivals.arrived(flow)

    async def request(self, flow: http.HTTPFlow) -> None:
        """Decide, then change the flow in one go."""
        self._arrivals.arrived(flow)
        flow.request.trailers = None  # HTTP/1 has no way for them in mitmproxy
        if flow.response or flow.error or not flow.live or flow.is_replay:
            return
        passage = self._carrier.passages.get(flow)
        if passage is not None and passage.is_question:
            passage.is_answered = True
            flow.response = await answering.respond(flow, passage.routing, self._decider)
            return
        if passage is None or passage.decision is not None or self._decider is None:
            return
        if not passage.endpoint:
            return
        try:
            plan = await self._decider.plan(flow, passage)
        except (Exception, asyncio.CancelledError) as error:
            # A cancellation that leaves a hook makes mitmproxy hang the flow for ever.
            self.metrics.failures.inc()
            plan = policy(passage, error)
        self._carrier.carry_out(flow, passage, plan)

    # -- responses --------------------------------------------------------------------------------

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Say where the request went; let the body stream."""
        response = flow.response
        if flow.error or response is None or response.status_code == 101:
            return
        passage = self._carrier.passages.get(flow)
        if passage is not None and passage.decision is not None:
            if not passage.is_for_gateway:
                display.strip_headers(response.headers, crosses=passage.crosses)
            display.put_headers(
                response.headers, passage.decision, keep_target=passage.is_for_gateway
            )
            if passage.is_count and response.status_code == 200:
                display.put_count(response.headers, is_estimate=passage.is_answered)
        if passage is None or not passage.is_answered:
            stream(flow, passage, keeps_body=self._keeps_bodies)

    def response(self, flow: http.HTTPFlow) -> None:
        """The whole response has gone out, or there is none to go out."""
        passage = self._carrier.passages.get(flow)
        if passage is not None and passage.ending is not None and flow.response is not None:
            passage.ending.fill(flow.response)
        if flow.response is not None:
            flow.response.trailers = None
        self._finish(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        """The flow broke off; what had come of a stream stays visible."""
        self._finish(flow)

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Bytes behind an upgrade go on; mitmproxy would keep them as long as the flow lives."""
        flow.messages.clear()

    # -- for people -------------------------------------------------------------------------------

    @command.command("turnout.explain")  # type: ignore[untyped-decorator]
    def explain(self, text: str) -> str:
        """Say which rules a text hits, which wins and why."""
        return str(self.in_force().table.explain(Request.from_text(text)))

    def in_force(self) -> Routing:
        """The rules in force. No property: mitmproxy looks at every attribute before they load."""
        if self._routing is None:
            raise exceptions.OptionsError("turnout: no rules are loaded")
        return self._routing

    # -- inside -----------------------------------------------------------------------------------

    async def _destination_obstacle(self, flow: http.HTTPFlow, passage: Passage | None) -> str:
        if passage is not None and passage.is_reverse:
            return foreign_page(flow.request.headers)
        return await self._obstacle(flow)

    async def _obstacle(self, flow: http.HTTPFlow) -> str:
        request = flow.request
        return await self.guard.obstacle(request.host, request.port, self.in_force().intercept)

    def _finish(self, flow: http.HTTPFlow) -> None:
        self._arrivals.arrived(flow)
        passage = self._carrier.passages.pop(flow, None)
        if passage is not None and flow.response is not None:
            if passage.tee is not None:
                passage.tee.put_back(flow.response)
            if flow.comment:
                notes = display.outcome(flow, passage, flow.response)
                flow.comment = " · ".join([flow.comment, *notes])
        if self._keeper is not None:
            self._keeper.finished(flow)
        self._collector.finished(len(flow.request.raw_content or b""))

    def _use(self, rules: Rules) -> None:
        """Put a new version in force; requests in flight keep theirs."""
        began = self._began or rules.settings
        effects = effects_of(rules.settings, began=began)
        rules = replace(rules, settings=effects.settings)
        try:
            routing = Routing(rules, self._environ)
            password = _password(routing, self._environ)
        except (OSError, ValueError, exceptions.OptionsError) as error:
            self._say_broken(error)
            return
        self._routing = routing
        self.guard.forget()
        self._password = self._password.renewed(password)
        self._decisions.write_to(decision_log_path(routing.settings.sidecar))
        follow_settings(ctx.options, routing.settings, began)
        if self._keeper is not None:
            proxy = routing.settings.proxy
            self._keeper.limit(proxy.keep_flows, proxy.keep_flow_bytes)
        for sentence in effects.sentences(("proxy",)):
            logger.warning("turnout: %s", sentence)
        self.metrics.reloads.labels("ok").inc()
        self.metrics.rules_are_broken.set(0)
        routes = len(rules.table.routes)
        logger.info("turnout: rules reloaded, %d routes in force (%s)", routes, rules.version)
        for warning in rules.warnings:
            logger.warning("turnout: %s", warning)

    def _say_broken(self, error: Exception) -> None:
        message = str(error)
        self.metrics.reloads.labels("broken").inc()
        self.metrics.rules_are_broken.set(1)
        logger.error("turnout: the saved rules cannot be used, the old ones stay:\n%s", message)


def _cut_client(client: connection.Client) -> None:
    logger.info("turnout: a client did not finish its request in time; its connection is closed")
    cut_connection(ctx.master.addons.get("proxyserver"), client)


def _password(routing: Routing, environ: Mapping[str, str]) -> str:
    return proxy_password(routing.settings, environ, ctx.options.listen_host)
