"""Sends notifications beyond the web pages when a run ends, a verdict changes, or a baseline overtakes a result. They are sent by webhook or by mail
(webapp/review)."""
