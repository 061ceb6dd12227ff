"""The types of arrays: one name for each kind of element."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]  # offsets, times, counts
Uint32s: TypeAlias = npt.NDArray[np.uint32]  # positions, lengths, entries
Uint16s: TypeAlias = npt.NDArray[np.uint16]
Numbers: TypeAlias = npt.NDArray[np.unsignedinteger]  # of streams: narrow or wide
Integers: TypeAlias = npt.NDArray[np.integer]
Bools: TypeAlias = npt.NDArray[np.bool_]
Indexes: TypeAlias = npt.NDArray[np.intp]
