"""Language models: requests and replies (`messages`), failures (`errors`), and clients for servers and people."""

from agents.llm.models import Models, open_models

__all__ = ["Models", "open_models"]
