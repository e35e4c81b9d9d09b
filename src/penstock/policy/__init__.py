"""Networks, heads and acting, written once against the array namespace `xp` (NumPy or jax.numpy)."""
