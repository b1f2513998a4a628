"""The Gabarito server: an OpenAI-compatible API in front of a local GGUF model.

Read next: `server/cli.py` (the command), `server/api/app.py` (the API), `server/engine/` (the
model's loop).
"""

__version__ = "0.1.0"
