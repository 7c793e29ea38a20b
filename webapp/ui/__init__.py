"""What every page shares: template tags, the frame's context, and error pages."""
