"""Side requests in the shapes that the tools' own sources give them, where none was recorded."""

from __future__ import annotations

from typing import Any

ASK = "fix the failing title test"
AGAIN = "and write the docs"
CLAUDE = "You are Claude Code, Anthropic's official CLI for Claude."
QWEN = "You are Qwen Code, an interactive CLI agent."
HISTORY = [("user", ASK), ("assistant", "Done: code and language.")]
SUMMARY = (
    "Your task is to create a detailed summary of the conversation so far, paying close attention"
)


def messages(system: str, *turns: tuple[str, str], **fields: Any) -> dict[str, Any]:
    """An Anthropic body with the tool's two first system blocks."""
    blocks = [{"type": "text", "text": text} for text in (CLAUDE, system) if text]
    spoken = [{"role": r, "content": [{"type": "text", "text": t}]} for r, t in turns]
    return {
        "model": "claude-haiku-4-5",
        "max_tokens": 100,
        "system": blocks,
        "messages": spoken,
    } | (fields)


def chat(system: str, *turns: tuple[str, str], **fields: Any) -> dict[str, Any]:
    """A chat body."""
    first = [{"role": "system", "content": system}] if system else []
    spoken = [{"role": role, "content": text} for role, text in turns]
    return {"model": "gpt-4o-mini", "messages": [*first, *spoken]} | fields


def user(text: str) -> tuple[str, str]:
    """The person's side of the conversation, as tools speak in it."""
    return ("user", text)


def open_webui(task: str) -> dict[str, Any]:
    """A template of Open WebUI round the last turns."""
    history = f"USER: {ASK}\nASSISTANT: Done: code and language.\nUSER: {AGAIN}"
    form = "### Guidelines:\n- Use the chat's primary language\n### Output:\nJSON format"
    return chat(
        "",
        user(
            f"### Task:\n{task}\n{form}\n### Chat History:\n"
            f"<chat_history>\n{history}\n</chat_history>"
        ),
    )


TOOLS: dict[str, Any] = {"tools": [{"name": "Bash", "input_schema": {"type": "object"}}]}
BOTH = f"{ASK}\n{AGAIN}"
TRANSCRIPT = f"User: {ASK}\n\nClaude: Done: code.\n\nUser: {AGAIN}\n\n"

