"""Side requests of chat applications, editors and assistants: rows of `side_table`."""

from __future__ import annotations

from turnout_rules.side_shape import SideRequest, alone

_OPEN_WEBUI = ("USER: ", "ASSISTANT: ", "SYSTEM: ", "TOOL: ")


def _open_webui(task: str, begins: str) -> SideRequest:
    return SideRequest(
        task=task,
        tool="Open WebUI",
        starts=f"### Task:\n{begins}",
        holds=("<chat_history>\n",),
        ends="</chat_history>",
        is_alone=True,
        after="<chat_history>\n",
        until="</chat_history>",
        speakers=_OPEN_WEBUI,
    )


SIDE_REQUESTS_OF_CHATS: tuple[SideRequest, ...] = (
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
        after="<chat_history>",
        until="</chat_history>",
        speakers=_OPEN_WEBUI,
    ),
    # -- LibreChat: packages/agents, src/utils/title.ts ------------------------------------------
    alone(
        task="title",
        tool="LibreChat",
        starts="Provide a concise, 5-word-or-less title for the conversation",
        holds=("only return the title itself.", "Conversation:\n"),
        after="Conversation:\n",
        speakers=("User: ", "AI: "),
    ),
    SideRequest(
        task="title",
        tool="LibreChat (structured)",
        starts="Analyze this conversation and provide:\n1. The detected language of the",
        holds=("2. A concise title in the detected language", "\n\n"),
        is_alone=True,
        after="\n\n",
        speakers=("User: ", "AI: "),
    ),
    # -- others ----------------------------------------------------------------------------------
    alone(
        task="title",
        tool="Goose",  # crates/goose/src/providers/base.rs
        system=("Generate a short title (four words or less) that describes the topic of",),
        starts="---BEGIN USER MESSAGES---",
        holds=("---END USER MESSAGES---",),
        after="---BEGIN USER MESSAGES---",
        until="---END USER MESSAGES---",
    ),
    SideRequest(
        task="title",
        tool="Zed",  # crates/agent/src/prompts
        starts="Generate a concise 3-7 word title for this conversation, omitting punctuation.",
        ends="DO NOT speak in the first person.",
    ),
    alone(
        task="commit_message",
        tool="Zed",  # crates/git_ui/src/commit_message_prompt.txt
        starts="You are an expert at writing Git commits. Your job is to write a short clear",
        holds=("commit message that summarizes the changes.\n",),
        words="none",
    ),
    alone(
        task="title",
        tool="GitHub Copilot Chat",  # src/extension/prompts/node/panel/title.tsx
        system=("You are an expert in crafting pithy titles for chatbot conversations.",),
        starts="Please write a brief title for the following request:",
        after="for the following request:",
    ),
    alone(
        task="commit_message",
        tool="GitHub Copilot Chat",  # src/extension/prompts/node/panel/gitCommitMessagePrompt.tsx
        system=("You are an AI programming assistant, helping a software developer to come with",),
        words="none",
    ),
    SideRequest(
        task="title",
        tool="NextChat",  # app/locales/cn.ts
        starts="使用四到五个字直接返回这句话的简要主题，不要解释、不要标点、不要语气词",
        ends="请直接返回“闲聊”",
        has_tools=False,
    ),
)
