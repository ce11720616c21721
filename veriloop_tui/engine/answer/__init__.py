"""From a chat to a prompt, and from raw text to an answer."""
