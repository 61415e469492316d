"""Images that requests are fed with: noise or the user's own; chosen, decoded, labelled before anything is timed."""
