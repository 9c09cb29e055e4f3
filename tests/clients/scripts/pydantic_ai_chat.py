import asyncio
import sys

from common import PROMPT, SYSTEM, read_notes, show
from pydantic_ai import Agent

agent = Agent(sys.argv[1], system_prompt=SYSTEM, tools=[read_notes])


async def main() -> None:
    async with agent.run_stream(PROMPT) as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            show(piece)


asyncio.run(main())
