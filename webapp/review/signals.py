"""What other applications hear of reviews, within the transaction of what happened."""

from django.dispatch import Signal

verdict_given = Signal()  # verdict; told: ids of the people whom the page tells
