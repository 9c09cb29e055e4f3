import langchain_core.messages as m
from common import PROMPT, SYSTEM, read_notes, show
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

notes = tool(read_notes)
model = ChatOpenAI(model="gpt-4o").bind_tools([notes])
messages = [m.SystemMessage(SYSTEM), m.HumanMessage(PROMPT)]
answer = None
for piece in model.stream(messages):
    answer = piece if answer is None else answer + piece
messages.append(answer)
messages += [notes.invoke(call) for call in answer.tool_calls]
for piece in model.stream(messages):
    show(piece.text if isinstance(piece.text, str) else piece.text())
