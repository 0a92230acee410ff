"""Motion from event to event: smooth stretches in given contact modes, impacts, the end of a chatter."""
