"""The study of classification: pretrained encoders with every kind of attention, fine-tuned on labelled texts."""
