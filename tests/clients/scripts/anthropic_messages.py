import anthropic
from common import DESCRIPTION, PROMPT, SCHEMA, SYSTEM, read_notes, show

tools = [{"name": "read_notes", "description": DESCRIPTION, "input_schema": SCHEMA}]
ask = {"model": "claude-sonnet-4-5", "max_tokens": 500, "system": SYSTEM, "tools": tools}
messages = [{"role": "user", "content": PROMPT}]
with anthropic.Anthropic() as client:
    with client.messages.stream(messages=messages, **ask) as stream:
        answer = stream.get_final_message()
    (call,) = answer.content
    result = {"type": "tool_result", "tool_use_id": call.id, "content": read_notes(**call.input)}
    messages.append({"role": "assistant", "content": [call.model_dump(exclude_none=True)]})
    messages.append({"role": "user", "content": [result]})
    with client.messages.stream(messages=messages, **ask) as stream:
        for text in stream.text_stream:
            show(text)
