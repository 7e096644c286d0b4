"""A study of documents: whole texts translated with each kind of attention, from raw text to a report."""
