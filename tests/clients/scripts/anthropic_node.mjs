import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";

const system = "You are a helpful assistant with tools for files and code. Know the zebrafish.";
const schema = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const tools = [{ name: "read_notes", description: "Read the notes file.", input_schema: schema }];
const ask = { model: "claude-sonnet-4-5", max_tokens: 500, system, tools };
const messages = [{ role: "user", content: process.env.CLIENT_PROMPT }];
const client = new Anthropic();
const answer = await client.messages.stream({ ...ask, messages }).finalMessage();
const call = answer.content[0];
const content = readFileSync(call.input.path, "utf8");
messages.push({ role: "assistant", content: answer.content });
messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content }] });
const stream = client.messages.stream({ ...ask, messages });
stream.on("text", (text) => process.stdout.write(text));
await stream.finalMessage();
