"""The requests that tools send beside the conversation: the one list, as data.

Each row says how such a request is told from a person's and where the person's words stand in it.
Rows with a version were seen on the real program's wire; the others are taken from the project that
the comment names. Literals of `system` are plain ASCII without quotes: they are also sought in raw
JSON. A new row needs a test body in `tests/rules/bodies/side_requests.jsonl`.
"""

from __future__ import annotations

import msgspec


class SideRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One shape. All that is given must hold."""

    task: str
    """What `when: {task: …}` calls it."""
    tool: str
    system: tuple[str, ...] = ()
    """How a text of the system prompt begins: one of these."""
    starts: str = ""
    """How the last text in the person's name begins."""
    holds: tuple[str, ...] = ()
    """What stands further on in it, in this order."""
    ends: str = ""
    """How it ends; the same as `starts`: it is this and nothing else."""
    is_alone: bool = False
    """No other message but system prompts."""
    has_tools: bool = True
    """False: it offers no tools."""
    max_tokens: int = 0
    """The answer's limit, exactly; 0: any."""

    after: str = ""
    """The person's words begin behind the first of this,"""
    until: str = ""
    """and end before the last of this."""
    speakers: tuple[str, ...] = ()
    """A transcript: the line starts of the person's turns, then of the others'."""
    is_quoted: bool = False
    """The last text holds the person's words; else they are those of the messages before."""
    has_words: bool = True
    """False: nothing in the request is what a person wrote to be answered."""


_CLAUDE_CODE = ("You are Claude Code, Anthropic", "You are a Claude agent, built on Anthropic")
_QWEN_CODE = ("You are Qwen Code",)
_OPEN_WEBUI = ("USER: ", "ASSISTANT: ", "SYSTEM: ", "TOOL: ")
_SUMMARY_SECTIONS = "Your task is to create a detailed summary of"


def _open_webui(task: str, begins: str) -> SideRequest:
    return SideRequest(
        task=task,
        tool="Open WebUI",
        starts=f"### Task:\n{begins}",
        holds=("<chat_history>\n",),
        ends="</chat_history>",
        is_alone=True,
        is_quoted=True,
        after="<chat_history>\n",
        until="</chat_history>",
        speakers=_OPEN_WEBUI,
    )