SHAPES: list[tuple[str, str, str, str, dict[str, Any]]] = [
    # (tool, endpoint, task, the person's words, body)
    (
        "Claude Code: issue title",
        "messages",
        "title",
        ASK,
        messages("Generate a concise, technical issue title (max 80 chars) for", user(ASK)),
    ),
    (
        "Claude Code: cloud session",
        "messages",
        "title",
        ASK,
        messages(
            "",
            user(
                "You are coming up with a succinct title and git branch name for a coding session "
                f"based on the provided description.\n\n<description>{ASK}</description>\n\n"
                "Please generate a title and branch name for this session."
            ),
        ),
    ),
    (
        "Claude Code: agent's name",
        "messages",
        "title",
        ASK,
        messages(
            "",
            user(
                f'2-4 word lowercase label for this job.\nUser: "{ASK}"\n'
                "Include the MOST SPECIFIC identifier (component/file/feature)."
            ),
        ),
    ),
    (
        "Claude Code 1.0: title",
        "messages",
        "title",
        BOTH,
        messages(
            "Summarize this coding conversation in under 50 characters.",
            user(
                "Please write a 5-10 word title the following conversation:\n\n"
                f"{TRANSCRIPT}Respond with the title for the conversation and nothing else."
            ),
        ),
    ),
    (
        "Claude Code 1.0: topic",
        "messages",
        "topic",
        ASK,
        messages("Analyze if this message indicates a new conversation topic. If so", user(ASK)),
    ),
    (
        "Claude Code: progress of an agent",
        "messages",
        "summary",
        ASK,
        messages(
            "You are an agent.",
            *HISTORY,
            user(
                "Describe your most recent action in 3-5 words using present tense (-ing). "
                'Name the file. Do not use tools.\n\nBad (too long): "Reviewing the full diff"'
            ),
            **TOOLS,
        ),
    ),
    (
        "Claude Code: tool calls",
        "messages",
        "summary",
        "",
        messages(
            "Write a short summary label describing what these tool calls accomplished. It",
            user("Tools completed:\n\nTool: Bash\nInput: {}\nOutput: debug\n\nLabel:"),
        ),
    ),
    (
        "Claude Code 2.0: compaction",
        "messages",
        "compaction",
        "keep the parser",
        messages(
            "",
            *HISTORY,
            user(
                f"{SUMMARY} to the code. First wrap your analysis in <analysis> tags.\n"
                "1. Primary Request and Intent: …\n\nAdditional Instructions:\nkeep the parser"
            ),
            **TOOLS,
        ),
    ),
    (
        "Claude Code: memory",
        "messages",
        "memory",
        ASK,
        messages(
            "",
            *HISTORY,
            user(
                "You are now acting as the memory extraction subagent. Analyze the most recent ~4 "
                "messages above and use them to update your persistent memory systems."
            ),
            **TOOLS,
        ),
    ),
    (
        "Claude Code: a fetched page",
        "messages",
        "web_page",
        "",
        messages(
            "",
            user(
                "\nWeb page content:\n---\ndebug this code\n---\n\nWhat is it about?\n\n"
                "Provide a concise response based on the content above."
            ),
        ),
    ),
    (
        "Claude Code: auto mode",
        "messages",
        "permission",
        "",
        messages(
            "You are a security monitor for autonomous AI coding agents.\n\n## Context",
            user(f"<transcript>\nUser: {ASK}\n</transcript>"),
            **TOOLS,
        ),
    ),
    (
        "Claude Code: a command explained",
        "messages",
        "permission",
        "",
        messages(
            "Analyze shell commands and explain what they do, why you're running them",
            user("Tool: Bash\nInput: rm code\n\nExplain this command in context."),
            **TOOLS,
        ),
    ),
    (
        "Claude Code 1.0: a command's prefix",
        "messages",
        "permission",
        "",
        messages(
            "Your task is to process Bash commands that an AI coding agent wants to run.",
            user("<policy_spec>\n…\n</policy_spec>\n\nCommand: git commit"),
        ),
    ),
    (
        "opencode: summary",
        "chat",
        "summary",
        ASK,
        chat(
            "Summarize what was done in this conversation. Write like a pull request description.",
            *HISTORY,
        ),
    ),
    (
        "Qwen Code: title",
        "chat",
        "title",
        BOTH,
        chat(
            "Generate a concise, sentence-case title (3-7 words) that captures what this program",
            user(
                f"Conversation so far:\nUser: {ASK}\nAssistant: Done: code.\nUser: {AGAIN}\n\n"
                "Generate the title now."
            ),
            **TOOLS,
        ),
    ),
    (
        "Qwen Code: suggestion",
        "chat",
        "suggestion",
        ASK,
        chat(
            QWEN,
            *HISTORY,
            user(
                "[SUGGESTION MODE: Suggest what the user might naturally type next.]\n\n…\n\n"
                "Reply with ONLY the suggestion, no quotes or explanation."
            ),
        ),
    ),
    (
        "Qwen Code, Gemini CLI: next speaker",
        "chat",
        "next_speaker",
        ASK,
        chat(
            QWEN,
            *HISTORY,
            user(
                "Analyze *only* the content and structure of your immediately preceding response "
                "(your last turn).\n\nIn this case, the **'user'** should speak next."
            ),
        ),
    ),
    (
        "Gemini CLI: compaction",
        "chat",
        "compaction",
        ASK,
        chat(
            "\nYou are a specialized system component responsible for distilling chat history into",
            *HISTORY,
            user("First, reason in your scratchpad. Then, generate the <state_snapshot>."),
        ),
    ),
    (
        "Cline: commit message",
        "chat",
        "commit_message",
        "",
        chat(
            "You are a helpful assistant that generates informative git commit messages based on",
            user("Based on the provided git diff, generate a concise message.\n+ debug()"),
        ),
    ),
    (
        "Cline: compaction",
        "chat",
        "compaction",
        ASK,
        chat(
            "You are Cline.",
            *HISTORY,
            user(
                '<explicit_instructions type="summarize_task">\nThe current conversation is '
                "rapidly running out of context.\n</explicit_instructions>"
            ),
        ),
    ),
    (
        "Roo Code: compaction",
        "chat",
        "compaction",
        ASK,
        chat(
            f"{SUMMARY} to the user's explicit requests.",
            *HISTORY,
            user("Summarize the conversation so far, as described in the prompt instructions."),
        ),
    ),
    (
        "Roo Code: enhance",
        "chat",
        "enhance",
        ASK,
        chat(
            "",
            user(
                "Generate an enhanced version of this prompt (reply with only the enhanced prompt "
                "- no conversation, explanations, lead-in, bullet points, placeholders, or "
                f"surrounding quotes):\n\n{ASK}"
            ),
        ),
    ),
    (
        "aider: commit message",
        "chat",
        "commit_message",
        "",
        chat(
            "You are an expert software engineer.\nReview the provided context and diffs which "
            "are about to be committed to a git repo.",
            user("diff --git a/x b/x\n+debug"),
        ),
    ),
    (
        "aider 0.50: commit message",
        "chat",
        "commit_message",
        "",
        chat(
            "You are an expert software engineer that generates concise, one-line Git commit "
            "messages based on the provided diffs.",
            user("diff --git a/x b/x\n+debug"),
        ),
    ),
    (
        "aider: history",
        "chat",
        "compaction",
        BOTH,
        chat(
            "*Briefly* summarize this partial conversation about programming.\nInclude less",
            user(f"# USER\n{ASK}\n# ASSISTANT\nDone: code.\n# USER\n{AGAIN}"),
        ),
    ),
    *(
        (f"Open WebUI: {task}", "chat", task, BOTH, open_webui(sentence))
        for task, sentence in {
            "title": "Generate a concise, 3-5 word title with an emoji summarizing the chat.",
            "tags": "Generate 1-3 broad tags categorizing the main themes of the chat history.",
            "suggestion": "Suggest 3-5 relevant follow-up questions or prompts that the user",
            "search_query": "Analyze the chat history to determine the necessity of generating s",
            "image_prompt": "Generate a detailed prompt for am image generation task based on",
        }.items()
    ),
    (
        "Open WebUI: autocomplete",
        "chat",
        "autocomplete",
        ASK,
        chat(
            "",
            user(
                "### Task:\nYou are an autocompletion system. Continue the text in `<text>` based "
                f"on the type.\n### Context:\n<chat_history>\nUSER: {ASK}\nASSISTANT: Done."
                "\n</chat_history>\n<type>General</type>\n<text>deb</text>\n#### Output:"
            ),
        ),
    ),
    (
        "LibreChat: title",
        "chat",
        "title",
        ASK,
        chat(
            "",
            user(
                "Provide a concise, 5-word-or-less title for the conversation, using its same "
                "language, and only return the title itself.\n\nConversation:\nUser: fix the "
                "failing title test\nAI: Done: code."
            ),
        ),
    ),
    (
        "LibreChat: structured title",
        "chat",
        "title",
        ASK,
        chat(
            "",
            user(
                "Analyze this conversation and provide:\n1. The detected language of the "
                "conversation\n2. A concise title in the detected language (5 words or less)"
                f"\n\nUser: {ASK}\nAI: Done: code."
            ),
            **TOOLS,
        ),
    ),
    (
        "Goose: title",
        "chat",
        "title",
        ASK,
        chat(
            "Generate a short title (four words or less) that describes the topic of the user's",
            user(
                f"---BEGIN USER MESSAGES---\n{ASK}\n---END USER MESSAGES---\n\n"
                "Generate a short title for the above messages."
            ),
        ),
    ),
    (
        "Zed: title",
        "chat",
        "title",
        ASK,
        chat(
            "",
            *HISTORY,
            user(
                "Generate a concise 3-7 word title for this conversation, omitting punctuation. "
                "Be descriptive. DO NOT speak in the first person."
            ),
        ),
    ),
    (
        "Zed: commit message",
        "chat",
        "commit_message",
        "",
        chat(
            "",
            user(
                "You are an expert at writing Git commits. Your job is to write a short clear "
                "commit message that summarizes the changes.\n\n+debug"
            ),
        ),
    ),
    (
        "Copilot: title",
        "chat",
        "title",
        ASK,
        chat(
            "You are an expert in crafting pithy titles for chatbot conversations. You are",
            user(f"Please write a brief title for the following request:\n\n{ASK}"),
        ),
    ),
    (
        "Copilot: commit message",
        "chat",
        "commit_message",
        "",
        chat(
            "You are an AI programming assistant, helping a software developer to come with the",
            user("<changes>\n+debug\n</changes>"),
        ),
    ),
    (
        "NextChat: title",
        "chat",
        "title",
        "帮我修复这个函数",
        chat(
            "",
            user("帮我修复这个函数"),
            ("assistant", "好的"),
            user(
                "使用四到五个字直接返回这句话的简要主题，不要解释、不要标点、不要语气词、不要多余文本，"
                "不要加粗，如果没有主题，请直接返回“闲聊”"
            ),
        ),
    ),
]
