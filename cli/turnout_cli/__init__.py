"""The `turnout` command: thin, it calls the other rooms."""
