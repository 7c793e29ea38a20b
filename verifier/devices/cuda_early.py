"""Creates the GPU context while torch is being imported. Used in a party that receives its role immediately.

Nothing depends on it: anything that is not initialised here is initialised later, in the ordinary way.
"""

# sandboxed: runs before any stranger's source

from __future__ import annotations

import contextlib
import threading

from verifier.devices import cuda_driver


class Early:
    """Initialises the device in a thread; driver calls release the interpreter lock."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        with contextlib.suppress(cuda_driver.CudaError, OSError, AttributeError):
            cuda_driver.use_primary_context(0)
