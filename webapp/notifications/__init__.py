"""What is told beyond the page: a run ended, a verdict changed, a baseline overtook a result; by webhook, and through webapp/review by mail."""
