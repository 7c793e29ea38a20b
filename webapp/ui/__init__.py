"""The parts that all pages share: template tags, the context of the frame, and error pages."""
