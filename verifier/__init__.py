"""Evaluates one program against one task on one device, and can be trusted."""
