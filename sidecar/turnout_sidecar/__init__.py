"""The aiohttp service: classifiers, the gateway, and the keeper of local engines."""
