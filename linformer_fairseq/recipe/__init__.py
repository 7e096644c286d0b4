"""From raw text to a report: prepares, trains, translates, scores and compares, each step once."""
