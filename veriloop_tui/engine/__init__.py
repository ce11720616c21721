"""The model side: a child process that runs llama.cpp, and the client that talks to it."""
