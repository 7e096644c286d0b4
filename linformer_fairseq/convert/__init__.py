"""Turning a trained Transformer into a Linformer."""
