"""How JAX runs in a learner: its threads, and compilations kept on disk."""

import os
from pathlib import Path


def xla_flags(threads: int) -> str:
    """Flags for XLA on CPU; must be in the environment before JAX is imported.

    A learner that spreads over all cores while actors act makes both slower, so the count is fixed.
    """
    if threads > 1:
        return f"intra_op_parallelism_threads={threads}"
    return "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def prepare(cache: Path, threads: int) -> None:
    """Import JAX with `threads` threads and a compilation cache that survives the process.

    JAX's own variable names another place for it, which several homes may share.
    """
    cache = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache)
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {xla_flags(threads)}".strip()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    cache.mkdir(parents=True, exist_ok=True)
    settings = {
        "jax_compilation_cache_dir": str(cache),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
