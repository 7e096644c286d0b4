"""The study of masked language models: pretraining with every kind of attention, and what changing it does."""