SIDE_REQUESTS: tuple[SideRequest, ...] = (
    # -- Claude Code; Qwen Code has taken over some of its prompts -------------------------------
    SideRequest(
        task="title",
        tool="Claude Code 2.1.197",
        system=(
            "Generate a concise, sentence-case title (3-7 words) that captures the main topic",
        ),
        holds=("<session>", "</session>"),
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after="<session>\n",
        until="</session>",
    ),
    SideRequest(
        task="title",
        tool="Claude Code 2.1.197 (/rename)",
        system=("Generate a short kebab-case name (2-4 words) that captures the main topic",),
        holds=("<conversation>", "</conversation>"),
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after="<conversation>\n",
        until="</conversation>",
    ),
    SideRequest(
        task="title",
        tool="Claude Code 2.1.197 (issue reports)",
        system=("Generate a concise, technical issue title (max 80 chars)",),
        is_alone=True,
        has_tools=False,
        is_quoted=True,
    ),
    SideRequest(
        task="title",
        tool="Claude Code 2.1.197 (cloud sessions)",
        starts="You are coming up with a succinct title and git branch name for a coding session",
        holds=("<description>", "</description>"),
        ends="Please generate a title and branch name for this session.",
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after="<description>",
        until="</description>",
    ),
    SideRequest(
        task="title",
        tool="Claude Code 2.1.197 (agent names)",
        starts='2-4 word lowercase label for this job.\nUser: "',
        holds=("Include the MOST SPECIFIC identifier",),
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after='User: "',
        until='"\nInclude the MOST',
    ),
    SideRequest(
        task="title",
        tool="Claude Code 1.0",
        system=("Summarize this coding conversation in under 50 characters.",),
        starts="Please write a 5-10 word title the following conversation:",
        ends="Respond with the title for the conversation and nothing else.",
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after="conversation:\n\n",
        until="Respond with the title",
        speakers=("User: ", "Claude: "),
    ),
    SideRequest(
        task="topic",
        tool="Claude Code 1.0",
        system=("Analyze if this message indicates a new conversation topic.",),
        has_tools=False,
        is_quoted=True,
    ),
    SideRequest(
        task="quota",
        tool="Claude Code 2.1.197",
        starts="quota",
        ends="quota",
        is_alone=True,
        has_tools=False,
        max_tokens=1,
        has_words=False,
    ),
    SideRequest(
        task="suggestion",
        tool="Claude Code 2.1.197",
        system=_CLAUDE_CODE,
        starts="[SUGGESTION MODE: Suggest what the user might naturally type next",
        ends="Reply with ONLY the suggestion, no quotes or explanation.",
    ),
    SideRequest(
        task="summary",
        tool="Claude Code 2.1.197 (/recap)",
        system=_CLAUDE_CODE,
        starts="The user stepped away and is coming back. Recap in under 40 words",
        ends="em-dash tangents.",
    ),
    SideRequest(
        task="summary",
        tool="Claude Code 2.1.197 (agents' progress)",
        system=_CLAUDE_CODE,
        starts="Describe your most recent action in 3-5 words using present tense (-ing).",
        holds=("Do not use tools.", "Bad (too long):"),
    ),
    SideRequest(
        task="summary",
        tool="Claude Code 2.1.197, Qwen Code 0.15.10 (tool calls)",
        system=("Write a short summary label describing what these tool calls accomplished.",),
        holds=("Tools completed:",),
        ends="Label:",
        is_alone=True,
        has_tools=False,
        has_words=False,
    ),
    SideRequest(
        task="compaction",
        tool="Claude Code 2.1.197",
        system=_CLAUDE_CODE,
        starts="CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
        holds=(_SUMMARY_SECTIONS, "REMINDER: Do NOT call any tools."),
        ends="you will fail the task.",
        is_quoted=True,
        after="\n\nAdditional Instructions:\n",
        until="\n\nREMINDER: Do NOT call any tools.",
    ),
    SideRequest(
        task="compaction",
        tool="Claude Code 2.0",
        system=(*_CLAUDE_CODE, "You are a helpful AI assistant tasked with summarizing convers"),
        starts=f"{_SUMMARY_SECTIONS} the conversation so far, paying close attention",
        holds=("wrap your analysis in <analysis> tags", "Primary Request and Intent"),
        is_quoted=True,
        after="\n\nAdditional Instructions:\n",
    ),
    SideRequest(
        task="side_question",
        tool="Claude Code 2.1.197 (/btw)",
        system=_CLAUDE_CODE,
        starts="<system-reminder>This is a side question from the user.",
        holds=("</system-reminder>",),
        is_quoted=True,
        after="</system-reminder>",
    ),
    SideRequest(
        task="side_question",
        tool="Qwen Code 0.15.10 (/btw)",
        system=_QWEN_CODE,
        starts="<system-reminder>\nThis is a side question from the user.",
        holds=("</system-reminder>",),
        is_quoted=True,
        after="</system-reminder>",
    ),
    SideRequest(
        task="memory",
        tool="Claude Code 2.1.197",
        system=_CLAUDE_CODE,
        starts="You are now acting as the memory extraction subagent. Analyze the most recent ~",
    ),
    SideRequest(
        task="web_page",
        tool="Claude Code 2.1.197 (WebFetch)",
        starts="Web page content:\n---\n",
        holds=("\n---\n", "Provide a concise response based"),
        is_alone=True,
        has_tools=False,
        has_words=False,
    ),
    SideRequest(
        task="permission",
        tool="Claude Code 2.1.197 (auto mode)",
        system=("You are a security monitor for autonomous AI coding agents.",),
        has_words=False,
    ),
    SideRequest(
        task="permission",
        tool="Claude Code 2.1.197 (explained commands)",
        system=("Analyze shell commands and explain what they do, why",),
        ends="Explain this command in context.",
        is_alone=True,
        has_words=False,
    ),
    SideRequest(
        task="permission",
        tool="Claude Code 1.0 (command prefixes)",
        system=("Your task is to process Bash commands that an AI coding agent wants to run.",),
        is_alone=True,
        has_tools=False,
        has_words=False,
    ),
    # -- Codex -----------------------------------------------------------------------------------
    SideRequest(
        task="title",
        tool="Codex 0.171.0",
        starts="Generate a concise, single-line task title of at most 36 characters",
        holds=("Do not answer the request.", "\n\nUser prompt:\n"),
        has_tools=False,
        is_quoted=True,
        after="\n\nUser prompt:\n",
    ),
    SideRequest(
        task="compaction",
        tool="Codex 0.171.0",
        starts="You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary",
        ends="helping the next LLM seamlessly continue the work.",
        has_tools=False,
    ),
    # -- opencode --------------------------------------------------------------------------------
    SideRequest(
        task="title",
        tool="opencode 1.18.33",
        system=("You are a title generator. You output ONLY a thread title.",),
        has_tools=False,
        is_quoted=True,
    ),
    SideRequest(
        task="summary",
        tool="opencode 1.18.33",
        system=("Summarize what was done in this conversation. Write like a pull request descr",),
        has_tools=False,
        is_quoted=True,
    ),
    SideRequest(
        task="compaction",
        tool="opencode 1.18.33",
        system=(
            "You are a context summarization agent. You are given a conversation",
            "You are an anchored context summarization assistant",
        ),
        holds=("<conversation>\n", "</conversation>"),
        has_tools=False,
        is_quoted=True,
        after="<conversation>\n",
        until="</conversation>",
        speakers=("[User]: ", "[Assistant]: ", "[Assistant reasoning]: ", "[Tool"),
    ),
    # -- Qwen Code and Gemini CLI ----------------------------------------------------------------
    SideRequest(
        task="title",
        tool="Qwen Code 0.15.10",
        system=("Generate a concise, sentence-case title (3-7 words) that captures what this",),
        starts="Conversation so far:\n",
        is_alone=True,
        is_quoted=True,
        after="Conversation so far:\n",
        speakers=("User: ", "Assistant: ", "Generate the title now"),
    ),
    SideRequest(
        task="title",
        tool="Qwen Code 0.15.10 (/rename)",
        system=("Generate a short kebab-case name (2-4 words) that captures the main topic",),
        starts="User: ",
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        speakers=("User: ", "Assistant: "),
    ),
    SideRequest(
        task="suggestion",
        tool="Qwen Code 0.15.10",
        system=_QWEN_CODE,
        starts="[SUGGESTION MODE: Suggest what the user might naturally type next",
        ends="Reply with ONLY the suggestion, no quotes or explanation.",
    ),
    SideRequest(
        task="summary",
        tool="Qwen Code 0.15.10 (/summary)",
        starts="Please analyze the conversation history above and generate a comprehensive proj",
        holds=("You are a specialized context summarizer", "## Overall Goal", "## Current Plan"),
        has_tools=False,
    ),
    SideRequest(
        task="compaction",
        tool="Qwen Code 0.15.10, Gemini CLI",
        system=(
            "You are the component that summarizes internal chat history",
            "You are a specialized system component responsible for distilling chat history",
        ),
        ends="generate the <state_snapshot>.",
        has_tools=False,
    ),
    SideRequest(
        task="memory",
        tool="Qwen Code 0.15.10",
        system=("You are now acting as the managed memory extraction subagent",),
        starts="Managed memory directory: `",
        holds=("Scan the recent conversation history in your context",),
    ),
    SideRequest(
        task="next_speaker",
        tool="Qwen Code 0.15.10, Gemini CLI",
        starts="Analyze *only* the content and structure of your immediately preceding response",
        ends="the **'user'** should speak next.",
    ),
    # -- Continue --------------------------------------------------------------------------------
    SideRequest(
        task="title",
        tool="Continue CLI 1.5.47",  # what follows is the assistant's answer
        starts="Given the following... please reply with a title for the chat that is 3-4 words",
        is_alone=True,
        has_tools=False,
        has_words=False,
    ),
    SideRequest(
        task="compaction",
        tool="Continue CLI 1.5.47",
        starts="Please provide a concise summary of our conversation so far, capturing the key c",
        ends="without missing any information.",
        # Its summary request offers the agent's tools, too.
    ),
    # -- Cline, Roo Code, Kilo Code --------------------------------------------------------------
    SideRequest(
        task="commit_message",
        tool="Cline",  # src/hosts/vscode/commit-message-generator.ts
        system=("You are a helpful assistant that generates informative git commit messages",),
        has_tools=False,
        has_words=False,
    ),
    SideRequest(
        task="compaction",
        tool="Cline",  # src/core/prompts/contextManagement.ts
        starts='<explicit_instructions type="summarize_task">',
        ends="</explicit_instructions>",
    ),
    SideRequest(
        task="compaction",
        tool="Roo Code",  # src/core/condense/index.ts
        system=(
            "You are a helpful AI assistant tasked with summarizing conversations",
            _SUMMARY_SECTIONS,
        ),
        starts="Summarize the conversation so far, as described in the prompt instructions.",
        ends="Summarize the conversation so far, as described in the prompt instructions.",
    ),
    SideRequest(
        task="enhance",
        tool="Roo Code, Kilo Code",  # src/shared/support-prompt.ts
        starts="Generate an enhanced version of this prompt (reply with only the enhanced prompt",
        holds=("or surrounding quotes):\n\n",),
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after="or surrounding quotes):\n\n",
    ),
    # -- aider: aider/prompts.py -----------------------------------------------------------------
    SideRequest(
        task="commit_message",
        tool="aider",
        system=(
            "You are an expert software engineer that generates concise, one-line Git commit",
            "You are an expert software engineer.\nReview the provided context and diffs which",
        ),
        is_alone=True,
        has_tools=False,
        has_words=False,
    ),
    SideRequest(
        task="compaction",
        tool="aider",
        system=("*Briefly* summarize this partial conversation about programming.",),
        starts="#",
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        speakers=("# USER\n", "# ASSISTANT\n", "# SYSTEM\n"),
    ),
    # -- Open WebUI: backend/open_webui/config.py ------------------------------------------------
    _open_webui("title", "Generate a concise, 3-5 word title"),
    _open_webui("tags", "Generate 1-3 broad tags categorizing the main themes"),
    _open_webui("suggestion", "Suggest 3-5 relevant follow-up questions or prompts"),
    _open_webui(
        "search_query", "Analyze the chat history to determine the necessity of generating"
    ),
    _open_webui("image_prompt", "Generate a detailed prompt for am image generation task"),
    SideRequest(
        task="autocomplete",
        tool="Open WebUI",
        starts="### Task:\nYou are an autocompletion system. Continue the text in `<text>`",
        holds=("### Context:", "<text>", "</text>"),
        is_alone=True,
        is_quoted=True,
        after="<chat_history>",
        until="</chat_history>",
        speakers=_OPEN_WEBUI,
    ),
    # -- LibreChat: packages/agents, src/utils/title.ts ------------------------------------------
    SideRequest(
        task="title",
        tool="LibreChat",
        starts="Provide a concise, 5-word-or-less title for the conversation",
        holds=("only return the title itself.", "Conversation:\n"),
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after="Conversation:\n",
        speakers=("User: ", "AI: "),
    ),
    SideRequest(
        task="title",
        tool="LibreChat (structured)",
        starts="Analyze this conversation and provide:\n1. The detected language of the conversation",
        holds=("\n\n",),
        is_alone=True,
        is_quoted=True,
        after="\n\n",
        speakers=("User: ", "AI: "),
    ),
    # -- others ----------------------------------------------------------------------------------
    SideRequest(
        task="title",
        tool="Goose",  # crates/goose/src/providers/base.rs
        system=("Generate a short title (four words or less) that describes the topic of",),
        starts="---BEGIN USER MESSAGES---",
        holds=("---END USER MESSAGES---",),
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after="---BEGIN USER MESSAGES---",
        until="---END USER MESSAGES---",
    ),
    SideRequest(
        task="title",
        tool="Zed",  # crates/agent/src/prompts
        starts="Generate a concise 3-7 word title for this conversation, omitting punctuation.",
        ends="DO NOT speak in the first person.",
    ),
    SideRequest(
        task="commit_message",
        tool="Zed",  # crates/git_ui/src/commit_message_prompt.txt
        starts="You are an expert at writing Git commits. Your job is to write a short clear commit",
        is_alone=True,
        has_tools=False,
        has_words=False,
    ),
    SideRequest(
        task="title",
        tool="GitHub Copilot Chat",  # src/extension/prompts/node/panel/title.tsx
        system=("You are an expert in crafting pithy titles for chatbot conversations.",),
        starts="Please write a brief title for the following request:",
        is_alone=True,
        has_tools=False,
        is_quoted=True,
        after="for the following request:",
    ),
    SideRequest(
        task="commit_message",
        tool="GitHub Copilot Chat",  # src/extension/prompts/node/panel/gitCommitMessagePrompt.tsx
        system=("You are an AI programming assistant, helping a software developer to come with",),
        is_alone=True,
        has_tools=False,
        has_words=False,
    ),
    SideRequest(
        task="title",
        tool="NextChat",  # app/locales/cn.ts
        starts="使用四到五个字直接返回这句话的简要主题，不要解释、不要标点、不要语气词",
        ends="请直接返回“闲聊”",
        has_tools=False,
    ),
)
"""In the order of tries: the first whose whole shape holds."""

SIDE_ITEMS = {"compaction_trigger": "compaction"}
"""Types of a last Responses item that ask the origin for such work (Codex 0.171.0)."""

TASKS = tuple(dict.fromkeys(row.task for row in SIDE_REQUESTS))
"""All kinds, as `when: {task: …}` may name them."""
