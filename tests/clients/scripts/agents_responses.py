import asyncio

from agents import Agent, Runner, function_tool, set_tracing_disabled
from common import PROMPT, SYSTEM, read_notes, show

set_tracing_disabled(True)
agent = Agent(name="notes", instructions=SYSTEM, tools=[function_tool(read_notes)], model="gpt-4o")


async def main() -> None:
    result = Runner.run_streamed(agent, PROMPT)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            show(event.data.delta)


asyncio.run(main())
