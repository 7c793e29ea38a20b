"""Language models: what a request and a reply are (`messages`), how they can fail (`errors`), and the clients that speak to servers and people."""

from agents.llm.models import Models, open_models

__all__ = ["Models", "open_models"]
