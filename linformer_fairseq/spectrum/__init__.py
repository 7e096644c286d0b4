"""Singular values of a trained model's attention maps (Wang et al., 2020, section 3 and Figure 1)."""
