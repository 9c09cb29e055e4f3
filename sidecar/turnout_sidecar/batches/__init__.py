"""Work that can wait: OpenAI's Files and Batch API over SQLite, run with what is left over."""
