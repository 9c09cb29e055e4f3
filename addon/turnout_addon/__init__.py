"""The mitmproxy plugin: hooks, credentials, streaming, hot reload, what mitmweb shows."""
