"""Motion from event to event: smooth stretches in given contact modes, impacts, the end of a chatter.

The entry is `repetition.event_step`. Page: docs/methods/motion.md.
"""
