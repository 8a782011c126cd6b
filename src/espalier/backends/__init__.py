"""Where programs send their calls: the protocol, and the engine in this process."""
