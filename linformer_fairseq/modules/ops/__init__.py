"""The arithmetic of attention, without layers: fast forms, and `naive`, every formula as one would write it down."""
