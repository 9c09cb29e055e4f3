"""The routing language and its engine: pure, no sockets, no proxy."""
