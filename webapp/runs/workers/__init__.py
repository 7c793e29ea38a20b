"""The worker processes, and the hand-over of jobs to them."""
