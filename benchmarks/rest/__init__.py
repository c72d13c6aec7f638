"""Speed of describes over the Lance REST Namespace protocol."""
