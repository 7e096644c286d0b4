"""The study of quality: variants of the model trained with several seeds, and what long sentences make of them."""
