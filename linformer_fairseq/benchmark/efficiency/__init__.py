"""Speed and memory of attention modules against length, with peers, and of whole models."""
