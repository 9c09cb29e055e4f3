"""The requests that tools send beside the conversation: the one list, as data.

Each row says how such a request is told from a person's and where the person's words stand in it.
Rows with a version were seen on the real program's wire; the others are taken from the project that
the comment names. Literals of `system` are plain ASCII without quotes: they are also sought in raw
JSON. A new row needs a test body in `tests/rules/bodies/side_requests.jsonl`.
"""

from __future__ import annotations

from turnout_rules.side_shape import SideRequest, alone
from turnout_rules.side_table_chats import SIDE_REQUESTS_OF_CHATS

_CLAUDE_CODE = ("You are Claude Code, Anthropic", "You are a Claude agent, built on Anthropic")
_QWEN_CODE = ("You are Qwen Code",)
_SUMMARY_SECTIONS = "Your task is to create a detailed summary of"

SIDE_REQUESTS: tuple[SideRequest, ...] = (
    # -- Claude Code; Qwen Code has taken over some of its prompts -------------------------------
    alone(
        task="title",
        tool="Claude Code 2.1.197",
        system=(
            "Generate a concise, sentence-case title (3-7 words) that captures the main topic",
        ),
        holds=("<session>", "</session>"),
        after="<session>\n",
        until="</session>",
    ),
    alone(
        task="title",
        tool="Claude Code 2.1.197 (/rename)",
        system=("Generate a short kebab-case name (2-4 words) that captures the main topic",),
        holds=("<conversation>", "</conversation>"),
        after="<conversation>\n",
        until="</conversation>",
    ),
    alone(
        task="title",
        tool="Claude Code 2.1.197 (issue reports)",
        system=("Generate a concise, technical issue title (max 80 chars)",),
        words="here",
    ),
    alone(
        task="title",
        tool="Claude Code 2.1.197 (cloud sessions)",
        starts="You are coming up with a succinct title and git branch name for a coding session",
        holds=("<description>", "</description>"),
        ends="Please generate a title and branch name for this session.",
        after="<description>",
        until="</description>",
    ),
    alone(
        task="title",
        tool="Claude Code 2.1.197 (agent names)",
        starts='2-4 word lowercase label for this job.\nUser: "',
        holds=("Include the MOST SPECIFIC identifier",),
        after='User: "',
        until='"\nInclude the MOST',
    ),
    alone(
        task="title",
        tool="Claude Code 1.0",
        system=("Summarize this coding conversation in under 50 characters.",),
        starts="Please write a 5-10 word title the following conversation:",
        ends="Respond with the title for the conversation and nothing else.",
        after="conversation:\n\n",
        until="Respond with the title",
        speakers=("User: ", "Claude: "),
    ),
    SideRequest(
        task="topic",
        tool="Claude Code 1.0",
        system=("Analyze if this message indicates a new conversation topic.",),
        has_tools=False,
        words="here",
    ),
    alone(
        task="quota",
        tool="Claude Code 2.1.197",
        starts="quota",
        ends="quota",
        max_tokens=1,
        words="none",
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
    alone(
        task="summary",
        tool="Claude Code 2.1.197, Qwen Code 0.15.10 (tool calls)",
        system=("Write a short summary label describing what these tool calls accomplished.",),
        holds=("Tools completed:",),
        ends="Label:",
        words="none",
    ),
    SideRequest(
        task="compaction",
        tool="Claude Code 2.1.197",
        system=_CLAUDE_CODE,
        starts="CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
        holds=(_SUMMARY_SECTIONS, "REMINDER: Do NOT call any tools."),
        ends="you will fail the task.",
        after="\n\nAdditional Instructions:\n",
        until="\n\nREMINDER: Do NOT call any tools.",
    ),
    SideRequest(
        task="compaction",
        tool="Claude Code 2.0",
        system=(*_CLAUDE_CODE, "You are a helpful AI assistant tasked with summarizing convers"),
        starts=f"{_SUMMARY_SECTIONS} the conversation so far, paying close attention",
        holds=("wrap your analysis in <analysis> tags", "Primary Request and Intent"),
        after="\n\nAdditional Instructions:\n",
    ),
    SideRequest(
        task="side_question",
        tool="Claude Code 2.1.197 (/btw)",
        system=_CLAUDE_CODE,
        starts="<system-reminder>This is a side question from the user.",
        holds=("</system-reminder>",),
        after="</system-reminder>",
    ),
    SideRequest(
        task="side_question",
        tool="Qwen Code 0.15.10 (/btw)",
        system=_QWEN_CODE,
        starts="<system-reminder>\nThis is a side question from the user.",
        holds=("</system-reminder>",),
        after="</system-reminder>",
    ),
    SideRequest(
        task="memory",
        tool="Claude Code 2.1.197",
        system=_CLAUDE_CODE,
        starts="You are now acting as the memory extraction subagent. Analyze the most recent ~",
        holds=("to update your persistent memory systems.",),
    ),
    alone(
        task="web_page",
        tool="Claude Code 2.1.197 (WebFetch)",
        starts="Web page content:\n---\n",
        holds=("\n---\n", "Provide a concise response based"),
        words="none",
    ),
    SideRequest(
        task="permission",
        tool="Claude Code 2.1.197 (auto mode)",
        system=("You are a security monitor for autonomous AI coding agents.",),
        words="none",
    ),
    SideRequest(
        task="permission",
        tool="Claude Code 2.1.197 (explained commands)",
        system=("Analyze shell commands and explain what they do, why",),
        ends="Explain this command in context.",
        is_alone=True,
        words="none",
    ),
    alone(
        task="permission",
        tool="Claude Code 1.0 (command prefixes)",
        system=("Your task is to process Bash commands that an AI coding agent wants to run.",),
        words="none",
    ),
    # -- Codex -----------------------------------------------------------------------------------
    SideRequest(
        task="title",
        tool="Codex 0.171.0",
        starts="Generate a concise, single-line task title of at most 36 characters",
        holds=("Do not answer the request.", "\n\nUser prompt:\n"),
        has_tools=False,
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
        words="here",
    ),
    SideRequest(
        task="summary",
        tool="opencode 1.18.33",
        system=("Summarize what was done in this conversation. Write like a pull request descr",),
        has_tools=False,
        words="here",
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
        after="Conversation so far:\n",
        speakers=("User: ", "Assistant: ", "Generate the title now"),
    ),
    alone(
        task="title",
        tool="Qwen Code 0.15.10 (/rename)",
        system=("Generate a short kebab-case name (2-4 words) that captures the main topic",),
        starts="User: ",
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
    alone(
        task="title",
        tool="Continue CLI 1.5.47",  # what follows is the assistant's answer
        starts="Given the following... please reply with a title for the chat that is 3-4 words",
        holds=("no additional text or explanation", "punctuation.\n\n"),
        words="none",
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
        words="none",
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
    alone(
        task="enhance",
        tool="Roo Code, Kilo Code",  # src/shared/support-prompt.ts
        starts="Generate an enhanced version of this prompt (reply with only the enhanced prompt",
        holds=("or surrounding quotes):\n\n",),
        after="or surrounding quotes):\n\n",
    ),
    # -- aider: aider/prompts.py -----------------------------------------------------------------
    alone(
        task="commit_message",
        tool="aider",
        system=(
            "You are an expert software engineer that generates concise, one-line Git commit",
            "You are an expert software engineer.\nReview the provided context and diffs which",
        ),
        words="none",
    ),
    alone(
        task="compaction",
        tool="aider",
        system=("*Briefly* summarize this partial conversation about programming.",),
        starts="#",
        speakers=("# USER\n", "# ASSISTANT\n", "# SYSTEM\n"),
    ),
    *SIDE_REQUESTS_OF_CHATS,
)
"""In the order of tries: the first whose whole shape holds."""

SIDE_ITEMS = {"compaction_trigger": "compaction"}
"""Types of a last Responses item that ask the origin for such work (Codex 0.171.0)."""

TASKS = tuple(dict.fromkeys(row.task for row in SIDE_REQUESTS))
"""All kinds, as `when: {task: …}` may name them."""
