"""Programs the sidecar starts as processes of their own: the exec wrapper, engine servers."""
