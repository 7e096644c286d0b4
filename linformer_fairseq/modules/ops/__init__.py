"""The arithmetic of attention, without layers."""
